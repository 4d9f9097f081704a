/* CRC-32C (Castagnoli) by the processor's own instruction, where it has one. */
#ifndef SHMACCUM_CRC32C_H
#define SHMACCUM_CRC32C_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && !defined(SHMACCUM_CRC_TABLES) /* which a test defines */

static inline int crc32c_has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}

/* Continues a CRC, without the inversions at begin and end. */
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(
    uint32_t crc, const uint8_t *data, uint64_t size
) {
    uint64_t wide = crc, next;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&next, data, 8);
        wide = __builtin_ia32_crc32di(wide, next);
    }
    for (crc = (uint32_t)wide; size; data++, size--) crc = __builtin_ia32_crc32qi(crc, *data);
    return crc;
}

#else

static inline int crc32c_has_instruction(void) {
    return 0;
}

static inline uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *data, uint64_t size) {
    (void)data, (void)size;
    return crc;
}

#endif

#endif
