# The seams of the data plane: what a queue needs of a consumer, what a session needs of a queue.
# Parts never import one another; they meet through these.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.model.message cimport Address, Message

# What became of a publish at one queue.
cdef enum:
    ACCEPTED = 0
    REJECTED = 1   # overflow reject-publish: the publisher is told by a nack

# Why a message left a queue without being consumed.
cdef enum:
    DEAD_REJECTED = 0
    DEAD_EXPIRED = 1
    DEAD_MAXLEN = 2
    DEAD_DELIVERY_LIMIT = 3

# Where no slot can be named.
cdef enum:
    NO_SLOT = -1

# How `JournalPort.stage` is to write a message, and how it comes back: bits as in records. From
# bit 5 on: when it came (queue/marks.pxd).
cdef enum:
    STAGE_OPENED = 1   # it and all before it may be delivered
    STAGE_GONE = 8     # the queue does not keep it; another of its own leaves by it

# A run of slots that follow one another.
cdef struct Run:
    uint64_t first
    uint64_t count


cdef class PublisherPort:
    cdef bint part_done(self, uint64_t tag, bint accepted) except -1
    cdef int parts_over(self) except -1


cdef enum:
    TIME_BUCKETS = 17


# How long something took, by how often: counts up to each of `TIME_BOUNDS_US`, and beyond.
cdef class Times:
    cdef uint64_t counts[TIME_BUCKETS + 1]
    cdef readonly uint64_t total_us
    cdef void note(self, int64_t took_us, uint64_t count) noexcept


ctypedef int64_t (*ReadClock)() noexcept


cdef class TurnClock:
    cdef public int64_t now_ms
    cdef public int64_t now_us     # the same, finer
    cdef public int64_t heard_us   # when a client, here or at another node, was last heard
    cdef ReadClock read_us         # NULL: nobody has given it a clock, the turn's time is all
    cdef readonly Times confirm_times   # from publish to confirm
    # Who publishes at this moment, and under which number: for queues that answer later.
    cdef public PublisherPort publisher
    cdef public uint64_t publish_tag
    cdef public uint64_t parts   # answers that are still to come for that publish
    cdef list ending             # sinks that have gathered something to be sent in this turn
    cdef int end_all(self) except -1
    cdef int64_t present_us(self) noexcept


cdef class ConsumerPort:
    cdef readonly int priority
    cdef readonly bint no_ack
    cdef readonly bint available   # stands in its queue's ring of consumers that can take a message
    cdef bint can_take(self)
    cdef int deliver(self, QueuePort queue, Message message, uint64_t slot,
                     bint redelivered) except -1
    cdef int activity_changed(self, bint active) except -1


cdef class MirrorPort:
    cdef readonly uint64_t commit_index   # the newest operation that all replicas in sync have
    cdef readonly bint acts               # this node is the master and serves
    cdef readonly bint congested          # too much is on its way round the ring
    cdef public bint paused               # nothing is delivered: another is to be the master
    cdef public bint promises             # publishers may be told before the others have it
    cdef uint64_t gateway                 # who has sent the publish that is being taken ...
    cdef uint64_t sequence                # ... and under which number; 0: a client of this node
    cdef int published(self, Message message, uint64_t slot, int64_t wall_ms,
                       uint32_t flags) except -1
    cdef int gone(self, Run* runs, size_t count) except -1
    cdef int said(self, int kind, uint64_t slot) except -1
    cdef int end_turn(self) except -1
    cdef int replay(self, int kind, int how, uint64_t epoch, uint64_t index,
                    const uint8_t* data, size_t n) except -1
    cdef int replay_publish(self, uint64_t epoch, uint64_t index, uint64_t slot, int64_t wall_ms,
                            uint32_t flags, uint64_t gateway, uint64_t sequence, uint64_t place,
                            uint32_t body_len) except -1
    cdef uint64_t relocate(self, uint64_t slot, uint64_t place) except? 0
    cdef bint has_others(self) except -1
    cdef bint asks_for(self, uint64_t slot) except -1


cdef class QueuePort:
    cdef readonly MirrorPort mirror   # None: it has no other replicas, and never had
    cdef readonly bint far         # on other nodes, too: it answers publishes later
    cdef readonly bint congested   # publishers should hold back a moment: consumers are draining it
    cdef public uint32_t queue_id  # its number in the log; 0: none, nothing of it is kept on disk
    cdef public bint durable       # its persistent messages survive a restart
    cdef public uint64_t epoch     # of its view; 0 outside a ring
    cdef public uint64_t operations  # of it in the log: the index of the newest one
    cdef int publish(self, Message message, int64_t now_ms) except -1
    cdef int publish_from(self, Message message, int64_t now_ms, uint64_t gateway,
                          uint64_t sequence) except -1
    cdef int ack(self, uint64_t slot) except -1
    cdef int reject(self, uint64_t slot) except -1
    cdef int requeue(self, uint64_t slot) except -1
    cdef int take_back(self, uint64_t slot) except -1
    cdef int pump(self, int64_t now_ms) except -1
    cdef int pump_some(self, int64_t now_ms, int limit) except -1
    cdef int consumer_ready(self, ConsumerPort consumer) except -1
    # for the journal
    cdef int tell_gone(self) except -1
    cdef int restore(self, uint64_t slot, uint64_t place, uint32_t body_len, int64_t expires_ms,
                     uint32_t flags) except -1
    cdef int restore_gone(self, uint64_t first, uint64_t count) except -1
    cdef int restore_returned(self, uint64_t slot) except -1
    cdef int restore_opened(self, uint64_t slot) except -1
    cdef int restore_cursor(self, bytes operation) except -1
    cdef bint move(self, uint64_t slot, uint64_t from_place, Message message) except -1
    cdef bint holds(self, uint64_t slot, uint64_t place) except -1
    cdef uint64_t relocate(self, uint64_t slot, uint64_t place) except? 0


