"""Messages and payloads on a link between nodes: in one frame, or in pieces when they are long.

A message is the lengths of its parts, then address, content header and body. What does not fit into
the frame goes on in FRAME_MORE frames, with nothing else of the gateway between them. Memory is
given as bytes arrive, not as they are announced.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from warren.gateway.frames cimport (
    ADDRESS_BYTES_MAX, FRAME_MORE, HEADER_BYTES_MAX, MESSAGE_BYTES_MAX, MESSAGE_HEAD_BYTES,
    NUMBER_BYTES, PAYLOAD_BYTES_MAX,
)
from warren.model.message cimport Address, Message
from warren.model.ports cimport PEER_FRAME_BYTES_MAX, PeerPort
from warren.wire.content cimport scan_content
from warren.wire.octets cimport load16, load32, load64, store32

cdef enum:
    HEADER_BYTES_MIN = 14
    CLASS_BASIC = 60
    # A body is given this much to start with.
    ROOM_BYTES = 131072
    # Addresses kept for publishers that use several in turn.
    KNOWN_ADDRESSES_MAX = 1024


cdef bytes whole_address(Address address):
    """Exchange, routing key and those that no consumer is shown, as short strings."""
    if not address.hidden_keys:
        return address.wire
    return address.wire + b"".join([bytes([len(key)]) + key for key in address.hidden_keys])


cdef int write_message(PeerPort port, int kind, const uint8_t* head, size_t head_len,
                       Message message, bytes address, const uint32_t* numbers,
                       size_t count) except -1:
    """Head, message and queue numbers; the numbers stand behind the last octet of the body."""
    cdef size_t address_len = PyBytes_GET_SIZE(address)
    cdef size_t fixed = head_len + MESSAGE_HEAD_BYTES + address_len
    cdef size_t left = <size_t>message.header_len + message.body_len, n, i, room
    cdef const uint8_t* content = message.data
    cdef uint8_t* p
    cdef bint first = True, last
    while True:
        room = PEER_FRAME_BYTES_MAX - (fixed if first else 0)
        last = left + count * NUMBER_BYTES <= room
        n = left if last else (room if room < left else left - 1)
        p = port.reserve(kind if first else FRAME_MORE,
                         (fixed if first else 0) + n + (count * NUMBER_BYTES if last else 0))
        room = 0
        if first:
            memcpy(p, head, head_len)
            store32(p + head_len, <uint32_t>address_len)
            store32(p + head_len + 4, message.header_len)
            store32(p + head_len + 8, message.body_len)
            memcpy(p + head_len + MESSAGE_HEAD_BYTES, PyBytes_AS_STRING(address), address_len)
            room = fixed
        memcpy(p + room, content, n)
        room += n
        if last:
            for i in range(count):
                store32(p + room, numbers[i])
                room += NUMBER_BYTES
        port.commit(room)
        if last:
            return 0
        content += n
        left -= n
        first = False


cdef int write_payload(PeerPort port, int kind, const uint8_t* head, size_t head_len,
                       bytes payload) except -1:
    """Head and payload of a request or a reply; the last four octets of the head are the length."""
    cdef size_t left = PyBytes_GET_SIZE(payload), n, room = PEER_FRAME_BYTES_MAX - head_len
    cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(payload)
    cdef uint8_t* p
    if left > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a payload of {left} bytes is too long")
    n = left if left < room else room
    p = port.reserve(kind, head_len + n)
    memcpy(p, head, head_len)
    store32(p + head_len - 4, <uint32_t>left)
    memcpy(p + head_len, source, n)
    port.commit(head_len + n)
    left -= n
    while left:
        source += n
        n = left if left < PEER_FRAME_BYTES_MAX else PEER_FRAME_BYTES_MAX
        p = port.reserve(FRAME_MORE, n)
        memcpy(p, source, n)
        port.commit(n)
        left -= n
    return 0


@cython.final
cdef class Incoming:
    """Messages as they come in on one link, one after the other."""

    def __cinit__(self):
        self.whole = True
        self.known = {}

    cdef size_t begin(self, const uint8_t* p, size_t n) except 0:
        """The first piece of a message; how many bytes it took."""
        cdef size_t address_len, header_len, body_len, used
        cdef Message message
        if n < MESSAGE_HEAD_BYTES:
            raise ValueError("a message is cut short")
        address_len = load32(p)
        header_len = load32(p + 4)
        body_len = load32(p + 8)
        if address_len > ADDRESS_BYTES_MAX or address_len > n - MESSAGE_HEAD_BYTES:
            raise ValueError("a message's address is longer than its frame")
        if header_len < HEADER_BYTES_MIN or header_len > HEADER_BYTES_MAX:
            raise ValueError(f"a content header of {header_len} bytes")
        if body_len > MESSAGE_BYTES_MAX:
            raise ValueError(f"a message of {body_len} bytes")
        message = Message.__new__(Message)
        message.address = self.find_address(p + MESSAGE_HEAD_BYTES, address_len)
        used = MESSAGE_HEAD_BYTES + address_len
        self.size = header_len + body_len
        self.room = self.size if self.size < ROOM_BYTES else ROOM_BYTES
        message.allocate(0, <uint32_t>self.room)
        message.header_len = <uint32_t>header_len
        message.body_len = <uint32_t>body_len
        self.message = message
        self.filled = 0
        self.whole = False
        if used < n:
            used += self.go_on(p + used, n - used)
        return used

    cdef size_t go_on(self, const uint8_t* p, size_t n) except 0:
        """Another piece; how many bytes of it belong to the message."""
        cdef size_t wanted = self.size - self.filled
        if n < wanted:
            wanted = n
        if wanted == 0:
            raise ValueError("an empty piece of a message")
        if self.filled + wanted > self.room:
            self.grow(self.filled + wanted)
        memcpy(self.message.data + self.filled, p, wanted)
        self.filled += wanted
        if self.filled == self.size:
            self.check()
            self.whole = True
        return wanted

    cdef int grow(self, size_t wanted) except -1:
        cdef size_t room = self.room * 2 if self.room * 2 > wanted else wanted
        cdef uint8_t* grown
        if room > self.size:
            room = self.size
        grown = <uint8_t*>PyMem_Realloc(self.message.data, room + 1)
        if grown is NULL:
            raise MemoryError()
        self.message.data = grown
        self.room = room
        return 0

    cdef int check(self) except -1:
        cdef Message message = self.message
        if load16(message.data) != CLASS_BASIC or load64(message.data + 4) != message.body_len:
            raise ValueError("a content header that does not belong to its body")
        if scan_content(message) != 0:
            raise ValueError("malformed content header")
        return 0

    cdef Address find_address(self, const uint8_t* p, size_t n):
        """The address in those bytes; publishers repeat themselves, so most are known."""
        cdef bytes octets
        if (self.last_octets is not None and <size_t>PyBytes_GET_SIZE(self.last_octets) == n
                and memcmp(PyBytes_AS_STRING(self.last_octets), p, n) == 0):
            return self.last
        octets = PyBytes_FromStringAndSize(<char*>p, n)
        address = self.known.get(octets)
        if address is None:
            address = decode_address(octets)
            if len(self.known) >= KNOWN_ADDRESSES_MAX:
                self.known.clear()
            self.known[octets] = address
        self.last = address
        self.last_octets = octets
        return address


cdef Address decode_address(bytes octets):
    cdef list parts = []
    cdef Py_ssize_t at = 0, n = PyBytes_GET_SIZE(octets), length
    while at < n:
        length = <uint8_t>PyBytes_AS_STRING(octets)[at]
        if length > n - at - 1:
            raise ValueError("a short string in an address is cut short")
        parts.append(octets[at + 1:at + 1 + length])
        at += 1 + length
    if len(parts) < 2:
        raise ValueError("an address has an exchange and a routing key")
    return Address(parts[0], parts[1], tuple(parts[2:]))


@cython.final
cdef class IncomingPayload:
    """The payload of a request or a reply as it comes in; `size` is 0 between them."""

    cdef int begin(self, size_t size, const uint8_t* p, size_t n) except -1:
        if size > PAYLOAD_BYTES_MAX or n > size:
            raise ValueError("a payload has a wrong length")
        self.size = size
        self.filled = n
        self.pieces = [PyBytes_FromStringAndSize(<char*>p, n)]
        return 0

    cdef int go_on(self, const uint8_t* p, size_t n) except -1:
        if n == 0 or n > self.size - self.filled:
            raise ValueError("a piece of a payload has a wrong length")
        self.pieces.append(PyBytes_FromStringAndSize(<char*>p, n))
        self.filled += n
        return 0

    cdef bytes take(self):
        """The payload if it is whole, else None."""
        cdef bytes payload
        if self.filled < self.size:
            return None
        payload = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces = None
        self.size = self.filled = 0
        return payload


def encode_message(Message message not None):
    """A message as bytes, for a reply that carries one."""
    address = whole_address(message.address)
    lengths = b"".join([n.to_bytes(4, "big")
                        for n in (len(address), message.header_len, message.body_len)])
    return b"".join([lengths, address, message.header, message.body])


def decode_message(bytes data not None):
    """The message in bytes made by `encode_message`. Raises ValueError."""
    cdef Incoming incoming = Incoming()
    cdef size_t n = PyBytes_GET_SIZE(data)
    if incoming.begin(<const uint8_t*>PyBytes_AS_STRING(data), n) != n or not incoming.whole:
        raise ValueError("a message has a wrong length")
    return incoming.message
