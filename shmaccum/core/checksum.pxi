"""Checksums: CRC-32 of format 1's messages, and CRC-32C, with which a batch's bytes are kept from append to the wire.

With ``shmaccum.checksum=append``, `SlotHeader.checksums` has two cells of 32 bits. Each is the CRC-32C of the batch's
bytes behind the space of its header, combined with what its header says of them: partition, base timestamp, number of
records. Each append continues the cell that the commit word selects into the other one, and the commit word then
selects that. So a death before the commit leaves the old cell, of the old records.

The sender seals with that checksum. So bytes that change between `send` and the wire fail their batch.
"""

cdef extern from "crc32c.h" nogil:
    bint crc32c_has_instruction()
    uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *data, uint64_t size)
    uint32_t crc32c_of_zeros[4][256]
    enum:
        CRC32C_STREAM

cdef enum:
    CELL_BITS = 32
    SQUARES = 40  # bits of the largest number of bits in a batch
    LONG_CRC_SIZE = 1 << 16  # bytes whose checksum takes longer than to release and take the GIL


cdef uint32_t CRC_32 = 0xEDB88320  # the polynomials, lowest power first
cdef uint32_t CRC_32C = 0x82F63B78
cdef uint64_t CELL_MASK = (1ULL << CELL_BITS) - 1

cdef struct CrcTables:
    # For eight bytes at a time: by the place of a byte among them, and its value.
    uint32_t of[8][256]


cdef CrcTables _crc32_tables, _crc32c_tables
cdef uint32_t _squares[SQUARES]
cdef bint _has_instruction


cdef void _make_tables(CrcTables *tables, uint32_t polynomial) noexcept nogil:
    cdef uint32_t value
    cdef int byte, bit, table
    for byte in range(256):
        value = byte
        for bit in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        tables.of[0][byte] = value
    for table in range(1, 8):
        for byte in range(256):
            value = tables.of[table - 1][byte]
            tables.of[table][byte] = value >> 8 ^ tables.of[0][value & 0xFF]


