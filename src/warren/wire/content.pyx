"""The content header, read just far enough: is it well-formed, and what must the broker know of it.

Layout of the payload: class id (2), weight (2), body size (8), property flags (2), then the values
of the flagged properties in the order of the flags, highest bit first.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp

from warren.model.message cimport (
    BAD_EXPIRATION, HAS_CARBON_COPY, HAS_DELAY, HAS_HEADERS, HAS_REPLY_TO, HAS_USER_ID, Message,
)
from warren.wire.octets cimport load16, load32
from warren.wire.tables cimport check_table, find_key

cdef enum:
    HEADER_FIXED_BYTES = 14
    # Longer numbers are no sensible time to live and are refused.
    EXPIRATION_DIGITS_MAX = 13

cdef const char* REPLY_TO_NAME = b"amq.rabbitmq.reply-to"


cdef int64_t decimal(const uint8_t* p, uint32_t n) noexcept nogil:
    cdef int64_t value = 0
    cdef uint32_t i
    if n == 0 or n > EXPIRATION_DIGITS_MAX:
        return -1
    for i in range(n):
        if p[i] < 48 or p[i] > 57:
            return -1
        value = value * 10 + (p[i] - 48)
    return value


cdef int scan_table(Message m, uint32_t at, uint32_t end) noexcept nogil:
    """Checks the headers table at `at`; returns where it ends, or -1."""
    cdef uint32_t n
    if end - at < 4:
        return -1
    n = load32(m.data + at)
    at += 4
    if n > end - at or check_table(m.data + at, n, 0) != 0:
        return -1
    if n:
        m.marks |= HAS_HEADERS
        m.table_at = at
        m.table_len = n
        if (find_key(m.data + at, n, b"CC", 2) >= 0 or find_key(m.data + at, n, b"BCC", 3) >= 0):
            m.marks |= HAS_CARBON_COPY
        if find_key(m.data + at, n, b"x-delay", 7) >= 0:
            m.marks |= HAS_DELAY
    return <int>(at + n)


cdef int scan_content(Message m) noexcept nogil:
    """Fills in what the header says of the message; -1 when the header is malformed."""
    cdef uint8_t* p = m.data
    cdef uint32_t at = HEADER_FIXED_BYTES, end = m.header_len, n
    cdef int bit, table_end
    cdef uint16_t flags
    if end < HEADER_FIXED_BYTES:
        return -1
    flags = load16(p + 12)
    if flags & 3:
        return -1
    for bit in range(15, 1, -1):
        if not flags & (1 << bit):
            continue
        if bit == 13:
            table_end = scan_table(m, at, end)
            if table_end < 0:
                return -1
            at = <uint32_t>table_end
        elif bit == 12 or bit == 11:
            if at >= end:
                return -1
            if bit == 12:
                m.delivery_mode = p[at]
            else:
                m.priority = p[at]
            at += 1
        elif bit == 6:
            if end - at < 8:
                return -1
            at += 8
        else:
            if at >= end or p[at] >= end - at:
                return -1
            n = p[at]
            if bit == 9:
                if n == 21 and memcmp(p + at + 1, REPLY_TO_NAME, 21) == 0:
                    m.marks |= HAS_REPLY_TO
            elif bit == 8:
                m.ttl_ms = decimal(p + at + 1, n)
                if m.ttl_ms < 0:
                    m.marks |= BAD_EXPIRATION
            elif bit == 4:
                m.marks |= HAS_USER_ID
                m.user_id_at = at
            at += 1 + n
    return 0 if at == end else -1


def make_message(address, bytes header not None, bytes body not None):
    """A message from its parts, for what the broker itself publishes.

    Raises:
        ValueError: the header is malformed.
    """
    cdef Message m = Message.__new__(Message)
    m.address = address
    m.allocate(<uint32_t>len(header), <uint32_t>len(body))
    cdef const uint8_t* source = header
    cdef uint32_t i
    for i in range(m.header_len):
        m.data[i] = source[i]
    source = body
    for i in range(m.body_len):
        m.data[m.header_len + i] = source[i]
    if scan_content(m) != 0:
        raise ValueError("malformed content header")
    return m
