from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.gateway.frames cimport SETTLE_RECORD_BYTES
from warren.gateway.numbered cimport Numbered
from warren.gateway.stash cimport Stash, StashRoom
from warren.gateway.unanswered cimport Following, Sent, Unanswered
from warren.model.message cimport Message
from warren.model.ports cimport FrameSink, PeerPort, QueueEffects, QueuePort, TurnClock

cdef enum:
    # A link with more than this to send, in bytes, makes publishers hold back ...
    PENDING_BYTES_MAX = 4194304
    # ... until it is down to this.
    PENDING_BYTES_RELIEVED = 1048576
    # The same for publishes that the home has not answered.
    UNANSWERED_BYTES_MAX = 16777216
    UNANSWERED_BYTES_RELIEVED = 4194304
    # What was put aside on the disk is read again up to so much that is unanswered.
    REFILL_BYTES = 2097152
    # Settlements gathered before they go out, in bytes.
    SETTLE_BYTES_MAX = 34000       # 2000 records


cdef class Stream(FrameSink):
    cdef TurnClock turn
    cdef QueueEffects effects
    cdef readonly PeerPort port          # None: there is no link
    cdef readonly uint64_t session       # grows with every link
    cdef readonly bint gone              # the home is down: nothing is taken for it
    cdef Unanswered unanswered
    cdef uint64_t written                # the newest publish that was given to the link
    cdef Numbered consumers              # what is attached at the home, by number
    cdef dict followers                  # queues that may move and are at this home, by number
    cdef list congested_queues
    cdef dict slowed                     # numbers of queues that are congested at the home
    # for homes that are waited for, as long as it takes
    cdef readonly StashRoom room         # None: what is for a home that is down is refused
    cdef Stash stash                     # publishes to plain queues, behind all others
    cdef dict stashing                   # followers with a stash of their own, by number
    cdef set deleted                     # numbers of queues that what waits may be for
    cdef uint64_t handed                 # the newest publish that any link was given
    cdef bint noted                      # it stands in the list of those with something to send
    # settlements that have gathered; the newest run is not among them yet
    cdef uint8_t settled[SETTLE_BYTES_MAX]
    cdef size_t settled_len
    cdef int run_kind
    cdef uint32_t run_queue
    cdef uint64_t run_first
    cdef uint32_t run_count

    cdef int note(self) except -1
    cdef int publish(self, QueuePort queue, uint32_t number, Message message) except -1
    cdef int publish_following(self, Following queue, uint32_t number, uint64_t order,
                               Message message) except -1
    cdef int put_aside(self, QueuePort queue, uint32_t number, Message message) except -1
    cdef int refill(self) except -1
    cdef int take_over(self, Following queue) except -1
    cdef bint fits(self, Message message) except -1
    cdef int write_publishes(self) except -1
    cdef int write_publish(self, uint64_t sequence, Sent* entry) except -1
    cdef int settle(self, int kind, uint32_t queue, uint64_t slot) except -1
    cdef int end_run(self) except -1
    cdef int write_gathered(self) except -1
    cdef int write_settlements(self) except -1
    cdef int write_credit(self, uint32_t consumer, uint32_t messages, uint32_t size) except -1
    cdef bint puts_aside(self) noexcept
    cdef bint is_congested(self) noexcept
    cdef bint is_relieved(self) except -1
    cdef int relieve(self) except -1
