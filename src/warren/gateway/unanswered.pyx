"""Publishes that a home has not answered yet: all that is needed to send them again."""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from warren.model.message cimport Message
from warren.model.ports cimport PublisherPort, QueuePort

cdef enum:
    # What an entry and its message take beyond header and body, in bytes.
    ENTRY_BYTES = 256
    # A ring that was once longer than this is given back when everything is answered.
    KEEP_ENTRIES = 4096


cdef int answer(Sent* entry, bint accepted, list waiting) except -1:
    """One that is out of its ring is over: its publisher is told, and noted if it wants the end."""
    publisher = None if entry.publisher is NULL else <PublisherPort>entry.publisher
    forget(entry)
    if publisher is not None:
        if (<PublisherPort>publisher).part_done(entry.tag, accepted and not entry.refused):
            waiting.append(publisher)
    return 0


cdef int forget(Sent* entry) except -1:
    """Gives up what it owns."""
    free(entry.numbers)
    Py_XDECREF(entry.message)
    Py_XDECREF(entry.publisher)
    Py_XDECREF(entry.queue)
    return 0


@cython.final
cdef class Unanswered:
    """A ring in order of sequence numbers, which have no gaps."""

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.count):
            Py_XDECREF(self.at(i).message)
            Py_XDECREF(self.at(i).publisher)
            Py_XDECREF(self.at(i).queue)
            free(self.at(i).numbers)
        free(self.entries)

    cdef Sent* at(self, size_t i) noexcept:
        return &self.entries[(self.head + i) & (self.capacity - 1)]

    cdef Sent* of(self, uint64_t sequence) noexcept:
        """The entry of a sequence number; NULL when there is none."""
        if sequence <= self.answered or sequence - self.answered > self.count:
            return NULL
        return self.at(<size_t>(sequence - self.answered - 1))

    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else 64, i
        cdef Sent* grown = <Sent*>malloc(capacity * sizeof(Sent))
        if grown is NULL:
            raise MemoryError()
        for i in range(self.count):
            grown[i] = self.at(i)[0]
        free(self.entries)
        self.entries = grown
        self.capacity = capacity
        self.head = 0
        return 0

    cdef int push(self, Message message, uint32_t number, PublisherPort publisher,
                  uint64_t tag) except -1:
        cdef Sent* entry
        if self.count == self.capacity:
            self.grow()
        entry = self.at(self.count)
        Py_INCREF(message)
        entry.message = <PyObject*>message
        entry.publisher = NULL
        if publisher is not None:
            Py_INCREF(publisher)
            entry.publisher = <PyObject*>publisher
        entry.queue = NULL
        entry.order = 0
        entry.tag = tag
        entry.numbers = NULL
        entry.number = number
        entry.count = 1
        entry.refused = False
        entry.elsewhere = False
        self.count += 1
        self.size += <uint64_t>message.header_len + message.body_len + ENTRY_BYTES
        return 0

    cdef int follow(self, Following queue, uint64_t order) except -1:
        """The newest is for this queue alone, wherever that goes."""
        cdef Sent* entry = self.at(self.count - 1)
        Py_INCREF(queue)
        entry.queue = <PyObject*>queue
        entry.order = order
        return 0

    cdef int append(self, Sent* entry) except -1:
        """One that was in another ring, with all that it owns."""
        cdef Message message = <Message>entry.message
        if self.count == self.capacity:
            self.grow()
        self.at(self.count)[0] = entry[0]
        # Whatever the home before has said.
        self.at(self.count).refused = self.at(self.count).elsewhere = False
        self.count += 1
        self.size += <uint64_t>message.header_len + message.body_len + ENTRY_BYTES
        return 0

    cdef int strip(self, size_t i, Sent* entry) except -1:
        """Takes one out; its sequence number stays, so that there is no gap."""
        cdef Sent* stripped = self.at(i)
        cdef Message message = <Message>stripped.message
        entry[0] = stripped[0]
        stripped.message = stripped.publisher = stripped.queue = NULL
        stripped.numbers = NULL
        stripped.count = 0
        self.size -= <uint64_t>message.header_len + message.body_len + ENTRY_BYTES
        return 0

    cdef int refuse_plain(self, set numbers, list waiting) except -1:
        """Those for one plain queue that is among the deleted are refused."""
        cdef Sent entry
        cdef size_t i
        for i in range(self.count):
            if (self.at(i).message is not NULL and self.at(i).queue is NULL
                    and self.at(i).count == 1 and self.at(i).number in numbers):
                self.strip(i, &entry)
                answer(&entry, False, waiting)
        return 0

    cdef int hold_following(self, list waiting) except -1:
        """Those for queues that follow a master wait there; the home may be theirs no more."""
        cdef Sent entry
        cdef Following queue
        cdef size_t i
        for i in range(self.count):
            if self.at(i).queue is not NULL:
                self.strip(i, &entry)
                queue = <Following>entry.queue
                queue.sent -= 1
                queue.hold(&entry, waiting)
        return 0

    cdef int take_first(self, Sent* entry) except -1:
        """Takes the oldest out, with its sequence number."""
        cdef Message message
        entry[0] = self.at(0)[0]
        if entry.message is not NULL:
            message = <Message>entry.message
            self.size -= <uint64_t>message.header_len + message.body_len + ENTRY_BYTES
        self.head = (self.head + 1) & (self.capacity - 1)
        self.count -= 1
        self.answered += 1
        if self.count == 0 and self.capacity > KEEP_ENTRIES:
            free(self.entries)
            self.entries = NULL
            self.capacity = self.head = 0
        return 0

    cdef int add_number(self, Sent* entry, uint32_t number) except -1:
        """The same message goes to another queue, too."""
        cdef uint32_t* grown
        # The room doubles whenever the count is a power of two.
        if entry.count & (entry.count - 1) == 0:
            grown = <uint32_t*>realloc(entry.numbers, entry.count * 2 * sizeof(uint32_t))
            if grown is NULL:
                raise MemoryError()
            entry.numbers = grown
            grown[0] = entry.number
        entry.numbers[entry.count] = number
        entry.count += 1
        return 0

    cdef int answer_next(self, bint accepted, list waiting) except -1:
        """The oldest is over, unless its queue is elsewhere: then it waits there."""
        cdef Sent entry
        self.take_first(&entry)
        if entry.queue is not NULL:
            (<Following>entry.queue).sent -= 1
            if entry.elsewhere and not entry.refused:
                return (<Following>entry.queue).hold(&entry, waiting)
        return answer(&entry, accepted, waiting)

    cdef int lose_next(self, list waiting) except -1:
        """The home is gone: the oldest is refused, unless its queue may be elsewhere by now."""
        if self.at(0).queue is not NULL:
            self.at(0).elsewhere = True
        return self.answer_next(False, waiting)


cdef class Following(QueuePort):
    """A queue whose publishes go where it goes: none is refused because its home is another."""

    def __cinit__(self, *_arguments, **_options):
        self.held = Unanswered()

    cdef int hold(self, Sent* entry, list waiting) except -1:
        """One whose home is gone, or is its home no more, waits for the next."""
        if self.over:
            return answer(entry, False, waiting)
        self.held.append(entry)
        if self.held.count == 1:
            self.now_holding()
        return 0

    cdef int refill(self) except -1:
        """The home can be had: what was put aside on the disk follows."""
        return 0

    def now_holding(self):
        """The first publish waits."""
