"""Burials: a dead message leaves its queue when its letter is safe wherever it goes, not before.

Until then it stays in its slot, *buried* (`queue/graves.pyx`). A letter for plain queues of this
node is safe at once: the record that has the letter also says that the message has left. Queues on
other nodes and mirrored ones answer later, as they do to a publisher that wants confirms. One that
refuses it, is down, or does not know what became of it is tried again after a pause, in order;
those that have the letter already are left out then. After a crash, or with another master, the
message is in its queue again and dies once more: letters may come twice, but none is lost.

A queue's letters are on their way up to a number at a time. After a refusal one goes ahead, and
twice as many each time that is accepted: so they keep their order, and a target that is down, or
full, is not asked in vain too often.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from warren.engine.burial_answers import TAKEN, BurialAnswers
from warren.engine.consume import delete_if_unused
from warren.engine.dead_letter import make_letter
from warren.engine.effects import REASONS
from warren.engine.publish import offer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warren.base.timers import Timer
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.model.message import Message

#: Letters of one queue that are on their way at a time, and bytes of them.
SENT_MAX = 4096
SENT_BYTES_MAX = 16 * 1024 * 1024
#: The pause after a refusal; it doubles up to the second number.
PAUSE_MS = 20
PAUSE_MS_MAX = 1000
#: Who is to be the master is kept waiting for no longer.
REST_MS_MAX = 1000
#: What `QueueEffects.dead_letter` says of a message that was never in its queue.
NO_SLOT = -1


class Burial:
    """One dead message of a queue from when it was first tried until it is safe elsewhere."""

    __slots__ = ("died_s", "mark", "order", "reason", "refused", "size", "slot", "taken", "waits")

    def __init__(self, slot: int, reason: int, died_s: int, order: int) -> None:
        self.slot = slot
        self.reason = reason
        self.died_s = died_s
        self.order = order
        #: Queues that have the letter; None: it was never tried.
        self.taken: set[str] | None = None
        #: Queues that have not answered yet.
        self.waits = 0
        self.refused = False
        #: The record of this node's log that the letter is safe with.
        self.mark = 0
        self.size = 0


class Graveyard:
    """The burials of one queue, while it is the home or the master."""

    __slots__ = ("again", "pace", "pause_ms", "queue", "returned", "sent", "sent_bytes", "term",
                 "timer", "waiting", "when_quiet")  # fmt: skip

    def __init__(self, queue: AmqpQueue) -> None:
        self.queue = queue
        self.term = queue.burial_term
        #: Those that were never tried, the oldest first, and as small as can be: see `_pack`.
        self.waiting: deque[int] = deque()
        #: Those that were refused and go before them.
        self.again: deque[Burial] = deque()
        #: Refused, since the newest pause.
        self.returned: list[Burial] = []
        self.sent = self.sent_bytes = 0
        #: So many may be on their way.
        self.pace = SENT_MAX
        self.pause_ms = 0
        #: The pause that goes on.
        self.timer: Timer | None = None
        #: Called once when nothing is on its way.
        self.when_quiet: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the queue has what was buried no more, or has it otherwise."""
        queue = self.queue
        return queue.deleted or queue.retired or queue.burial_term != self.term

    @property
    def may_send(self) -> bool:
        if self.returned or self.timer is not None or self.queue.resting:
            return False
        return self.sent < self.pace and self.sent_bytes < SENT_BYTES_MAX


