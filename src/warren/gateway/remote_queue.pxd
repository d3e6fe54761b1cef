from libc.stdint cimport uint32_t, uint64_t

from warren.gateway.attachment cimport Attachment
from warren.gateway.following cimport FollowingQueue
from warren.gateway.slot_map cimport SlotMap
from warren.gateway.stream cimport Stream
from warren.model.message cimport Message
from warren.model.ports cimport QueuePort


cdef class RemoteQueue(FollowingQueue):
    cdef list attachments
    cdef readonly uint64_t parked        # deliveries that wait for their clients
    cdef bint slowed                     # congested because the home has said that it is there
    cdef readonly uint64_t published
    cdef readonly uint64_t delivered
    cdef SlotMap out                     # our number of a delivery -> the home's slot + 1
    cdef uint64_t last_delivery
    cdef size_t first                    # whose turn it is when parked deliveries go on
    cdef bint pumping
    cdef readonly bint paused            # an operator wants nothing to be delivered to consumers
    # of a queue that moves with its master
    cdef readonly uint64_t generation    # grows when what is out is out no more
    cdef readonly bint adopting          # the home is to take over what the one before had out
    cdef list late                       # (how, slot) of what is settled before it has
    cdef Stream lender                   # that home before, until it has; it may be home again
    cdef uint64_t lent_in                # the session in which it has given out what is out
    cdef uint64_t lent_to                # ... up to this number; the rest is of the home that is
    cdef readonly QueuePort heir         # it is on this node now, and what is out is there

    cdef int forget_out(self) except -1
    cdef int give_back_out(self) except -1
    cdef int give_back_lent(self) except -1
    cdef bint is_lent(self, uint64_t delivery) noexcept
    cdef list take_given_since(self)
    cdef list all_out(self)
    cdef int lose(self, set lost) except -1
    cdef int renew(self) except -1
    cdef uint64_t adopt(self, uint64_t slot) except 0
    cdef int settle_slot(self, int kind, uint64_t slot) except -1
    cdef int settle_one(self, int kind, uint64_t delivery) except -1
    cdef int arrived(self, Attachment attachment, Message message, uint64_t slot,
                     bint redelivered) except -1
    cdef int pass_on(self, Attachment attachment, Message message, uint64_t slot,
                     bint redelivered) except -1
    cdef int give_back_parked(self, Attachment attachment) except -1
    cdef int return_parked(self, Attachment attachment) except -1
    cdef Attachment find(self, consumer)
