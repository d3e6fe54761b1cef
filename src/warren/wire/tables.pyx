"""Field tables: the typed dictionaries in method arguments and message headers.

Types are RabbitMQ's. Untrusted bytes are walked once by `check_value`/`check_table`, which compare
every length with what is really there; turning them into objects afterwards trusts that walk. All
entry points of this module check first. Malformed input raises `WireSyntaxError`.

Where a key occurs twice the first one counts, in `find_key` as in the dictionaries.
"""


from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, uint64_t
from libc.string cimport memcmp, memcpy

from decimal import Decimal

from warren.model.errors import WireSyntaxError
from warren.wire.octets cimport load16, load32, load64

cdef enum:
    DEPTH_MAX = 32
    DECIMAL_SCALE_MAX = 255

#: Tables and arrays inside one another, the outermost included.
TABLE_DEPTH_MAX = DEPTH_MAX

cdef object INT32_MIN = -(2**31)
cdef object INT32_MAX = 2**31 - 1


class LongBytes(bytes):
    """A long string (type S) that is not UTF-8; encodes as S again."""

    __slots__ = ()


class Timestamp(int):
    """Seconds since 1970 (type T); encodes as T again."""

    __slots__ = ()


# --- Walking untrusted memory ---------------------------------------------------------------------

cdef int64_t skip_value(const uint8_t* p, uint32_t n) noexcept nogil:
    cdef int64_t size
    cdef uint8_t kind
    if n < 1:
        return -1
    kind = p[0]
    if kind == c"S" or kind == c"F" or kind == c"A" or kind == c"x":
        if n < 5:
            return -1
        size = 5 + <int64_t>load32(p + 1)
    elif kind == c"I" or kind == c"i" or kind == c"f":
        size = 5
    elif kind == c"l" or kind == c"L" or kind == c"d" or kind == c"T":
        size = 9
    elif kind == c"t" or kind == c"b" or kind == c"B":
        size = 2
    elif kind == c"s" or kind == c"u":
        size = 3
    elif kind == c"D":
        size = 6
    elif kind == c"V":
        size = 1
    else:
        return -1
    return size if size <= n else -1


cdef int check_array(const uint8_t* p, uint32_t n, int depth) noexcept nogil:
    cdef uint32_t at = 0
    cdef int64_t size
    if depth >= DEPTH_MAX:
        return -1
    while at < n:
        size = check_value(p + at, n - at, depth)
        if size < 0:
            return -1
        at += <uint32_t>size
    return 0


cdef int64_t check_value(const uint8_t* p, uint32_t n, int depth) noexcept nogil:
    cdef int64_t size = skip_value(p, n)
    if size < 0:
        return -1
    if p[0] == c"F":
        if check_table(p + 5, <uint32_t>(size - 5), depth + 1) < 0:
            return -1
    elif p[0] == c"A":
        if check_array(p + 5, <uint32_t>(size - 5), depth + 1) < 0:
            return -1
    return size


cdef int check_table(const uint8_t* p, uint32_t n, int depth) noexcept nogil:
    cdef uint32_t at = 0
    cdef uint32_t key_end
    cdef int64_t size
    if depth >= DEPTH_MAX:
        return -1
    while at < n:
        # The key must leave room for at least the type octet.
        if n - at < <uint32_t>p[at] + 2:
            return -1
        key_end = at + 1 + p[at]
        size = check_value(p + key_end, n - key_end, depth)
        if size < 0:
            return -1
        at = key_end + <uint32_t>size
    return 0


cdef int64_t find_key(const uint8_t* p, uint32_t n, const char* key, int key_len) noexcept nogil:
    cdef uint32_t at = 0
    cdef uint32_t key_end
    cdef int64_t size
    while at < n:
        if n - at < <uint32_t>p[at] + 2:
            return -1
        key_end = at + 1 + p[at]
        if p[at] == key_len and memcmp(p + at + 1, key, key_len) == 0:
            return key_end
        size = skip_value(p + key_end, n - key_end)
        if size < 0:
            return -1
        at = key_end + <uint32_t>size
    return -1


cdef int require_table(bytes entries) except -1:
    if <uint64_t>PyBytes_GET_SIZE(entries) > 0xFFFFFFFF or check_table(
        <const uint8_t*>PyBytes_AS_STRING(entries), <uint32_t>PyBytes_GET_SIZE(entries), 0
    ) < 0:
        raise WireSyntaxError("malformed field table")
    return 0