class Burials:
    """Those of all queues of a node."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._answers = BurialAnswers(engine.turn, self._answers_came)
        #: Queues with burials that did not end at once.
        self._yards: dict[AmqpQueue, Graveyard] = {}
        #: Tag -> whose letter it is, and the queue that is to answer.
        self._tags: dict[int, tuple[Graveyard, Burial, str]] = {}
        self._touched: dict[Graveyard, None] = {}
        self._order = 0
        self._is_held = False

    def hold(self) -> None:
        """The node has not heard of all that others have declared: letters might find no way."""
        self._is_held = True

    def release(self) -> None:
        """It has."""
        self._is_held = False
        for yard in self._yards.values():
            self._touch(yard)

    def take(self, letters: Iterable[tuple[AmqpQueue, Message | None, int, int]]) -> None:
        """Queues have told of dead messages: (queue, message, reason, slot)."""
        engine = self._engine
        crowded: dict[AmqpQueue, None] = {}
        for queue, message, reason, slot in letters:
            engine.guard(self._take_one, queue, message, reason, slot)
            if queue.crowded or queue.declaration.auto_delete:
                crowded[queue] = None
        now_ms = engine.clock.now_ms()
        for queue in crowded:
            engine.guard(queue.go_on_burying, now_ms)
            delete_if_unused(engine, queue)

    def _take_one(self, queue: AmqpQueue, message: Message | None, reason: int, slot: int) -> None:
        died_s = self._engine.clock.wall_s()
        if slot == NO_SLOT:
            # Its publisher is told that it was refused, and has it still.
            assert message is not None
            letter, targets = make_letter(self._engine, queue, message, REASONS[reason], died_s)
            if letter is not None:
                there = [target for target in targets if not target.awaits_view]
                offer(self._engine, there, letter, self._engine.clock.now_ms())
            return
        if queue.deleted or queue.retired:
            return
        yard = self._yards.get(queue)
        if yard is not None and yard.term != queue.burial_term:
            yard = None
        if self._is_held or message is None:
            # Without the message, another replica is asked for it.
            yard = self._yard_of(queue)
            yard.waiting.append(_pack(slot, reason, died_s))
            self._touch(yard)
        elif yard is None or (not yard.waiting and not yard.again and yard.may_send):
            self._send(queue, yard, self._burial(slot, reason, died_s), message)
        else:
            yard.waiting.append(_pack(slot, reason, died_s))

    def _burial(self, slot: int, reason: int, died_s: int) -> Burial:
        self._order += 1
        return Burial(slot, reason, died_s, self._order)

    def _yard_of(self, queue: AmqpQueue) -> Graveyard:
        yard = self._yards.get(queue)
        if yard is None or yard.term != queue.burial_term:
            yard = self._yards[queue] = Graveyard(queue)
        return yard

    # -- letters -----------------------------------------------------------------------------------

    def _send(
        self, queue: AmqpQueue, yard: Graveyard | None, burial: Burial, message: Message
    ) -> None:
        """Give the letter to all its queues that do not have it yet."""
        engine = self._engine
        letter, targets = make_letter(
            engine, queue, message, REASONS[burial.reason], burial.died_s, burial.taken is not None
        )
        term = queue.burial_term if yard is None else yard.term
        if letter is None:
            queue.end_burial(burial.slot, burial.reason, term, has_letter=False)
            return
        has_it = burial.taken or ()
        taken, refused, tags = [], False, []
        now_ms = engine.clock.now_ms()
        for target in targets:
            if target.name in has_it:
                continue
            if target.awaits_view:
                # It is there, but this node does not know yet where.
                refused = True
                continue
            tag = self._answers.offer(target, letter, now_ms)
            if tag == TAKEN:
                taken.append(target.name)
            elif tag > 0:
                tags.append((tag, target.name))
            else:
                refused = True
        journal = engine.journal
        is_safe = not tags and not refused
        if is_safe and queue.mirror is None:
            some = bool(taken or has_it)
            queue.end_burial(burial.slot, burial.reason, term, with_letter=True, has_letter=some)
        if journal is not None:
            journal.finish_publish(letter)
        if is_safe and queue.mirror is None:
            return
        yard = yard or self._yard_of(queue)
        burial.taken = {*has_it, *taken}
        burial.refused = refused
        burial.waits = len(tags)
        burial.size = letter.body_len
        burial.mark = 0 if journal is None else journal.appended
        yard.sent += 1
        yard.sent_bytes += burial.size
        for tag, name in tags:
            self._tags[tag] = yard, burial, name
        if not tags:
            self._answered(yard, burial)

    def _answers_came(self) -> None:
        """In the middle of whatever brought them: they are looked at when that is over."""
        self._engine.later(self._take_answers)

    def _take_answers(self, _now_ms: int) -> None:
        for tag, accepted in self._answers.take():
            yard, burial, name = self._tags.pop(tag)
            burial.waits -= 1
            if accepted:
                assert burial.taken is not None
                burial.taken.add(name)
            else:
                burial.refused = True
            if burial.waits == 0:
                self._answered(yard, burial)

    def _answered(self, yard: Graveyard, burial: Burial) -> None:
        """All queues have said something to the letter."""
        journal = self._engine.journal
        if burial.refused:
            self._off_the_way(yard, burial)
            yard.returned.append(burial)
        elif (
            yard.queue.mirror is not None
            and journal is not None
            and (journal.persisted < burial.mark)
        ):
            # The other replicas hear that it has left, so it must be on the disk here by then.
            journal.when_persisted(journal.appended, partial(self._end, yard, burial))
        else:
            self._end(yard, burial)

    def _end(self, yard: Graveyard, burial: Burial) -> None:
        """The letter is safe."""
        self._off_the_way(yard, burial)
        if not yard.is_over:
            some = bool(burial.taken)
            yard.queue.end_burial(burial.slot, burial.reason, yard.term, has_letter=some)
        if not yard.returned:
            yard.pace = min(yard.pace * 2, SENT_MAX)
            yard.pause_ms = 0

    def _off_the_way(self, yard: Graveyard, burial: Burial) -> None:
        yard.sent -= 1
        yard.sent_bytes -= burial.size
        self._touch(yard)

    # -- going on ----------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> None:
        """Some are off the way: others may follow."""
        touched, self._touched = self._touched, {}
        for yard in touched:
            self._engine.guard(self._go_on_with, yard, now_ms)

    def _go_on_with(self, yard: Graveyard, now_ms: int) -> None:
        queue = yard.queue
        if yard.is_over:
            self._close(yard)
            return
        if yard.returned and yard.sent == 0:
            self._pause(yard, now_ms)
        while (
            (yard.again or yard.waiting) and yard.may_send and not (yard.is_over or self._is_held)
        ):
            if yard.again:
                burial = yard.again.popleft()
            else:
                burial = self._burial(*_unpack(yard.waiting.popleft()))
            message = queue.dead_message(burial.slot)
            if message is False:
                # Those behind it wait, too, so that letters keep their order.
                yard.again.appendleft(burial)
                self._wait(yard, now_ms)
            elif message is None:
                queue.end_burial(burial.slot, burial.reason, yard.term, has_letter=False)
            else:
                self._send(queue, yard, burial, message)
        if yard.sent == 0:
            _tell_quiet(yard)
        if queue.crowded:
            queue.go_on_burying(now_ms)
        if not (yard.waiting or yard.again or yard.returned or yard.sent):
            self._close(yard)
            delete_if_unused(self._engine, queue)

    def _pause(self, yard: Graveyard, now_ms: int) -> None:
        """What was refused is the next to go, in its old order, after a while."""
        yard.returned.sort(key=lambda burial: burial.order)
        yard.again.extendleft(reversed(yard.returned))
        yard.returned.clear()
        yard.pace = 1
        self._wait(yard, now_ms)

    def _wait(self, yard: Graveyard, now_ms: int) -> None:
        yard.pause_ms = min(max(yard.pause_ms * 2, PAUSE_MS), PAUSE_MS_MAX)
        yard.timer = self._engine.timers.at(now_ms + yard.pause_ms, partial(self._pause_over, yard))

    def _pause_over(self, yard: Graveyard, now_ms: int) -> None:
        yard.timer = None
        self._go_on_with(yard, now_ms)

    def hurry(self) -> None:
        """A node is back, or a queue has another home: what was refused may be taken now."""
        for yard in self._yards.values():
            yard.pause_ms = 0
            if yard.timer is not None:
                yard.timer.cancel()
                yard.timer = None
                self._touch(yard)

    # -- another master ----------------------------------------------------------------------------

    def rest(self, queue: AmqpQueue, then: Callable[[], None]) -> None:
        """Bury nobody more, and call when nothing is on its way any more, or soon in any case.

        What is on its way when another becomes the master goes on its way there once more.
        """
        queue.resting = True
        yard = self._yards.get(queue)
        if yard is None or yard.sent == 0:
            then()
            return
        yard.when_quiet = then
        now_ms = self._engine.clock.now_ms()
        self._engine.timers.at(now_ms + REST_MS_MAX, lambda _now_ms: _tell_quiet(yard))

    def wake(self, queue: AmqpQueue) -> None:
        """It goes on being the master."""
        queue.resting = False
        queue.go_on_burying(self._engine.clock.now_ms())
        if queue in self._yards:
            self._touch(self._yards[queue])

    def _touch(self, yard: Graveyard) -> None:
        if not self._touched:
            self._engine.later(self._go_on)
        self._touched[yard] = None

    def _close(self, yard: Graveyard) -> None:
        yard.waiting.clear()
        yard.again.clear()
        yard.returned.clear()
        if yard.timer is not None:
            yard.timer.cancel()
            yard.timer = None
        if self._yards.get(yard.queue) is yard:
            del self._yards[yard.queue]


def _tell_quiet(yard: Graveyard) -> None:
    then, yard.when_quiet = yard.when_quiet, None
    if then is not None:
        then()


def _pack(slot: int, reason: int, died_s: int) -> int:
    return died_s << 66 | slot << 2 | reason


def _unpack(packed: int) -> tuple[int, int, int]:
    """(slot, reason, when it died)"""
    return packed >> 2 & (1 << 64) - 1, packed & 3, packed >> 66
