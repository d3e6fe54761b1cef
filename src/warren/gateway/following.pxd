from libc.stdint cimport uint32_t, uint64_t

from warren.gateway.stash cimport Stash
from warren.gateway.stream cimport Stream
from warren.gateway.unanswered cimport Following
from warren.model.message cimport Message


cdef class FollowingQueue(Following):
    cdef readonly Stream gateway
    cdef public uint32_t number
    cdef uint64_t session                # of the gateway, when what is out was given out
    cdef readonly bint following
    cdef readonly bint holding           # nothing may be published to it yet
    cdef readonly bint absent            # it has no master, and none is in sight
    cdef readonly uint64_t order         # the number of the newest publish to it
    cdef Stash stash                     # publishes behind all others; None: there were never any

    cdef int publish_following(self, Message message) except -1
    cdef int put_aside(self, Message message) except -1
    cdef bint is_out_of_reach(self) noexcept
    cdef bint is_backed_up(self) except -1
    cdef int collect(self) except -1
    cdef int refuse_held(self) except -1
    cdef int relieve_if_room(self) except -1