cdef class JournalPort:
    cdef public uint64_t persisted       # the newest record known to be on the disk
    cdef public uint64_t persisted_end   # the place behind it
    cdef readonly uint64_t commit_mark   # the record of the newest publish
    cdef public uint64_t resident_bytes  # of messages in queues that are in memory
    cdef readonly list confirming        # channels with confirms that wait for the disk
    cdef readonly bint replaying         # queues are being filled from the log: none may act
    cdef readonly bint behind            # the disk does not keep up: publishers should hold back
    cdef readonly bint staged            # queues have staged a message that is not committed yet
    cdef int stage(self, QueuePort queue, uint64_t slot, int64_t expires_ms,
                   int how) except -1
    cdef int commit(self, Message message) except -1
    cdef int note_gone(self, QueuePort queue) except -1
    cdef int gone(self, QueuePort queue, Run* runs, size_t count) except -1
    cdef int returned(self, QueuePort queue, uint64_t slot) except -1
    cdef uint64_t open_up(self, QueuePort queue, uint64_t slot) except 0
    cdef uint64_t cursor(self, QueuePort queue, bytes operation) except 0
    cdef void release(self, uint64_t place, uint32_t size, bint kept) noexcept
    cdef bint retain(self, uint64_t place, uint32_t size) noexcept
    cdef int place_aside(self, QueuePort queue, Message message) except -1
    cdef uint64_t write_index(self, QueuePort queue, const uint8_t* data, size_t n) except 0
    cdef bytes read_index(self, uint64_t place)
    cdef bytes read_ahead(self, uint64_t place, size_t n)
    cdef Message message_in(self, bytes window, uint64_t start, uint64_t place)
    cdef Message fetch(self, uint64_t place)
    cdef int unreadable(self, QueuePort queue, uint64_t slot, uint64_t place,
                        uint64_t count) except -1
    cdef int64_t to_wall(self, int64_t expires_ms) noexcept
    cdef int64_t from_wall(self, int64_t wall_ms) noexcept
    cdef int end_turn(self) except -1
    cdef int rings(self, MirrorPort mirror) except -1


cdef class QueueEffects:
    cdef public bint pending   # something was noted that the engine has to act on
    cdef int dead_letter(self, QueuePort queue, Message message, int reason,
                         int64_t slot) except -1
    cdef int expiry_due(self, QueuePort queue, int64_t at_ms) except -1
    cdef int relieved(self, QueuePort queue) except -1
    cdef bint postpone(self, QueuePort queue) except -1


cdef class LinkPort:
    cdef int want_flush(self) except -1
    cdef int flush_now(self) except -1
    cdef int hold_back(self, QueuePort queue) except -1
    cdef int block_reading(self, bint blocked) except -1
    cdef int go_on(self) except -1


# Frames between nodes, by kind: who takes them at the other end.
cdef enum:
    LINK_KINDS = 0          # the link itself: greeting, heartbeat, credit
    CONTROL_KINDS = 16      # agreement and requests, in Python
    GATEWAY_KINDS = 32      # messages and settlements between a client's node and a queue's
    RING_KINDS = 64         # replication
    # No frame between nodes is longer; longer messages come in pieces.
    PEER_FRAME_BYTES_MAX = 1048576


cdef class FrameSink:
    cdef int take_frame(self, int kind, const uint8_t* payload, size_t n) except -1
    cdef int end_turn(self) except -1
    cdef int send_gathered(self) except -1


cdef class PeerPort:
    cdef readonly str peer
    cdef readonly uint64_t incarnation
    cdef public FrameSink sink
    cdef uint8_t* reserve(self, int kind, size_t n) except NULL
    cdef int commit(self, size_t n) except -1
    cdef size_t pending(self) noexcept


# What has been published to an exchange, and how many queues that went to.
cdef class PublishCounts:
    cdef public uint64_t received
    cdef public uint64_t routed


cdef class Route:
    cdef readonly PublishCounts counts   # of its exchange
    cdef readonly Address address
    cdef readonly tuple queues
    cdef public bint valid
    cdef readonly bint plain
    cdef readonly bint far       # some of its queues are on other nodes
    cdef readonly object exchange


cdef class RouteBook:
    cdef readonly dict routes
