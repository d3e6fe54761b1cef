from warren.engine.replica_log cimport ReplicaLog
from warren.engine.ring_operations cimport Operation


cdef class RestoredLog(ReplicaLog):
    cdef int note_replayed(self, Operation operation) except -1
