from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport ConsumerPort, QueuePort

cdef struct Parked:
    PyObject* message      # owned
    uint64_t slot          # the home's
    bint redelivered


cdef class Attachment:
    cdef readonly ConsumerPort consumer
    cdef readonly QueuePort queue
    cdef readonly uint32_t number
    cdef uint32_t owed_messages    # credit that is to be given back
    cdef uint32_t owed_bytes
    cdef Parked* parked            # a ring: deliveries that the client cannot take yet
    cdef size_t capacity
    cdef size_t head
    cdef readonly size_t count

    cdef Parked* at(self, size_t i) noexcept
    cdef int park(self, Message message, uint64_t slot, bint redelivered) except -1
    cdef Message take(self, uint64_t* slot, bint* redelivered)
    cdef int grow(self) except -1
    cdef void forget(self) noexcept
