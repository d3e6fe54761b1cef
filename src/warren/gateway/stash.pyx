"""Publishes for a home that cannot be reached, put aside on the disk: first in, first out.

They are encoded one behind the other into a chunk of memory; a full chunk is given to the file.
They are read again chunk by chunk, so that memory stays within a chunk or two however many there
are. What the disk does not take stays in memory, and the stash is full until it does: publishers
wait.

Nothing of it outlives the process, since nobody was told that it is safe. A record is

    length of what follows u32, publisher u32 (0: none), tag u64, order u64, count of queues u32,
    message as on a link (docs/internals/gateway-frames.md), numbers of its queues u32 each
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from warren.gateway.frames cimport MESSAGE_HEAD_BYTES, NUMBER_BYTES, QUEUES_MAX
from warren.gateway.messages cimport Incoming, whole_address
from warren.gateway.unanswered cimport Sent
from warren.model.message cimport Message
from warren.model.ports cimport PublisherPort
from warren.wire.octets cimport load32, load64, store32, store64

cdef enum:
    # The file is given so much at a time, in bytes: few writes, and little memory.
    CHUNK_BYTES = 262144
    # Publishes for a home that cannot be reached that stay in memory.
    WINDOW_BYTES = 1048576
    # Length, publisher, tag, order, count.
    RECORD_HEAD_BYTES = 28


@cython.final
cdef class StashRoom:
    """What all stashes of a node may take on its disk; `open_file` makes a `StashFile` for one."""

    def __init__(self, open_file, uint64_t limit, size_t window=WINDOW_BYTES,
                 size_t chunk=CHUNK_BYTES):
        self.open_file = open_file
        self.limit = limit
        self.window = window
        self.chunk = chunk


@cython.final
cdef class Stash:
    """See the module's text."""

    def __cinit__(self, *_arguments):
        self.publishers = []
        self.numbers = {}
        self.incoming = Incoming()

    def __init__(self, StashRoom room not None):
        self.room = room

    def __dealloc__(self):
        free(self.tail)

    cdef bint is_full(self) noexcept:
        """Publishers have to wait until there is room."""
        return self.failing or self.room.used >= self.room.limit

    # -- putting aside -----------------------------------------------------------------------------

    cdef bint put(self, Message message, uint32_t number, PublisherPort publisher, uint64_t tag,
                  uint64_t order) except -1:
        """The newest; whether it has an answer of its own to wait for."""
        cdef uint32_t who = self.number_of(publisher)
        cdef bytes address
        cdef size_t address_len, length
        cdef uint8_t* p
        if order == 0 and self.joins(message, number, who, tag):
            return False
        if self.tail_len >= self.room.chunk:
            self.write_tail()
        address = whole_address(message.address)
        address_len = PyBytes_GET_SIZE(address)
        length = (RECORD_HEAD_BYTES + MESSAGE_HEAD_BYTES + address_len + message.header_len
                  + message.body_len + NUMBER_BYTES)
        self.make_room(length)
        p = self.tail + self.tail_len
        store32(p, <uint32_t>(length - 4))
        store32(p + 4, who)
        store64(p + 8, tag)
        store64(p + 16, order)
        store32(p + 24, 1)
        p += RECORD_HEAD_BYTES
        store32(p, <uint32_t>address_len)
        store32(p + 4, message.header_len)
        store32(p + 8, message.body_len)
        p += MESSAGE_HEAD_BYTES
        memcpy(p, PyBytes_AS_STRING(address), address_len)
        p += address_len
        memcpy(p, message.data, <size_t>message.header_len + message.body_len)
        store32(p + message.header_len + message.body_len, number)
        self.newest = self.tail_len
        self.newest_message = message
        self.tail_len += length
        self.count += 1
        return True

    cdef bint joins(self, Message message, uint32_t number, uint32_t publisher,
                    uint64_t tag) except -1:
        """The same publish goes to another queue: one more number at the end of its record."""
        cdef uint8_t* p
        cdef uint32_t count
        if self.newest_message is not message:
            return False
        p = self.tail + self.newest
        count = load32(p + 24)
        if (load32(p + 4) != publisher or load64(p + 8) != tag or load64(p + 16)
                or count == QUEUES_MAX):
            return False
        self.make_room(NUMBER_BYTES)
        p = self.tail + self.newest
        store32(p, load32(p) + NUMBER_BYTES)
        store32(p + 24, count + 1)
        store32(self.tail + self.tail_len, number)
        self.tail_len += NUMBER_BYTES
        return True

    cdef int put_entry(self, Sent* entry) except -1:
        """One that was taken out goes behind all others; what it owns stays its owner's."""
        cdef PublisherPort publisher = (
            None if entry.publisher is NULL else <PublisherPort>entry.publisher)
        cdef uint32_t i
        self.newest_message = None
        self.put(<Message>entry.message, entry.number, publisher, entry.tag, entry.order)
        for i in range(1, entry.count):
            self.put(<Message>entry.message, entry.numbers[i], publisher, entry.tag, entry.order)
        return 0

    cdef uint32_t number_of(self, PublisherPort publisher) except? 0:
        if publisher is None:
            return 0
        number = self.numbers.get(publisher)
        if number is None:
            self.publishers.append(publisher)
            number = len(self.publishers)
            self.numbers[publisher] = number
        return number

    cdef int make_room(self, size_t n) except -1:
        cdef size_t room = self.tail_len + n
        cdef uint8_t* grown
        if room <= self.tail_room:
            return 0
        if room < self.room.chunk:
            room = self.room.chunk
        grown = <uint8_t*>realloc(self.tail, room)
        if grown is NULL:
            raise MemoryError()
        self.tail = grown
        self.tail_room = room
        return 0

    cdef int write_tail(self) except -1:
        """Gives the chunk to the file; if the disk does not take it, it stays where it is."""
        if self.tail_len == 0:
            return 0
        try:
            if self.file is None:
                self.file = self.room.open_file()
            self.file.append(PyBytes_FromStringAndSize(<char*>self.tail, self.tail_len))
        except OSError:
            self.failing = True
            return 0
        self.failing = False
        self.chunks += 1
        self.written += self.tail_len
        self.room.used += self.tail_len
        self.newest_message = None
        self.tail_len = 0
        if self.tail_room > 2 * self.room.chunk:
            free(self.tail)
            self.tail = NULL
            self.tail_room = 0
        return 0

    def try_again(self):
        """The disk may take by now what it has refused."""
        if self.failing:
            self.write_tail()

    # -- taking out --------------------------------------------------------------------------------

    cdef int take(self, Sent* entry) except -1:
        """The oldest, with all that an entry owns; there must be one."""
        cdef const uint8_t* p
        cdef size_t length, used, i
        cdef uint32_t who
        cdef Message message
        if self.window is None:
            self.next_window()
        p = <const uint8_t*>PyBytes_AS_STRING(self.window) + self.window_at
        length = load32(p) + 4
        who = load32(p + 4)
        used = RECORD_HEAD_BYTES + self.incoming.begin(p + RECORD_HEAD_BYTES,
                                                       length - RECORD_HEAD_BYTES)
        message = self.incoming.message
        self.incoming.message = None
        entry.count = load32(p + 24)
        entry.number = load32(p + used)
        entry.numbers = NULL
        if entry.count > 1:
            # The room for them doubles at powers of two: `Unanswered.add_number`.
            i = 2
            while i < entry.count:
                i *= 2
            entry.numbers = <uint32_t*>malloc(i * sizeof(uint32_t))
            if entry.numbers is NULL:
                raise MemoryError()
            for i in range(entry.count):
                entry.numbers[i] = load32(p + used + i * NUMBER_BYTES)
        Py_INCREF(message)
        entry.message = <PyObject*>message
        entry.publisher = NULL
        if who:
            publisher = self.publishers[who - 1]
            Py_INCREF(publisher)
            entry.publisher = <PyObject*>publisher
        entry.queue = NULL
        entry.tag = load64(p + 8)
        entry.order = load64(p + 16)
        entry.refused = entry.elsewhere = False
        self.window_at += length
        if self.window_at == <size_t>PyBytes_GET_SIZE(self.window):
            self.window = None
        self.count -= 1
        if self.count == 0:
            self.clear()
        return 0

    cdef int next_window(self) except -1:
        if self.chunks:
            self.window = self.file.take()
            self.chunks -= 1
        else:
            self.window = PyBytes_FromStringAndSize(<char*>self.tail, self.tail_len)
            self.tail_len = 0
            self.newest_message = None
            # Nothing waits for the disk any more.
            self.failing = False
        self.window_at = 0
        return 0

    cdef int clear(self) except -1:
        """All of it is out: the file goes."""
        self.room.used -= self.written
        self.written = 0
        self.publishers = []
        self.numbers = {}
        if self.file is not None:
            file, self.file = self.file, None
            file.close()
        return 0

    # -- for tests ---------------------------------------------------------------------------------

    def add(self, Message message not None, uint32_t number, PublisherPort publisher=None,
            uint64_t tag=0, uint64_t order=0):
        """As `put`."""
        return self.put(message, number, publisher, tag, order)

    def pop(self):
        """As `take`: (message, numbers, publisher, tag, order)."""
        cdef Sent entry
        cdef uint32_t i
        self.take(&entry)
        numbers = [entry.number]
        if entry.numbers is not NULL:
            numbers = [entry.numbers[i] for i in range(entry.count)]
            free(entry.numbers)
        message = <object>entry.message
        publisher = None if entry.publisher is NULL else <object>entry.publisher
        Py_XDECREF(entry.message)
        Py_XDECREF(entry.publisher)
        return message, numbers, publisher, entry.tag, entry.order

    @property
    def full(self):
        return self.is_full()

    @property
    def memory_bytes(self):
        """What it holds in memory."""
        return self.tail_room + (0 if self.window is None else len(self.window))
