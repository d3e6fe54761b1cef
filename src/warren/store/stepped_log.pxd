from warren.store.appender cimport Appender


cdef class SteppedLog(Appender):
    cdef readonly object disk
    cdef str segment_name
    cdef size_t segment_used
    cdef bint ended
