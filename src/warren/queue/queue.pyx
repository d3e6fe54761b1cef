"""A queue: messages in order, and the consumers that take them.

Theory of operation. A publish either goes straight to a consumer whose turn it is (only when
nothing is waiting, so order holds) or becomes a ready slot. `pump` matches ready slots with
available consumers until one side runs out. A consumer stands in the ring only while it can take a
message; the session puts it back by `consumer_ready`. What must happen outside (a dead letter)
is told to `QueueEffects` and done when the operation is over. Where messages are: see `Backlog`;
what becomes of the dead ones: `Graves`.
"""

from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport (
    ACCEPTED, DEAD_DELIVERY_LIMIT, DEAD_EXPIRED, DEAD_MAXLEN, DEAD_REJECTED, NO_SLOT, REJECTED,
    ConsumerPort, QueueEffects,
)
from warren.queue.backlog cimport LEVEL_SHIFT, position_of
from warren.queue.graves cimport Graves
from warren.queue.kept cimport TIME_MARK_MS, KeptBacklog, nothing_kept
from warren.queue.marks cimport MARK_EVERY_MS
from warren.queue.ring cimport ConsumerRing
from warren.queue.slots cimport LOGGED, REDELIVERED, Slot, SlotLog, message_of
from warren.telemetry.event_buffer cimport (
    EVENT_ACK, EVENT_DELIVER, EVENT_PUBLISH, EVENT_PURGE, EVENT_REFUSE, EVENT_REQUEUE,
    EVENT_TAKE_BACK, FLAG_NO_ACK, FLAG_REDELIVERED,
)

cdef enum:
    # A backlog this long, with consumers at work on it, makes publishers hold back a moment ...
    CONGESTED_MESSAGES = 16384
    # ... until it has shrunk to this.
    RELIEVED_MESSAGES = 4096
    # Consumers that took fewer than this in a whole pause are slow ...
    BRISK_DELIVERIES = 256
    # ... and publishers are then left alone this long: a queue is also a place to keep messages.
    SLOW_CONSUMERS_MS = 1000
    # A publish to a queue with consumers is open to them at once while fewer than this wait.
    LIVE_MESSAGES = 1024
    # More returns than this are not counted.
    RETURNS_MAX = 65535
    # How long a message that must be delivered at once may take to reach all replicas before.
    REPLICAS_MS = 200
    # Deliveries of one queue in one turn; some 5 ms of work.
    PUMP_DELIVERIES = 16384

OVERFLOW_MODES = {"drop-head": DROP_HEAD, "reject-publish": REJECT_PUBLISH,
                  "reject-publish-dlx": REJECT_PUBLISH_DLX}


