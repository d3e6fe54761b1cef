"""The deliveries of a channel that wait for a settlement, by delivery tag.

A ring in order of tags. Tags are mostly without gaps, so a tag is found at once; where deliveries
without acknowledgement made gaps, by bisection.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef enum:
    # A ring that was once longer than this is given back when nothing is outstanding.
    KEEP_ENTRIES = 4096


@cython.final
cdef class Deliveries:
    """Outstanding deliveries; indexes count from the oldest entry kept."""

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.count):
            Py_XDECREF(self.at(i).queue)
            Py_XDECREF(self.at(i).consumer)
        free(self.entries)

    cdef Delivery* at(self, size_t i) noexcept:
        return &self.entries[(self.head + i) & (self.capacity - 1)]

    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else 16, i
        cdef Delivery* grown = <Delivery*>malloc(capacity * sizeof(Delivery))
        if grown is NULL:
            raise MemoryError()
        for i in range(self.count):
            memcpy(&grown[i], self.at(i), sizeof(Delivery))
        free(self.entries)
        self.entries = grown
        self.capacity = capacity
        self.head = 0
        return 0

    cdef int push(self, uint64_t slot, object queue, object consumer, int64_t at_ms) except -1:
        """Note a delivery under `last_tag`, which the caller has just raised."""
        cdef Delivery* entry
        if self.count == self.capacity:
            if self.live * 2 < self.count:
                self.compact()
            else:
                self.grow()
        entry = self.at(self.count)
        entry.tag = self.last_tag
        entry.slot = slot
        Py_INCREF(queue)
        entry.queue = <PyObject*>queue
        if consumer is None:
            entry.consumer = NULL
        else:
            Py_INCREF(consumer)
            entry.consumer = <PyObject*>consumer
        entry.at_ms = at_ms
        self.count += 1
        self.live += 1
        return 0

    cdef int64_t find(self, uint64_t tag) noexcept:
        """The index of an outstanding tag, or -1."""
        cdef size_t low = 0, high = self.count, middle
        cdef uint64_t first
        if self.count == 0:
            return -1
        first = self.at(0).tag
        if tag < first:
            return -1
        if tag - first < self.count and self.at(tag - first).tag == tag:
            return <int64_t>(tag - first) if self.at(tag - first).queue is not NULL else -1
        while low < high:
            middle = (low + high) // 2
            if self.at(middle).tag < tag:
                low = middle + 1
            else:
                high = middle
        if low < self.count and self.at(low).tag == tag and self.at(low).queue is not NULL:
            return <int64_t>low
        return -1

    cdef int settle(self, size_t i) except -1:
        """The delivery at an index is over. Settled entries at the old end are dropped."""
        cdef Delivery* entry = self.at(i)
        cdef PyObject* queue = entry.queue
        cdef PyObject* consumer = entry.consumer
        entry.queue = NULL
        entry.consumer = NULL
        self.live -= 1
        while self.count and self.at(0).queue is NULL:
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
        Py_XDECREF(queue)
        Py_XDECREF(consumer)
        if self.count == 0 and self.capacity > KEEP_ENTRIES:
            free(self.entries)
            self.entries = NULL
            self.capacity = self.head = 0
        return 0

    cdef void compact(self) noexcept:
        cdef size_t i, kept = 0
        for i in range(self.count):
            if self.at(i).queue is not NULL:
                if kept != i:
                    memcpy(self.at(kept), self.at(i), sizeof(Delivery))
                kept += 1
        self.count = kept

    def rebind(self, before, after, renumber):
        """What is out of one queue is another's: its new slots are `renumber(slot)`."""
        cdef size_t i
        cdef Delivery* entry
        for i in range(self.count):
            entry = self.at(i)
            if entry.queue is <PyObject*>before:
                entry.slot = renumber(entry.slot)
                Py_INCREF(after)
                entry.queue = <PyObject*>after
                Py_XDECREF(<PyObject*>before)

    def held_of(self, queue):
        """(slot, consumer or None) of what is out of a queue."""
        cdef size_t i
        found = []
        for i in range(self.count):
            if self.at(i).queue is <PyObject*>queue:
                consumer = None if self.at(i).consumer is NULL else <object>self.at(i).consumer
                found.append((self.at(i).slot, consumer))
        return found

    def outstanding(self):
        """All outstanding deliveries, oldest first: (tag, queue, consumer or None, time in ms)."""
        cdef size_t i
        found = []
        for i in range(self.count):
            if self.at(i).queue is not NULL:
                consumer = None if self.at(i).consumer is NULL else <object>self.at(i).consumer
                found.append((self.at(i).tag, <object>self.at(i).queue, consumer, self.at(i).at_ms))
        return found

    def __len__(self):
        return self.live
