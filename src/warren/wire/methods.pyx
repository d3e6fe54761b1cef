"""Method frames' payloads: class id, method id, arguments.

The layouts come from `spec`; here they are turned into one letter per field once, so that coding a
method compares no strings. Bits come as bool, short strings as str, long strings as bytes, tables
as dict. Anything missing or left over raises `WireSyntaxError`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from warren.model.errors import CommandInvalid, WireSyntaxError
from warren.wire.octets cimport load16, load32, load64
from warren.wire.spec import METHODS
from warren.wire.tables cimport check_table, table_from_memory, write_table
from warren.wire.writer cimport Writer

cdef dict LETTERS = {
    "bit": b"b",
    "octet": b"o",
    "short": b"s",
    "long": b"l",
    "longlong": b"q",
    "timestamp": b"q",
    "shortstr": b"c",
    "longstr": b"S",
    "table": b"F",
}

# Method key -> (Method, one letter per field).
cdef dict LAYOUTS = {
    key: (method, b"".join([LETTERS[kind] for _, kind in method.fields]))
    for key, method in METHODS.items()
}


cdef class ArgumentReader:
    """Reads fields one after the other, never beyond the end."""

    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef uint8_t bits
    cdef int bits_used   # of the current octet of bits; 0: none begun

    cdef const uint8_t* take(self, uint64_t count) except NULL:
        """Step over `count` bytes that are surely there and return where they start."""
        cdef const uint8_t* at = self.p
        if <uint64_t>(self.end - at) < count:
            raise WireSyntaxError("method arguments are truncated")
        self.p = at + count
        return at

    cdef bint take_bit(self) except? True:
        cdef bint value
        if self.bits_used == 0 or self.bits_used == 8:
            self.bits = self.take(1)[0]
            self.bits_used = 0
        value = (self.bits >> self.bits_used) & 1
        self.bits_used += 1
        return value

    cdef object take_field(self, uint8_t letter):
        cdef const uint8_t* at
        cdef uint32_t length
        if letter == c"b":
            return self.take_bit()
        self.bits_used = 0
        if letter == c"c":
            length = self.take(1)[0]
            at = self.take(length)
            return PyUnicode_DecodeUTF8(<const char*>at, length, "surrogateescape")
        if letter == c"s":
            return load16(self.take(2))
        if letter == c"l":
            return load32(self.take(4))
        if letter == c"q":
            return load64(self.take(8))
        if letter == c"o":
            return self.take(1)[0]
        length = load32(self.take(4))
        at = self.take(length)
        if letter == c"S":
            return PyBytes_FromStringAndSize(<const char*>at, length)
        if check_table(at, length, 0) < 0:
            raise WireSyntaxError("malformed field table")
        return table_from_memory(at, length)


cdef tuple method_from_memory(const uint8_t* p, Py_ssize_t n):
    cdef ArgumentReader reader
    cdef tuple layout
    cdef bytes letters
    cdef list args = []
    cdef Py_ssize_t i
    if n < 4:
        raise WireSyntaxError("a method frame is shorter than a method's number")
    layout = <tuple>LAYOUTS.get(load32(p))
    if layout is None:
        raise CommandInvalid(f"unknown method {load16(p)}.{load16(p + 2)}")
    letters = <bytes>layout[1]
    reader = ArgumentReader.__new__(ArgumentReader)
    reader.p = p + 4
    reader.end = p + n
    for i in range(PyBytes_GET_SIZE(letters)):
        args.append(reader.take_field(<uint8_t>PyBytes_AS_STRING(letters)[i]))
    if reader.p != reader.end:
        raise WireSyntaxError("bytes are left over after the method's arguments")
    return layout[0], tuple(args)


def decode_method(bytes payload not None):
    """The method and its arguments, in field order."""
    return method_from_memory(
        <const uint8_t*>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
    )


cdef uint64_t number(value, uint64_t maximum) except? 0:
    cdef uint64_t result
    try:
        result = value
    except OverflowError:
        raise WireSyntaxError(f"{value} does not fit its field") from None
    if result > maximum:
        raise WireSyntaxError(f"{value} does not fit its field")
    return result


cdef int write_field(Writer out, uint8_t letter, value) except -1:
    cdef size_t at
    if letter == c"c":
        return out.put_shortstr(<str?>value)
    if letter == c"s":
        return out.put16(<uint16_t>number(value, 0xFFFF))
    if letter == c"l":
        return out.put32(<uint32_t>number(value, 0xFFFFFFFF))
    if letter == c"q":
        return out.put64(number(value, 0xFFFFFFFFFFFFFFFF))
    if letter == c"o":
        return out.put8(<uint8_t>number(value, 0xFF))
    if letter == c"S":
        if isinstance(value, str):
            value = (<str>value).encode("utf-8", "surrogateescape")
        return out.put_longstr(<bytes?>value)
    at = out.open_length()
    write_table(out, <dict?>value, 0)
    return out.close_length(at)


def encode_method(method not None, *args):
    """The payload of a method frame; `args` in field order."""
    cdef uint32_t class_id = method.class_id
    cdef uint32_t method_id = method.method_id
    cdef uint32_t key = (class_id << 16) | method_id
    cdef bytes letters = <bytes>(<tuple>LAYOUTS[key])[1]
    cdef Writer out = Writer()
    cdef Py_ssize_t i
    cdef uint8_t letter
    cdef uint8_t bits = 0
    cdef int bits_used = 0
    if PyTuple_GET_SIZE(args) != PyBytes_GET_SIZE(letters):
        raise TypeError(f"{method.name} takes {len(letters)} arguments, not {len(args)}")
    out.put32(key)
    for i in range(PyBytes_GET_SIZE(letters)):
        letter = <uint8_t>PyBytes_AS_STRING(letters)[i]
        if letter == c"b" and bits_used < 8:
            bits |= (1 if args[i] else 0) << bits_used
            bits_used += 1
            continue
        if bits_used:
            out.put8(bits)
            bits = 0
            bits_used = 0
        if letter == c"b":
            bits = 1 if args[i] else 0
            bits_used = 1
        else:
            write_field(out, letter, args[i])
    if bits_used:
        out.put8(bits)
    return out.finish()
