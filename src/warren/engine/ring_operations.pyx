"""Operations of a mirrored queue as bytes: what replicas send each other, and what they apply.

An operation is its kind (1), the length of what follows (4) and that. Little-endian, as in the log.
A publish: slot (8), expiry by the wall clock in ms (8), flags (4), gateway (8), number (8), length
of the address (4), length of the header (4), 4 unused, then address, header and body. Gone: runs of
slots, first (8) and count (8). Requeue, watermark: a slot (8). The others are in the `.pxd`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from warren.model.message cimport Address, Message
from warren.wire.content cimport scan_content
from warren.wire.output cimport Output


@cython.final
@cython.freelist(1024)
cdef class Operation:
    """One operation that waits to be applied."""


cdef int write_operation(Output out, int kind, const uint8_t* data, size_t n) except -1:
    cdef uint8_t* p = out.reserve(OP_HEAD_BYTES + n)
    cdef uint32_t length = <uint32_t>n
    p[0] = <uint8_t>kind
    memcpy(p + 1, &length, 4)
    memcpy(p + OP_HEAD_BYTES, data, n)
    out.end += OP_HEAD_BYTES + n
    return 0


cdef int write_publish(Output out, Message message, uint64_t slot, int64_t wall_ms, uint32_t flags,
                       uint64_t gateway, uint64_t sequence) except -1:
    cdef bytes address = message.address.wire
    cdef size_t content = <size_t>message.header_len + message.body_len
    cdef uint32_t address_len, length
    cdef uint8_t* p
    for key in message.address.hidden_keys:
        address += bytes([len(key)]) + key
    address_len = <uint32_t>PyBytes_GET_SIZE(address)
    length = PUBLISH_HEAD_BYTES + address_len + <uint32_t>content
    p = out.reserve(OP_HEAD_BYTES + length)
    p[0] = OP_PUBLISH
    memcpy(p + 1, &length, 4)
    p += OP_HEAD_BYTES
    memset(p, 0, PUBLISH_HEAD_BYTES)
    memcpy(p, &slot, 8)
    memcpy(p + 8, &wall_ms, 8)
    memcpy(p + 16, &flags, 4)
    memcpy(p + 20, &gateway, 8)
    memcpy(p + 28, &sequence, 8)
    memcpy(p + 36, &address_len, 4)
    memcpy(p + 40, &message.header_len, 4)
    p += PUBLISH_HEAD_BYTES
    memcpy(p, PyBytes_AS_STRING(address), address_len)
    memcpy(p + address_len, message.data, content)
    out.end += OP_HEAD_BYTES + length
    return 0


cdef bytes bytes_of(Output out):
    """What was written."""
    return PyBytes_FromStringAndSize(<const char*>out.buffer, <Py_ssize_t>out.end)


cdef list slots_of(bytes data):
    """The slots that an operation lists."""
    return [int.from_bytes(data[at:at + 8], "little") for at in range(0, len(data), 8)]


cdef dict addresses = {}


cdef Address address_of(bytes wire):
    """Addresses repeat: one object for all messages that have it."""
    cdef list parts = []
    cdef Py_ssize_t at = 0, n = PyBytes_GET_SIZE(wire), length
    known = addresses.get(wire)
    if known is not None:
        return <Address>known
    while at < n:
        length = <uint8_t>PyBytes_AS_STRING(wire)[at]
        if at + 1 + length > n:
            raise ValueError("an address is cut short")
        parts.append(wire[at + 1:at + 1 + length])
        at += 1 + length
    if len(parts) < 2:
        raise ValueError("an address without a routing key")
    if len(addresses) >= 4096:
        addresses.clear()
    address = addresses[wire] = Address(parts[0], parts[1], tuple(parts[2:]))
    return <Address>address


cdef Operation parse_publish(const uint8_t* p, size_t n, uint64_t index, uint64_t epoch):
    cdef Operation operation = Operation.__new__(Operation)
    cdef Message message = Message.__new__(Message)
    cdef uint32_t address_len, header_len
    cdef size_t content
    if n < PUBLISH_HEAD_BYTES:
        raise ValueError("a publish is cut short")
    memcpy(&operation.slot, p, 8)
    memcpy(&operation.wall_ms, p + 8, 8)
    memcpy(&operation.flags, p + 16, 4)
    memcpy(&operation.gateway, p + 20, 8)
    memcpy(&operation.sequence, p + 28, 8)
    memcpy(&address_len, p + 36, 4)
    memcpy(&header_len, p + 40, 4)
    p += PUBLISH_HEAD_BYTES
    n -= PUBLISH_HEAD_BYTES
    if <uint64_t>address_len + header_len > n:
        raise ValueError("a publish is shorter than its parts")
    content = n - address_len
    message.address = address_of(PyBytes_FromStringAndSize(<const char*>p, address_len))
    message.allocate(header_len, <uint32_t>(content - header_len))
    memcpy(message.data, p + address_len, content)
    if scan_content(message) != 0:
        raise ValueError("a content header does not parse")
    operation.kind = OP_PUBLISH
    operation.index = index
    operation.epoch = epoch
    operation.message = message
    operation.body_len = message.body_len
    return operation


cdef list parse_operations(bytes data, uint64_t first, uint64_t epoch):
    """All operations of a batch. ValueError for what is none."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef size_t at = 0, n = PyBytes_GET_SIZE(data)
    cdef uint32_t length
    cdef list found = []
    cdef uint64_t index = first
    while at < n:
        if n - at < OP_HEAD_BYTES:
            raise ValueError("an operation is cut short")
        memcpy(&length, p + at + 1, 4)
        if n - at - OP_HEAD_BYTES < length:
            raise ValueError("an operation is longer than its batch")
        if p[at] == OP_PUBLISH:
            found.append(parse_publish(p + at + OP_HEAD_BYTES, length, index, epoch))
        else:
            found.append(make_operation(
                index, epoch, p[at],
                PyBytes_FromStringAndSize(<const char*>p + at + OP_HEAD_BYTES, length)))
        at += OP_HEAD_BYTES + length
        index += 1
    return found


