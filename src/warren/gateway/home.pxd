from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.gateway.congestion cimport Congestion
from warren.gateway.lending cimport Loan, RemoteConsumer
from warren.gateway.messages cimport Incoming, IncomingPayload
from warren.gateway.numbered cimport Numbered
from warren.gateway.record cimport GatewayRecord
from warren.gateway.sequences cimport Sequences
from warren.model.message cimport Message
from warren.model.ports cimport FrameSink, JournalPort, PeerPort, QueuePort, TurnClock

cdef enum:
    KNOWN_QUEUES = 64
    # A run of settlements that may be of what is out no more has at most so many.
    STALE_RUN_MAX = 16777216


# A queue found before in the same turn.
cdef struct KnownQueue:
    uint32_t number
    PyObject* queue      # borrowed: the table that it is from does not change in between


cdef class HomeEnd(FrameSink):
    cdef readonly PeerPort port             # None: the link is lost
    cdef readonly GatewayRecord record
    cdef Congestion congestion
    cdef TurnClock turn
    cdef JournalPort journal                # None: nothing is written to disk
    cdef readonly dict queues               # the owner's: number -> queue of this node
    cdef KnownQueue known[KNOWN_QUEUES]
    cdef Numbered consumers
    cdef dict loans                         # by number of the queue
    cdef dict dropped                       # queue -> how often that is unheard of
    cdef Loan last_loan
    cdef RemoteConsumer last_consumer
    cdef list touched_consumers
    cdef list touched_loans
    cdef bint started
    cdef bint waiting                       # it stands in the list of those who wait for the log
    cdef uint64_t told                      # what this link has been told
    cdef public object on_request           # called with (home, id, verb, payload)
    cdef public object on_consumer_gone     # called with each consumer that went with the link
    # what comes in pieces: a publish or a request
    cdef Incoming incoming
    cdef IncomingPayload payload
    cdef int partial                        # kind of the frame that goes on; 0: none
    cdef uint64_t sequence
    cdef uint64_t order                     # of a publish to one queue that may move
    cdef uint32_t attempt                   # 0: a plain publish
    cdef uint64_t gateway_id
    cdef uint64_t request_id
    cdef int verb

    cdef QueuePort find_queue(self, uint32_t number)
    cdef void forget_known(self) noexcept
    cdef int on_start(self, const uint8_t* p, size_t n) except -1
    cdef int on_publish(self, const uint8_t* p, size_t n) except -1
    cdef int on_publish_to(self, const uint8_t* p, size_t n) except -1
    cdef int on_skip(self, const uint8_t* p, size_t n) except -1
    cdef int check_sequence(self) except -1
    cdef int take_publish_to(self, Message message, uint32_t number) except -1
    cdef int publish_far(self, QueuePort queue, Message message) except -1
    cdef int write_sequences(self, int kind, Sequences sequences) except -1
    cdef int publish_whole(self, const uint8_t* numbers, size_t n) except -1
    cdef int take_publish(self, Message message, const uint8_t* numbers, size_t n) except -1
    cdef int on_begin_anew(self, const uint8_t* p, size_t n) except -1
    cdef int on_settle(self, const uint8_t* p, size_t n) except -1
    cdef int settle_run(self, int kind, Loan loan, uint64_t first, uint32_t count) except -1
    cdef int settled(self, uint32_t number) except -1
    cdef int on_credit(self, const uint8_t* p, size_t n) except -1
    cdef int on_ask(self, const uint8_t* p, size_t n) except -1
    cdef int request_whole(self) except -1
    cdef int on_more(self, const uint8_t* p, size_t n) except -1
    cdef int touch_loan(self, Loan loan) except -1
    cdef int touch_consumer(self, RemoteConsumer consumer) except -1
    cdef int run_touched(self) except -1
    cdef int answer(self) except -1
    cdef Loan loan_of(self, uint32_t number)
    cdef int forget_if_over(self, Loan loan) except -1
