"""Content headers of class basic: a message's properties.

A content header's payload is class id (16 bits), weight (16), body size (64), flags (16), then the
properties whose flag is set, in the order of `PROPERTY_NAMES`. Malformed headers raise
`WireSyntaxError`; the flags' two lowest bits name no property and must be clear.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from warren.model.errors import WireSyntaxError
from warren.wire.octets cimport load16, load32, load64, store16
from warren.wire.tables cimport check_table, table_from_memory, write_table
from warren.wire.tables import Timestamp
from warren.wire.writer cimport Writer

cdef enum:
    CLASS_BASIC = 60
    FLAGS_AT = 12
    PROPERTIES_AT = 14
    PROPERTY_COUNT = 14
    FLAGS_WITHOUT_PROPERTY = 3

#: In the order of their flags, highest first, and of their values.
PROPERTY_NAMES = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)

# The type of each: c short string, F table, o octet, q 64 bits.
cdef const char* KINDS = b"ccFooccccqcccc"

cdef tuple NAMES = PROPERTY_NAMES
cdef frozenset KNOWN_NAMES = frozenset(PROPERTY_NAMES)

# Where each property's value starts and ends in a content header's payload; both 0 if it is absent.
cdef struct Extents:
    uint32_t start[PROPERTY_COUNT]
    uint32_t end[PROPERTY_COUNT]


cdef int scan(const uint8_t* p, Py_ssize_t n, Extents* extents) noexcept nogil:
    """Find every property and check it; -1 if the header is malformed."""
    cdef uint16_t flags
    cdef int i
    cdef uint64_t at = PROPERTIES_AT
    cdef uint64_t size
    if n < PROPERTIES_AT or n > <Py_ssize_t>0xFFFFFFFF or load16(p) != CLASS_BASIC:
        return -1
    flags = load16(p + FLAGS_AT)
    if flags & FLAGS_WITHOUT_PROPERTY:
        return -1
    for i in range(PROPERTY_COUNT):
        extents.start[i] = 0
        extents.end[i] = 0
        if not flags & (0x8000 >> i):
            continue
        if KINDS[i] == c"c":
            if <uint64_t>n - at < 1:
                return -1
            size = 1 + <uint64_t>p[at]
        elif KINDS[i] == c"o":
            size = 1
        elif KINDS[i] == c"q":
            size = 8
        else:
            if <uint64_t>n - at < 4:
                return -1
            size = 4 + <uint64_t>load32(p + at)
        if size > <uint64_t>n - at:
            return -1
        if KINDS[i] == c"F" and check_table(p + at + 4, <uint32_t>(size - 4), 0) < 0:
            return -1
        extents.start[i] = <uint32_t>at
        at += size
        extents.end[i] = <uint32_t>at
    return 0 if at == <uint64_t>n else -1


cdef int require_header(bytes payload, Extents* extents) except -1:
    if scan(<const uint8_t*>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), extents) < 0:
        raise WireSyntaxError("malformed content header")
    return 0


cdef object property_from_memory(int i, const uint8_t* p):
    if KINDS[i] == c"c":
        return PyUnicode_DecodeUTF8(<const char*>p + 1, p[0], "surrogateescape")
    if KINDS[i] == c"o":
        return p[0]
    if KINDS[i] == c"q":
        return Timestamp(load64(p))
    return table_from_memory(p + 4, load32(p))


cdef uint64_t number(value, uint64_t maximum) except? 0:
    cdef uint64_t result
    try:
        result = value
    except OverflowError:
        raise WireSyntaxError(f"{value} does not fit its property") from None
    if result > maximum:
        raise WireSyntaxError(f"{value} does not fit its property")
    return result


cdef int write_property(Writer out, int i, value) except -1:
    cdef size_t at
    if KINDS[i] == c"c":
        return out.put_shortstr(<str?>value)
    if KINDS[i] == c"o":
        return out.put8(<uint8_t>number(value, 0xFF))
    if KINDS[i] == c"q":
        return out.put64(number(value, 0xFFFFFFFFFFFFFFFF))
    if isinstance(value, bytes):
        if <uint64_t>PyBytes_GET_SIZE(<bytes>value) > 0xFFFFFFFF or check_table(
            <const uint8_t*>PyBytes_AS_STRING(<bytes>value),
            <uint32_t>PyBytes_GET_SIZE(<bytes>value),
            0,
        ) < 0:
            raise WireSyntaxError("malformed headers table")
        return out.put_longstr(<bytes>value)
    at = out.open_length()
    write_table(out, <dict?>value, 0)
    return out.close_length(at)


cdef int require_known(dict properties) except -1:
    for name in properties:
        if name not in KNOWN_NAMES:
            raise TypeError(f"{name!r} is no property of a message")
    return 0


def decode_properties(bytes header_payload not None):
    """The properties that are present, by name."""
    cdef Extents extents
    cdef dict properties = {}
    cdef int i
    require_header(header_payload, &extents)
    for i in range(PROPERTY_COUNT):
        if extents.end[i]:
            properties[NAMES[i]] = property_from_memory(
                i, <const uint8_t*>PyBytes_AS_STRING(header_payload) + extents.start[i]
            )
    return properties


def encode_properties(dict properties not None, uint64_t body_size):
    """A content header's payload; properties that are None are left out."""
    cdef Writer out = Writer()
    cdef uint16_t flags = 0
    cdef int i
    require_known(properties)
    out.put16(CLASS_BASIC)
    out.put16(0)
    out.put64(body_size)
    out.put16(0)
    for i in range(PROPERTY_COUNT):
        value = properties.get(NAMES[i])
        if value is not None:
            write_property(out, i, value)
            flags |= <uint16_t>(0x8000 >> i)
    store16(out.data + FLAGS_AT, flags)
    return out.finish()


def replace_properties(bytes header_payload not None, dict changes not None):
    """The payload with some properties changed, or removed by None; all others byte for byte.

    `headers` is given as a table's entries in bytes, so that the types in it survive.
    """
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(header_payload)
    cdef Extents extents
    cdef Writer out = Writer()
    cdef uint16_t flags = 0
    cdef int i
    require_known(changes)
    require_header(header_payload, &extents)
    out.put_memory(p, PROPERTIES_AT)
    for i in range(PROPERTY_COUNT):
        if NAMES[i] in changes:
            value = changes[NAMES[i]]
            if value is None:
                continue
            write_property(out, i, value)
        elif extents.end[i]:
            out.put_memory(p + extents.start[i], extents.end[i] - extents.start[i])
        else:
            continue
        flags |= <uint16_t>(0x8000 >> i)
    store16(out.data + FLAGS_AT, flags)
    return out.finish()
