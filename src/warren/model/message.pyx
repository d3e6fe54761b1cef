"""A message and its address.

A message is what was published: the content header and the body as the client sent them, opaque and
in one piece of memory, plus the few facts about the header that routing and queues need. It is
immutable once published and shared by all queues it was routed to; what differs per queue
(position, redelivered, expiry) lives in the queue.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Malloc, PyMem_Free


@cython.final
@cython.no_gc
cdef class Address:
    """Where a message was published to; shared by all messages published the same way."""

    def __init__(self, bytes exchange not None, bytes routing_key not None,
                 tuple hidden_keys not None=()):
        self.hidden_keys = hidden_keys
        self.exchange = exchange
        self.routing_key = routing_key
        # The two short strings of basic.deliver, encoded once.
        self.wire = bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key

    def __repr__(self):
        return f"Address({self.exchange!r}, {self.routing_key!r})"


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Message:
    """One published message; see the module's text."""

    def __cinit__(self):
        self.data = NULL
        self.ttl_ms = -1
        self.delivery_mode = 1

    def __dealloc__(self):
        if self.data is not NULL:
            PyMem_Free(self.data)

    cdef int allocate(self, uint32_t header_len, uint32_t body_len) except -1:
        self.data = <uint8_t*>PyMem_Malloc(<size_t>header_len + body_len + 1)
        if self.data is NULL:
            raise MemoryError()
        self.header_len = header_len
        self.body_len = body_len
        return 0

    @property
    def header(self):
        """The content header frame's payload."""
        return PyBytes_FromStringAndSize(<char*>self.data, self.header_len)

    @property
    def body(self):
        return PyBytes_FromStringAndSize(<char*>self.data + self.header_len, self.body_len)

    @property
    def headers_table(self):
        """The encoded entries of the headers table, without their length."""
        return PyBytes_FromStringAndSize(<char*>self.data + self.table_at, self.table_len)

    @property
    def exchange(self):
        return self.address.exchange

    @property
    def routing_key(self):
        return self.address.routing_key

    def __repr__(self):
        return f"<Message {self.address!r} {self.body_len} bytes>"


#: The bits of `Message.marks` for Python readers.
MARK_CARBON_COPY = HAS_CARBON_COPY
MARK_REPLY_TO = HAS_REPLY_TO
MARK_USER_ID = HAS_USER_ID
MARK_DELAY = HAS_DELAY
MARK_BAD_EXPIRATION = BAD_EXPIRATION
MARK_HEADERS = HAS_HEADERS