cdef uint32_t _continued(const CrcTables *tables, uint32_t crc, const uint8_t *data, uint64_t size) noexcept nogil:
    while size >= 8:
        crc = (
            tables.of[7][(crc ^ data[0]) & 0xFF]
            ^ tables.of[6][(crc >> 8 ^ data[1]) & 0xFF]
            ^ tables.of[5][(crc >> 16 ^ data[2]) & 0xFF]
            ^ tables.of[4][crc >> 24 ^ data[3]]
            ^ tables.of[3][data[4]]
            ^ tables.of[2][data[5]]
            ^ tables.of[1][data[6]]
            ^ tables.of[0][data[7]]
        )
        data += 8
        size -= 8
    while size:
        crc = crc >> 8 ^ tables.of[0][(crc ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return crc


cdef inline uint32_t crc32(uint32_t crc, const uint8_t *data, uint64_t size) noexcept nogil:
    """Continue a CRC-32, which begins with 0."""
    return ~_continued(&_crc32_tables, ~crc, data, size)


cdef inline uint32_t crc32c(uint32_t crc, const void *data, uint64_t size) noexcept nogil:
    """Continue a CRC-32C, which begins with 0."""
    if _has_instruction:
        return ~crc32c_by_instruction(~crc, <const uint8_t *>data, size)
    return ~_continued(&_crc32c_tables, ~crc, <const uint8_t *>data, size)


cdef uint32_t _product(uint32_t one, uint32_t other) noexcept nogil:
    """Multiply two polynomials modulo that of CRC-32C."""
    cdef uint32_t product = 0
    while one:
        if one >> 31:
            product ^= other
        one <<= 1
        other = other >> 1 ^ (CRC_32C if other & 1 else 0)
    return product


cdef uint32_t crc32c_joined(uint32_t first, uint32_t second, uint64_t size) noexcept nogil:
    """Return the CRC-32C of bytes with one CRC, followed by so many bytes with another: zlib's ``crc32_combine``."""
    cdef int square = 3  # a byte has 2 ** 3 bits
    while size and square < SQUARES:
        if size & 1:
            first = _product(_squares[square], first)
        size >>= 1
        square += 1
    return first ^ second


cdef void _make_checksums() noexcept:
    cdef int square, byte, value
    cdef uint32_t zeros = 0x80000000  # 1
    global _has_instruction
    _make_tables(&_crc32_tables, CRC_32)
    _make_tables(&_crc32c_tables, CRC_32C)
    _squares[0] = 0x40000000  # x
    for square in range(1, SQUARES):
        _squares[square] = _product(_squares[square - 1], _squares[square - 1])
    zeros = crc32c_joined(zeros, 0, CRC32C_STREAM)
    for byte in range(4):
        for value in range(256):
            crc32c_of_zeros[byte][value] = _product(zeros, <uint32_t>value << 8 * byte)
    _has_instruction = crc32c_has_instruction()


_make_checksums()


def crc32c_of(const uint8_t[::1] view not None, uint32_t crc=0):
    """Return the CRC-32C of these bytes, behind others that have the one given.

    Args:
        view: the bytes, contiguous.
        crc: of those before them; 0 if there are none.
    """
    cdef uint64_t size = <uint64_t>view.shape[0]
    if size < LONG_CRC_SIZE:
        return crc32c(crc, &view[0], size) if size else crc
    with nogil:
        crc = crc32c(crc, &view[0], size)
    return crc


# --- cells ----------------------------------------------------------------------------------------


cdef inline uint32_t _described(uint64_t partition, uint64_t base_timestamp, uint64_t count) noexcept nogil:
    """Return a checksum of what a header says of its records."""
    cdef uint64_t said[3]
    said[0], said[1], said[2] = partition, base_timestamp, count
    return crc32c(0, said, sizeof(said))


cdef inline uint32_t checksum_of(const SlotHeader *header, uint64_t cell, uint64_t count) noexcept nogil:
    """Return the CRC-32C of a batch's bytes that a cell has, if the header is as it was."""
    cdef uint32_t stored = <uint32_t>(load_relaxed(&header.checksums) >> CELL_BITS * cell)
    return stored ^ _described(load_relaxed(&header.partition), load_relaxed(&header.base_timestamp), count)


cdef inline void checksum_store(
    SlotHeader *header, uint64_t partition, uint64_t cell, uint64_t count, uint32_t checksum
) noexcept nogil:
    """Store the CRC-32C of a batch's bytes in a cell."""
    cdef uint64_t stored = checksum ^ _described(partition, load_relaxed(&header.base_timestamp), count)
    cdef uint64_t other = load_relaxed(&header.checksums) & CELL_MASK << CELL_BITS * (1 - cell)
    store_relaxed(&header.checksums, other | stored << CELL_BITS * cell)


cdef uint32_t checksum_kept(const SlotHeader *header) noexcept nogil:
    """Return the CRC-32C that the producers have kept of the bytes that are sent."""
    cdef uint64_t commit = load_acquire(&header.commit)
    return checksum_of(header, commit & 1, commit >> 1 & COMMIT_COUNT_MASK)


cdef uint32_t crc32c_of_chain(
    const Slots *slots, uint64_t slot, uint64_t begin, uint64_t size, uint32_t crc
) noexcept nogil:
    """Return the CRC-32C of some bytes and of those in a chain behind them, from byte `begin` of a slot on."""
    cdef uint64_t room = slots.slot_size - begin, here
    while slot < slots.slot_count:  # a damaged link makes a checksum that is wrong
        here = min(room, size)
        crc = crc32c(crc, slots.bytes + slot * slots.slot_size + slots.slot_size - room, here)
        size -= here
        if not size:
            break
        slot, room = load_relaxed(&header_of(slots, slot).chain) - 1, slots.slot_size
    return crc
