"""A client's consumer as its gateway knows it: its number at the home, and what is parked for it.

The home sends a little ahead of what the client takes. What comes while the client does not read,
or while a limit that only the gateway knows is used up, waits here in order.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from warren.model.message cimport Message
from warren.model.ports cimport ConsumerPort, QueuePort


@cython.final
cdef class Attachment:
    """See the module's text."""

    def __init__(self, QueuePort queue not None, ConsumerPort consumer not None, uint32_t number):
        self.queue = queue
        self.consumer = consumer
        self.number = number

    def __dealloc__(self):
        self.forget()
        free(self.parked)

    cdef Parked* at(self, size_t i) noexcept:
        return &self.parked[(self.head + i) & (self.capacity - 1)]

    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else 16, i
        cdef Parked* grown = <Parked*>malloc(capacity * sizeof(Parked))
        if grown is NULL:
            raise MemoryError()
        for i in range(self.count):
            grown[i] = self.at(i)[0]
        free(self.parked)
        self.parked = grown
        self.capacity = capacity
        self.head = 0
        return 0

    cdef int park(self, Message message, uint64_t slot, bint redelivered) except -1:
        cdef Parked* entry
        if self.count == self.capacity:
            self.grow()
        entry = self.at(self.count)
        Py_INCREF(message)
        entry.message = <PyObject*>message
        entry.slot = slot
        entry.redelivered = redelivered
        self.count += 1
        return 0

    cdef Message take(self, uint64_t* slot, bint* redelivered):
        """The oldest, which must be there."""
        cdef Parked* entry = self.at(0)
        cdef Message message = <Message>entry.message
        slot[0] = entry.slot
        redelivered[0] = entry.redelivered
        Py_XDECREF(entry.message)
        self.head = (self.head + 1) & (self.capacity - 1)
        self.count -= 1
        return message

    cdef void forget(self) noexcept:
        """What is parked is no longer its consumer's."""
        while self.count:
            Py_XDECREF(self.at(0).message)
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
