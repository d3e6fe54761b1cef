from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.model.ports cimport JournalPort, TurnClock

# What happened to messages of a queue; the numbers are those of docs/internals/journal.md.
cdef enum:
    EVENT_PUBLISH = 1
    EVENT_CONFIRM = 2
    EVENT_REFUSE = 3
    EVENT_DELIVER = 4
    EVENT_TAKE_BACK = 5
    EVENT_ACK = 6
    EVENT_REJECT = 7
    EVENT_REQUEUE = 8
    EVENT_EXPIRE = 9
    EVENT_DROP = 10
    EVENT_LIMIT = 11
    EVENT_PURGE = 12
    EVENT_DRAIN = 13
    EVENT_PROMOTE = 14
    EVENT_DEPOSE = 15
    EVENT_SNAPSHOT = 16
    EVENT_HELD = 17
    EVENT_RETURN = 18
    EVENT_SYNC = 19
    EVENT_DELETE = 20
    EVENT_ADOPT = 21
    EVENT_DEAD_LETTER = 22
    EVENT_POSITION = 23
    EVENT_COPY = 24
    EVENT_KINDS = 25

# Of so many queues at a time neighbours of a turn share a row, whatever the order they come in.
cdef enum:
    NEWEST_QUEUES = 256

# Bits of an event's flags.
cdef enum:
    FLAG_REDELIVERED = 1
    FLAG_NO_ACK = 2          # a delivery that nobody acknowledges: with it the message is gone
    FLAG_DEAD_LETTER = 4     # the message went on to a dead-letter exchange
    FLAG_IN_SYNC = 8         # of a mirror: commits wait for it

cdef struct Awaited:
    uint64_t first
    uint64_t mark      # the record that it waits for; 0: not known before the turn is over
    int64_t at_us
    uint32_t count
    uint32_t queue
    uint32_t epoch


cdef class EventBuffer:
    cdef readonly uint32_t capacity
    cdef readonly uint32_t length
    cdef readonly uint64_t noted     # messages that events were noted of
    cdef uint64_t returns            # messages that went back to their publishers
    cdef TurnClock turn
    cdef JournalPort journal         # None: nothing is waited for
    cdef object memory               # what the columns are in
    cdef object on_full
    cdef object name_queue
    cdef uint8_t* head
    cdef int64_t* at_us
    cdef uint64_t* first
    cdef uint64_t* bytes_
    cdef uint32_t* count
    cdef uint32_t* queue
    cdef uint32_t* epoch
    cdef uint8_t* event
    cdef uint8_t* flags
    # By kind of event and the lowest bits of a queue's number the last row, + 1; 0: none.
    cdef uint32_t newest[EVENT_KINDS][NEWEST_QUEUES]
    cdef Awaited* awaited
    cdef size_t awaited_from
    cdef size_t awaited_count
    cdef size_t awaited_room
    cdef uint64_t awaited_over          # runs that were waited for, and are not any more
    # By the lowest bits of a queue's number the last run that waits, counted from the first
    # ever, + 1; 0: none.
    cdef uint64_t waiting[NEWEST_QUEUES]

    cdef int note(self, uint32_t queue, uint64_t epoch, int event, int flags, uint64_t slot,
                  uint64_t count, uint64_t size) except -1
    cdef int add(self, uint32_t queue, uint64_t epoch, int event, int flags, uint64_t slot,
                 uint32_t count, uint64_t size) except -1
    cdef int await_log(self, uint32_t queue, uint64_t epoch, uint64_t slot) except -1
    cdef uint32_t number_of(self, object queue) except 0
