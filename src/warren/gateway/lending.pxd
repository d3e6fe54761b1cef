from libc.stdint cimport int64_t, uint32_t, uint64_t

from warren.gateway.slot_map cimport SlotMap
from warren.model.ports cimport ConsumerPort, PeerPort, QueuePort


cdef class Loan:
    cdef readonly QueuePort queue
    cdef readonly uint32_t number      # of the queue
    cdef SlotMap slots                 # what is out -> number of its consumer + 1; 1: a get
    cdef bint touched                  # to be pumped when the turn ends
    cdef uint32_t consumers


cdef class RemoteConsumer(ConsumerPort):
    cdef readonly uint32_t number
    cdef readonly object home          # the end of the link that it came over
    cdef readonly Loan loan
    cdef readonly PeerPort port        # None: its link is lost
    cdef readonly bint auto_ack        # the gateway acknowledges for the client
    cdef readonly bint exclusive
    cdef readonly bint cancelled
    cdef readonly uint32_t prefetch    # 0: no limit
    cdef readonly uint32_t inflight
    cdef int64_t credit_messages
    cdef int64_t credit_bytes
    cdef readonly uint64_t delivered
    cdef readonly str tag
    cdef readonly object channel       # whose it is, in words, for listings
    cdef readonly dict arguments
    cdef bint touched                  # to be put in line when the turn ends
