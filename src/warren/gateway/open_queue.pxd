from warren.model.ports cimport QueuePort


cdef class OpenQueue(QueuePort):
    pass