cdef class Queue(Graves):
    """See the module's text. The engine's queue adds what is not about messages."""

    def __init__(self, str name not None, QueueEffects effects not None, int max_priority=-1,
                 bint single_active=False):
        KeptBacklog.__init__(self, name, max_priority)
        self.effects = effects
        self.ring = ConsumerRing()
        self.consumers = []
        self.single_active = single_active
        self.ttl_ms = self.max_length = self.max_bytes = self.delivery_limit = -1

    def configure(self, int64_t ttl_ms=-1, int64_t max_length=-1, int64_t max_bytes=-1,
                  str overflow="drop-head", int64_t delivery_limit=-1, bint dead_letters=False,
                  int64_t now_ms=0):
        """Take over limits from arguments and policies; a lower limit acts at once."""
        self.ttl_ms = ttl_ms
        self.max_length = max_length
        self.max_bytes = max_bytes
        self.overflow = OVERFLOW_MODES[overflow]
        self.delivery_limit = delivery_limit
        self.dead_letters = dead_letters
        self.crowded = False
        self.limited = max_length >= 0 or max_bytes >= 0
        if self.journal is not None and self.journal.replaying:
            return
        if self.mirror is not None and not self.mirror.acts:
            return
        self.enforce_limits()
        if self.may_expire:
            self.drop_expired(now_ms)

    # -- limits and expiry -------------------------------------------------------------------------

    cdef bint would_overflow(self, Message message) noexcept:
        if self.max_length >= 0 and <int64_t>self.ready + 1 > self.max_length:
            return True
        return (self.max_bytes >= 0
                and <int64_t>(self.sum_bytes(True) + message.body_len) > self.max_bytes)

    cdef bint is_over(self) noexcept:
        if self.max_length >= 0 and <int64_t>self.ready > self.max_length:
            return True
        return self.max_bytes >= 0 and <int64_t>self.sum_bytes(True) > self.max_bytes

    cdef int enforce_limits(self) except -1:
        if self.limited and self.overflow == DROP_HEAD:
            while self.ready and self.is_over() and self.has_grave():
                self.drop_head(DEAD_MAXLEN)
        return 0

    cdef bint drop_expired(self, int64_t now_ms) except -1:
        """Messages expire at the head only; arms the timer for the one that is there next.

        True when there is one that has expired and cannot go yet: nothing may be delivered then.
        """
        cdef uint64_t slot = 0
        cdef Slot* entry
        while True:
            entry = self.front(&slot)
            if entry is NULL or entry.expires_ms == 0:
                return False
            if entry.expires_ms > now_ms:
                self.arm(entry.expires_ms)
                return False
            if not self.has_grave():
                return True
            self.drop_head(DEAD_EXPIRED)

    cdef int arm_head(self) except -1:
        """To be called when another message may have come to the head: it may have to expire."""
        cdef uint64_t slot = 0
        cdef Slot* entry
        if self.crowded:
            # Whoever makes room has it looked at.
            return 0
        entry = self.front(&slot)
        return self.arm(entry.expires_ms) if entry is not NULL and entry.expires_ms else 0

    cdef int arm(self, int64_t at_ms) except -1:
        """Asks for `expire` at a time, unless it has been asked for an earlier one."""
        if self.armed_ms == 0 or at_ms < self.armed_ms:
            self.armed_ms = at_ms
            self.effects.expiry_due(self, at_ms)
        return 0

    def expire(self, int64_t now_ms):
        """The timer rang: drop what has expired at the head."""
        self.armed_ms = 0
        if self.mirror is not None and not self.mirror.acts:
            return
        self.drop_expired(now_ms)
        if self.congested:
            self.check_relief()

    def go_on_burying(self, int64_t now_ms):
        """Burials have ended: what is dead and had to wait may go, then what was behind it."""
        if self.crowded and not self.retired:
            self.crowded = False
            self.enforce_limits()
            if self.may_expire:
                self.drop_expired(now_ms)
            self.pump(now_ms)

    # -- publishing --------------------------------------------------------------------------------

    cdef int publish(self, Message message, int64_t now_ms) except -1:
        cdef int64_t expires_ms = 0, ttl_ms = self.ttl_ms
        if self.retired:
            # Another object is the queue: nothing may be taken here and believed safe.
            return REJECTED
        if self.limited and self.overflow != DROP_HEAD and self.would_overflow(message):
            if self.overflow == REJECT_PUBLISH_DLX and self.dead_letters:
                self.effects.dead_letter(self, message, DEAD_MAXLEN, NO_SLOT)
            if self.events is not None:
                self.note_event(EVENT_REFUSE, 0, self.log.next_position, 1, message.body_len)
            return REJECTED
        self.published += 1
        if message.ttl_ms >= 0 and (ttl_ms < 0 or message.ttl_ms < ttl_ms):
            ttl_ms = message.ttl_ms
        if ttl_ms >= 0:
            expires_ms = now_ms + ttl_ms
            self.may_expire = True
        if self.kept_from != nothing_kept() and now_ms - self.marked_ms >= TIME_MARK_MS:
            self.mark_time(now_ms)
        if (self.ready == 0 and self.ring.size() and self.mirror is None
                and not self.in_batch and not self.paused):
            return self.hand_over(message, expires_ms, now_ms)
        return self.store(message, expires_ms, now_ms)

    cdef int publish_from(self, Message message, int64_t now_ms, uint64_t gateway,
                          uint64_t sequence) except -1:
        cdef int outcome
        if self.mirror is None:
            # A fork: the other side may have it, too, so it must not go out as if it were new.
            self.in_batch = True
            outcome = self.publish(message, now_ms)
            self.in_batch = False
            if self.ring.size() and not self.postponed:
                self.postponed = self.effects.postpone(self)
            return outcome
        had = self.mirror.has_taken(gateway, sequence, message)
        if had is None:
            return REJECTED
        if had:
            self.mirror.await_all(message, sequence)
            return ACCEPTED
        self.mirror.gateway, self.mirror.sequence = gateway, sequence
        outcome = self.publish(message, now_ms)
        if outcome == REJECTED:
            self.mirror.refuse(gateway, sequence)
        self.mirror.gateway = self.mirror.sequence = 0
        return outcome

    cdef int hand_over(self, Message message, int64_t expires_ms, int64_t now_ms) except -1:
        """Nothing waits and a consumer is free: the message goes straight on."""
        cdef ConsumerPort consumer = self.ring.next()
        cdef SlotLog log
        cdef uint64_t slot
        if consumer.no_ack and self.kept_from == nothing_kept() and self.events is None:
            self.delivered_no_ack += 1
            consumer.deliver(self, message, 0, False)
        else:
            log = self.level_of(message)
            if now_ms - log.marked_ms >= MARK_EVERY_MS:
                log.mark(now_ms)
            slot = <uint64_t>log.append(message, expires_ms, False, 0)
            if self.levels is not None:
                slot |= <uint64_t>min(<int>message.priority, self.max_priority) << LEVEL_SHIFT
            if self.events is not None:
                self.note_event(EVENT_PUBLISH, 0, slot, 1, message.body_len)
                self.note_event(EVENT_DELIVER, FLAG_NO_ACK if consumer.no_ack else 0, slot, 1, 0)
            if self.durable and self.must_log(message):
                self.keep(log, slot, message, expires_ms, True)
            if consumer.no_ack:
                self.delivered_no_ack += 1
                self.left(log, slot)  # only the queue's cursors still need it
            else:
                self.unacked += 1
                self.delivered += 1
            consumer.deliver(self, message, slot, False)
        if not consumer.can_take():
            self.ring.discard(consumer)
        return ACCEPTED

    cdef int store(self, Message message, int64_t expires_ms, int64_t now_ms) except -1:
        cdef bint at_once = False   # it is dead, but must be here until it is safe elsewhere
        if (expires_ms and expires_ms <= now_ms and self.mirror is not None and self.ring.size()
                and not self.paused):
            # A consumer waits, but the replicas come first: they get this long.
            expires_ms = now_ms + REPLICAS_MS
        if expires_ms and expires_ms <= now_ms:
            # Time to live 0: deliver now or not at all.
            self.dropped += 1
            if not self.dead_letters:
                return ACCEPTED
            at_once = True
        cdef SlotLog log = self.level_of(message)
        if now_ms - log.marked_ms >= MARK_EVERY_MS:
            log.mark(now_ms)
        cdef uint64_t slot = <uint64_t>log.append(message, expires_ms, not at_once, 0)
        self.ready += not at_once
        if self.levels is not None:
            slot |= <uint64_t>min(<int>message.priority, self.max_priority) << LEVEL_SHIFT
        if self.events is not None:
            self.note_event(EVENT_PUBLISH, 0, slot, 1, message.body_len)
        if self.durable and self.must_log(message):
            self.keep(log, slot, message, expires_ms,
                      len(self.consumers) > 0 and not self.in_batch and not self.paused
                      and log.opened >= position_of(slot) and log.ready < LIVE_MESSAGES)
        if at_once:
            return self.bury(log, slot, DEAD_EXPIRED)
        if self.limited and self.overflow == DROP_HEAD:
            self.enforce_limits()
        if self.may_expire:
            self.arm_head()
        if (self.ready > CONGESTED_MESSAGES and self.consumers and not self.paused
                and now_ms >= self.slow_until_ms):
            self.congested = True
        if self.mirror is not None and self.mirror.congested:
            self.congested = True
        return ACCEPTED

    def offer(self, Message message not None, int64_t now_ms):
        """Publish from Python; True unless the queue refused it."""
        return self.publish(message, now_ms) == ACCEPTED

    # -- delivering --------------------------------------------------------------------------------

    cdef int pump(self, int64_t now_ms) except -1:
        """Delivers all it can, or so much that others must have their turn first."""
        while self.pump_some(now_ms, PUMP_DELIVERIES) == PUMP_DELIVERIES:
            if not self.postponed:
                self.postponed = self.ready and self.ring.size() and self.effects.postpone(self)
            if self.postponed:
                return 0
        return 0

    cdef int pump_some(self, int64_t now_ms, int limit) except -1:
        """Delivers up to a number of messages; how many that were."""
        cdef int count = 0
        cdef ConsumerPort consumer
        cdef uint64_t slot = 0, position
        cdef SlotLog log
        cdef Slot* entry
        cdef bint redelivered
        cdef Message message
        if self.pumping or self.paused or self.mending:
            # A delivery in progress led back here, whose loop goes on anyway; or none is wanted.
            return 0
        self.pumping = True
        try:
            while count < limit and self.ready and self.ring.size():
                count += 1
                if self.may_expire and (self.drop_expired(now_ms) or not self.ready):
                    break
                entry = self.front(&slot)
                if entry is NULL:
                    break
                log = self.level(slot)
                position = position_of(slot)
                if self.durable and not self.may_deliver(log, slot, entry):
                    count -= 1
                    break
                if entry.content & 1 and not self.bring_in(slot, entry):
                    if self.mending:
                        break
                    continue
                message = message_of(entry)
                redelivered = entry.flags & REDELIVERED or position < log.flagged_below
                consumer = self.ring.next()
                log.take(position)
                self.ready -= 1
                if redelivered:
                    self.redelivered += 1
                if self.events is not None:
                    self.note_event(EVENT_DELIVER, (FLAG_REDELIVERED if redelivered else 0)
                                    | (FLAG_NO_ACK if consumer.no_ack else 0), slot, 1, 0)
                if consumer.no_ack:
                    self.delivered_no_ack += 1
                    self.left(log, slot)
                else:
                    self.delivered += 1
                    self.unacked += 1
                consumer.deliver(self, message, slot, redelivered)
                if not consumer.can_take():
                    self.ring.discard(consumer)
        finally:
            self.pumping = False
        if self.may_expire:
            self.arm_head()
        if self.congested:
            self.check_relief()
        return count

    def watermark_kept(self, int64_t now_ms):
        """The log has moved on: more of the backlog may be delivered."""
        if self.watermark_moved():
            self.pump(now_ms)

    def check_relief(self):
        if self.mirror is not None and self.mirror.congested:
            return
        if self.ready <= RELIEVED_MESSAGES or not self.consumers or self.paused:
            self.congested = False
            self.effects.relieved(self)

    def pause_ended(self, uint64_t delivered_before, int64_t now_ms):
        """A publisher's pause is over; consumers that got nowhere are not waited for again."""
        if self.mirror is not None and self.mirror.congested:
            return True
        if self.congested and self.deliveries - delivered_before < BRISK_DELIVERIES:
            self.congested = False
            self.slow_until_ms = now_ms + SLOW_CONSUMERS_MS
        return False

    @property
    def deliveries(self):
        """All deliveries to consumers so far."""
        return self.delivered + self.delivered_no_ack

    def run(self, int64_t now_ms):
        """Deliver what can be delivered."""
        self.postponed = False
        self.pump(now_ms)

    def set_paused(self, bint paused):
        """Whether consumers are given nothing until further notice; who has to go on calls `run`.

        Publishes and settlements go on, and so do times to live and limits.
        """
        self.paused = paused
        if self.congested:
            self.check_relief()

    def get(self, bint no_ack, int64_t now_ms):
        """The next message for basic.get as (message, slot, redelivered), or None.

        0 when there is one that may not go out before record `open_mark` of the log is written.
        """
        cdef uint64_t slot = 0
        cdef SlotLog log
        cdef Slot* entry
        cdef bint redelivered
        cdef Message message
        self.check_drained()
        if self.may_expire and self.drop_expired(now_ms):
            return None
        while True:
            entry = self.front(&slot)
            if entry is NULL:
                return None
            log = self.level(slot)
            if self.durable and not self.may_deliver(log, slot, entry):
                self.open_mark = log.open_mark if self.mirror is None else self.operations
                return 0
            if self.bring_in(slot, entry):
                break
            if self.mending:
                self.open_mark = self.operations
                return 0
        message = message_of(entry)
        redelivered = entry.flags & REDELIVERED or position_of(slot) < log.flagged_below
        log.take(position_of(slot))
        self.ready -= 1
        if redelivered:
            self.redelivered += 1
        if self.events is not None:
            self.note_event(EVENT_DELIVER, (FLAG_REDELIVERED if redelivered else 0)
                            | (FLAG_NO_ACK if no_ack else 0), slot, 1, 0)
        if no_ack:
            self.left(log, slot)
            self.got_no_ack += 1
        else:
            self.unacked += 1
            self.got += 1
        if self.may_expire:
            self.arm_head()
        if self.congested:
            self.check_relief()
        return message, slot, redelivered

    # -- settling ----------------------------------------------------------------------------------

    cdef int ack(self, uint64_t slot) except -1:
        if self.retired:
            return 0
        self.unacked -= 1
        self.acked += 1
        if self.events is not None:
            self.note_event(EVENT_ACK, 0, slot, 1, 0)
        return self.left(self.level(slot), slot)

    cdef int reject(self, uint64_t slot) except -1:
        if self.retired:
            return 0
        self.unacked -= 1
        return self.discard(slot, DEAD_REJECTED)

    cdef int requeue(self, uint64_t slot) except -1:
        cdef SlotLog log = self.level(slot)
        cdef Slot* entry
        if self.retired:
            return 0
        entry = log.at(position_of(slot))
        self.unacked -= 1
        if entry.returns < RETURNS_MAX:
            entry.returns += 1
        entry.flags |= REDELIVERED
        if self.events is not None:
            self.note_event(EVENT_REQUEUE, 0, slot, 1, 0)
        if self.delivery_limit >= 0:
            if <int64_t>entry.returns > self.delivery_limit:
                return self.discard(slot, DEAD_DELIVERY_LIMIT)
            if entry.flags & LOGGED and self.queue_id:
                # Nobody else counts how often it came back.
                self.journal.returned(self, slot)
        log.put_back(position_of(slot))
        self.ready += 1
        self.enforce_limits()
        return self.arm_head() if self.may_expire else 0

    cdef int take_back(self, uint64_t slot) except -1:
        if self.retired:
            return 0
        self.unacked -= 1
        if self.delivered:  # Otherwise another master has counted it.
            self.delivered -= 1
        if self.events is not None:
            self.note_event(EVENT_TAKE_BACK, 0, slot, 1, 0)
        self.level(slot).put_back(position_of(slot))
        self.ready += 1
        self.enforce_limits()
        return self.arm_head() if self.may_expire else 0

    def settle(self, str how not None, uint64_t slot):
        """Settle one delivery from Python: "ack", "reject", "requeue" or "take back"."""
        if how == "ack":
            self.ack(slot)
        elif how == "reject":
            self.reject(slot)
        elif how == "take back":
            self.take_back(slot)
        else:
            self.requeue(slot)

    def purge(self):
        """Drop all ready messages; how many there were. They are not dead-lettered."""
        cdef uint64_t count = self.ready, slot = 0
        cdef SlotLog log
        while self.front(&slot) is not NULL:
            log = self.level(slot)
            if self.events is not None:
                self.note_event(EVENT_PURGE, 0, slot, 1, 0)
            log.take(position_of(slot))
            self.left(log, slot)
            self.ready -= 1
        if self.congested:
            self.check_relief()
        return count

    cdef int stop_acting(self) except -1:
        """Another node is the master: what was done here and not on all replicas was not done."""
        self.take_back_all()
        self.forget_buried()
        self.mending = False
        self.unacked = 0
        self.run_count = 0
        return 0

    def tell_leaving(self):
        """What has left in this turn is told now, before anything else is said."""
        self.tell_gone()

    def adopt(self, list slots not None):
        """What consumers of the master before hold stays with them, if it is there; which."""
        taken = self.take_out(slots)
        self.unacked += <uint64_t>len(taken)
        return taken

    def begin_acting(self, int64_t now_ms):
        """This node is the master: limits and times to live are kept here from now on."""
        self.enforce_limits()
        self.armed_ms = 0
        if self.may_expire:
            self.drop_expired(now_ms)

    # -- consumers ---------------------------------------------------------------------------------

    def add_consumer(self, ConsumerPort consumer not None, bint exclusive=False):
        self.consumers.append(consumer)
        if exclusive:
            self.exclusive_consumer = consumer
        if self.single_active and self.active is None:
            self.choose_active()
        else:
            self.consumer_ready(consumer)

    def remove_consumer(self, ConsumerPort consumer not None):
        self.consumers.remove(consumer)
        self.ring.discard(consumer)
        if self.exclusive_consumer is consumer:
            self.exclusive_consumer = None
        if self.active is consumer:
            self.active = None
            self.choose_active()
        if self.congested:
            self.check_relief()

    cdef int choose_active(self) except -1:
        """The oldest consumer of the highest priority becomes the active one."""
        cdef ConsumerPort best = None
        for candidate in self.consumers:
            if best is None or (<ConsumerPort>candidate).priority > best.priority:
                best = <ConsumerPort>candidate
        self.active = best
        if best is not None:
            best.activity_changed(True)
            self.consumer_ready(best)
        return 0

    cdef int consumer_ready(self, ConsumerPort consumer) except -1:
        if self.single_active and self.active is not consumer:
            return 0
        if not consumer.can_take():
            self.ring.discard(consumer)
        elif not consumer.available:
            self.ring.add(consumer)
        return 0

    # -- looking -----------------------------------------------------------------------------------

    @property
    def ready_bytes(self):
        return self.sum_bytes(True)

    @property
    def total_bytes(self):
        return self.sum_bytes(False)

    def check(self):
        """The invariants; raises AssertionError where one does not hold."""
        logs = [self.log] if self.levels is None else [x for x in self.levels if x is not None]
        assert sum((<SlotLog>log).ready for log in logs) == self.ready
        held = self.ready + self.unacked + self.leaving + self.buried
        assert sum((<SlotLog>log).live for log in logs) == held
        for consumer in self.ring.members:
            assert (<ConsumerPort>consumer).available and consumer in self.consumers
        if self.levels is None and self.ready:
            assert self.log.chunk_at(<uint64_t>self.head()) is not NULL
