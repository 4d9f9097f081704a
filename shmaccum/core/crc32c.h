/* CRC-32C (Castagnoli) by the processor's own instruction, where it has one: SSE 4.2, or ARMv8's CRC extension.

   The instruction has its result after three cycles, and one can begin in each. So long input is three streams side by
   side. What of their CRCs makes one is a table: of the CRC of some bytes, it has that of the same bytes and a stream
   of zeros.

   Compilers disagree about the intrinsics' names, and about the option or attribute that allows them; assemblers do
   not. */
#ifndef SHMACCUM_CRC32C_H
#define SHMACCUM_CRC32C_H

#include <stdint.h>
#include <string.h>

#define CRC32C_STREAM 512 /* bytes: shorter ones are joined more often, longer ones do not fit three times into 2 KiB */

/* By the place of a byte in a CRC, and its value. The core fills it when it is imported (checksum.pxi). */
static uint32_t crc32c_of_zeros[4][256];

#if defined(__x86_64__) && !defined(SHMACCUM_CRC_TABLES) /* which a test defines */

static inline int crc32c_has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}

static inline uint64_t crc32c_of_word(uint64_t crc, uint64_t word) {
    __asm__("crc32q %1, %0" : "+r"(crc) : "r"(word));
    return crc;
}

static inline uint32_t crc32c_of_byte(uint32_t crc, uint8_t byte) {
    __asm__("crc32b %1, %0" : "+r"(crc) : "q"(byte));
    return crc;
}

#elif defined(__aarch64__) && defined(__linux__) && !defined(SHMACCUM_CRC_TABLES)

#include <sys/auxv.h>

static inline int crc32c_has_instruction(void) {
    return (getauxval(AT_HWCAP) & 1 << 7) != 0; /* HWCAP_CRC32 */
}

static inline uint64_t crc32c_of_word(uint64_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}

static inline uint32_t crc32c_of_byte(uint32_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}

#else

static inline int crc32c_has_instruction(void) {
    return 0;
}

static inline uint64_t crc32c_of_word(uint64_t crc, uint64_t word) {
    return crc ^ word; /* never called */
}

static inline uint32_t crc32c_of_byte(uint32_t crc, uint8_t byte) {
    return crc ^ byte; /* never called */
}

#endif

static inline uint64_t crc32c_next_word(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

static inline uint64_t crc32c_before_zeros(uint64_t crc) {
    return crc32c_of_zeros[0][crc & 0xFF] ^ crc32c_of_zeros[1][crc >> 8 & 0xFF] ^ crc32c_of_zeros[2][crc >> 16 & 0xFF]
           ^ crc32c_of_zeros[3][crc >> 24 & 0xFF];
}

/* Continues a CRC, without the inversions at begin and end. */
static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *data, uint64_t size) {
    uint64_t first = crc;
    for (; size >= 3 * CRC32C_STREAM; data += 2 * CRC32C_STREAM, size -= 3 * CRC32C_STREAM) {
        uint64_t second = 0, third = 0;
        for (const uint8_t *end = data + CRC32C_STREAM; data < end; data += 8) {
            first = crc32c_of_word(first, crc32c_next_word(data));
            second = crc32c_of_word(second, crc32c_next_word(data + CRC32C_STREAM));
            third = crc32c_of_word(third, crc32c_next_word(data + 2 * CRC32C_STREAM));
        }
        first = crc32c_before_zeros(crc32c_before_zeros(first) ^ second) ^ third;
    }
    for (; size >= 8; data += 8, size -= 8) first = crc32c_of_word(first, crc32c_next_word(data));
    for (crc = (uint32_t)first; size; data++, size--) crc = crc32c_of_byte(crc, *data);
    return crc;
}

#endif
