"""CRC32C (Castagnoli), by the processor's own instruction where it has one.

The log needs it on a thread without the interpreter's lock, where no Python library can be called.
"""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    #include <string.h>
    #if defined(__x86_64__)
    __attribute__((target("sse4.2")))
    static uint32_t warren_crc_hardware(uint32_t crc, const uint8_t* p, size_t n) {
        uint64_t wide = crc, word;
        for (; n >= 8; p += 8, n -= 8) {
            memcpy(&word, p, 8);
            wide = __builtin_ia32_crc32di(wide, word);
        }
        crc = (uint32_t)wide;
        while (n--) crc = __builtin_ia32_crc32qi(crc, *p++);
        return crc;
    }
    static int warren_crc_has_hardware(void) { return __builtin_cpu_supports("sse4.2"); }
    #else
    static uint32_t warren_crc_hardware(uint32_t crc, const uint8_t* p, size_t n) {
        (void)p; (void)n; return crc;
    }
    static int warren_crc_has_hardware(void) { return 0; }
    #endif
    """
    uint32_t warren_crc_hardware(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil
    int warren_crc_has_hardware() noexcept nogil

cdef uint32_t table[256]
cdef bint has_hardware = warren_crc_has_hardware() != 0
cdef uint32_t POLYNOMIAL = 0x82F63B78


cdef void fill_table() noexcept:
    cdef uint32_t i, _, value
    for i in range(256):
        value = i
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        table[i] = value


fill_table()


cdef uint32_t by_table(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        crc = table[(crc ^ p[i]) & 0xFF] ^ (crc >> 8)
    return crc


cdef uint32_t crc32c(uint32_t crc, const uint8_t* data, size_t n) noexcept nogil:
    """Extends a checksum; start with 0."""
    crc = ~crc
    if has_hardware:
        crc = warren_crc_hardware(crc, data, n)
    else:
        crc = by_table(crc, data, n)
    return ~crc


def checksum(bytes data not None, uint32_t crc=0):
    """CRC32C of bytes."""
    return crc32c(crc, data, len(data))


def checksum_by_table(bytes data not None):
    """The same without the processor's help, for machines that have none and to test the other."""
    return ~by_table(~(<uint32_t>0), data, len(data)) & 0xFFFFFFFF