cdef int require_value(bytes tagged) except -1:
    if <uint64_t>PyBytes_GET_SIZE(tagged) > 0xFFFFFFFF or check_value(
        <const uint8_t*>PyBytes_AS_STRING(tagged), <uint32_t>PyBytes_GET_SIZE(tagged), 0
    ) != PyBytes_GET_SIZE(tagged):
        raise WireSyntaxError("malformed field value")
    return 0


# --- Checked memory to objects --------------------------------------------------------------------

cdef inline str key_from_memory(const uint8_t* p):
    return PyUnicode_DecodeUTF8(<const char*>p + 1, p[0], "surrogateescape")


cdef object longstr_from_memory(const uint8_t* p, uint32_t n):
    try:
        return PyUnicode_DecodeUTF8(<const char*>p, n, NULL)
    except UnicodeDecodeError:
        return LongBytes(PyBytes_FromStringAndSize(<const char*>p, n))


cdef object decimal_from_memory(const uint8_t* p):
    cdef int64_t unscaled = <int32_t>load32(p + 1)
    sign = 0
    if unscaled < 0:
        sign = 1
        unscaled = -unscaled
    # Built from its parts: arithmetic would round by the caller's decimal context.
    return Decimal((sign, tuple([int(digit) for digit in str(unscaled)]), -<int>p[0]))


cdef object float_from_memory(const uint8_t* p):
    cdef uint32_t bits = load32(p)
    cdef float value
    memcpy(&value, &bits, 4)
    return <double>value


cdef object double_from_memory(const uint8_t* p):
    cdef uint64_t bits = load64(p)
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef list array_from_memory(const uint8_t* p, uint32_t n):
    cdef uint32_t at = 0
    cdef uint32_t size
    cdef list values = []
    while at < n:
        size = <uint32_t>skip_value(p + at, n - at)
        values.append(value_from_memory(p + at, size))
        at += size
    return values


cdef dict table_from_memory(const uint8_t* p, uint32_t n):
    cdef uint32_t at = 0
    cdef uint32_t size
    cdef dict table = {}
    cdef str key
    while at < n:
        key = key_from_memory(p + at)
        at += 1 + p[at]
        size = <uint32_t>skip_value(p + at, n - at)
        if key not in table:
            table[key] = value_from_memory(p + at, size)
        at += size
    return table


cdef object value_from_memory(const uint8_t* p, uint32_t n):
    cdef uint8_t kind = p[0]
    if kind == c"S":
        return longstr_from_memory(p + 5, n - 5)
    if kind == c"I":
        return <int32_t>load32(p + 1)
    if kind == c"l" or kind == c"L":
        return <int64_t>load64(p + 1)
    if kind == c"t":
        return p[1] != 0
    if kind == c"F":
        return table_from_memory(p + 5, n - 5)
    if kind == c"A":
        return array_from_memory(p + 5, n - 5)
    if kind == c"T":
        return Timestamp(load64(p + 1))
    if kind == c"d":
        return double_from_memory(p + 1)
    if kind == c"x":
        return PyBytes_FromStringAndSize(<const char*>p + 5, n - 5)
    if kind == c"b":
        return <int8_t>p[1]
    if kind == c"B":
        return p[1]
    if kind == c"s":
        return <int16_t>load16(p + 1)
    if kind == c"u":
        return load16(p + 1)
    if kind == c"i":
        return load32(p + 1)
    if kind == c"f":
        return float_from_memory(p + 1)
    if kind == c"D":
        return decimal_from_memory(p + 1)
    return None


# --- Objects to bytes -----------------------------------------------------------------------------

cdef int write_int(Writer out, value) except -1:
    cdef int64_t number
    try:
        number = value
    except OverflowError:
        raise WireSyntaxError("an integer does not fit 64 bits") from None
    if -0x80000000 <= number <= 0x7FFFFFFF:
        out.put8(c"I")
        return out.put32(<uint32_t><int32_t>number)
    out.put8(c"l")
    return out.put64(<uint64_t>number)


cdef int write_timestamp(Writer out, value) except -1:
    cdef uint64_t seconds
    try:
        seconds = value
    except OverflowError:
        raise WireSyntaxError("a timestamp does not fit 64 bits unsigned") from None
    out.put8(c"T")
    return out.put64(seconds)


cdef int write_double(Writer out, double value) except -1:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    out.put8(c"d")
    return out.put64(bits)