cdef Operation make_operation(uint64_t index, uint64_t epoch, int kind, bytes data):
    cdef Operation operation = Operation.__new__(Operation)
    if kind == OP_GONE and (len(data) == 0 or len(data) % 16):
        raise ValueError("runs of slots have a wrong length")
    if (kind == OP_REQUEUE or kind == OP_WATERMARK) and len(data) != 8:
        raise ValueError("a slot has a wrong length")
    operation.index = index
    operation.epoch = epoch
    operation.kind = kind
    operation.data = data
    return operation


cdef Operation make_publish(uint64_t index, uint64_t epoch, uint64_t slot, int64_t wall_ms,
                            uint32_t flags, uint64_t gateway, uint64_t sequence, uint64_t place,
                            uint32_t body_len):
    cdef Operation operation = Operation.__new__(Operation)
    operation.index = index
    operation.epoch = epoch
    operation.kind = OP_PUBLISH
    operation.slot = slot
    operation.wall_ms = wall_ms
    operation.flags = flags
    operation.gateway = gateway
    operation.sequence = sequence
    operation.place = place
    operation.body_len = body_len
    return operation


def split_batch(bytes data not None, size_t skip, size_t bytes_max):
    """Where the operations behind the first `skip` stand, about so many bytes: (start, end, count).
    """
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef size_t at = 0, n = PyBytes_GET_SIZE(data), start, count = 0
    cdef uint32_t length
    while skip and at < n:
        memcpy(&length, p + at + 1, 4)
        at += OP_HEAD_BYTES + length
        skip -= 1
    start = at
    while at < n and (count == 0 or at - start < bytes_max):
        memcpy(&length, p + at + 1, 4)
        at += OP_HEAD_BYTES + length
        count += 1
    return start, at, count