cdef int write_decimal(Writer out, value) except -1:
    sign, digits, exponent = value.as_tuple()
    # The exponent is a letter for NaN and infinity; a huge one would make a huge number below.
    if not isinstance(exponent, int) or not -DECIMAL_SCALE_MAX <= exponent <= 10:
        raise WireSyntaxError("a decimal cannot be expressed with a scale of 0 to 255")
    unscaled = int("".join(map(str, digits)) or "0") * 10 ** max(exponent, 0)
    if sign:
        unscaled = -unscaled
    if not INT32_MIN <= unscaled <= INT32_MAX:
        raise WireSyntaxError("a decimal has more digits than fit 32 bits")
    out.put8(c"D")
    out.put8(<uint8_t>max(-exponent, 0))
    return out.put32(<uint32_t><int32_t>unscaled)


cdef int write_text(Writer out, str text) except -1:
    cdef bytes raw
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise WireSyntaxError("a long string holds a lone surrogate") from None
    out.put8(c"S")
    return out.put_longstr(raw)


cdef int write_array(Writer out, values, int depth) except -1:
    cdef size_t at
    if depth >= DEPTH_MAX:
        raise WireSyntaxError("field tables are nested too deep")
    out.put8(c"A")
    at = out.open_length()
    for value in values:
        write_value(out, value, depth)
    return out.close_length(at)


cdef int write_value(Writer out, value, int depth) except -1:
    cdef size_t at
    if isinstance(value, str):
        return write_text(out, value)
    if isinstance(value, bool):
        out.put8(c"t")
        return out.put8(1 if value else 0)
    if isinstance(value, Timestamp):
        return write_timestamp(out, value)
    if isinstance(value, int):
        return write_int(out, value)
    if value is None:
        return out.put8(c"V")
    if isinstance(value, dict):
        out.put8(c"F")
        at = out.open_length()
        write_table(out, <dict>value, depth + 1)
        return out.close_length(at)
    if isinstance(value, (list, tuple)):
        return write_array(out, value, depth + 1)
    if isinstance(value, float):
        return write_double(out, value)
    if isinstance(value, bytes):
        out.put8(c"S" if isinstance(value, LongBytes) else c"x")
        return out.put_longstr(<bytes>value)
    if isinstance(value, Decimal):
        return write_decimal(out, value)
    raise TypeError(f"{type(value).__name__} has no field table type")


cdef int write_table(Writer out, dict table, int depth) except -1:
    """The entries of a table, without their length."""
    if depth >= DEPTH_MAX:
        raise WireSyntaxError("field tables are nested too deep")
    for key, value in table.items():
        out.put_shortstr(<str?>key)
        write_value(out, value, depth)
    return 0


# --- For Python -----------------------------------------------------------------------------------

def decode_table(bytes entries not None):
    """The dictionary that a table's entries (without their length) stand for."""
    require_table(entries)
    return table_from_memory(
        <const uint8_t*>PyBytes_AS_STRING(entries), <uint32_t>PyBytes_GET_SIZE(entries)
    )


def encode_table(dict table not None):
    """The entries of a table, without their length."""
    cdef Writer out = Writer()
    write_table(out, table, 0)
    return out.finish()


def decode_value(bytes tagged not None):
    """The object that one value, type octet first, stands for."""
    require_value(tagged)
    return value_from_memory(
        <const uint8_t*>PyBytes_AS_STRING(tagged), <uint32_t>PyBytes_GET_SIZE(tagged)
    )


def encode_value(value):
    """One value, type octet first."""
    cdef Writer out = Writer()
    write_value(out, value, 0)
    return out.finish()


def split_entries(bytes entries not None):
    """Each key with its undecoded value, type octet first, in order: for editing some of them."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(entries)
    cdef uint32_t n
    cdef uint32_t at = 0
    cdef uint32_t size
    cdef dict parts = {}
    cdef str key
    require_table(entries)
    n = <uint32_t>PyBytes_GET_SIZE(entries)
    while at < n:
        key = key_from_memory(p + at)
        at += 1 + p[at]
        size = <uint32_t>skip_value(p + at, n - at)
        if key not in parts:
            parts[key] = PyBytes_FromStringAndSize(<const char*>p + at, size)
        at += size
    return parts


def join_entries(dict parts not None):
    """The entries that `split_entries` would split into `parts`."""
    cdef Writer out = Writer()
    cdef bytes tagged
    for key, value in parts.items():
        tagged = <bytes?>value
        require_value(tagged)
        out.put_shortstr(<str?>key)
        out.put_raw(tagged)
    return out.finish()
