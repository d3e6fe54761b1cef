"""Passing messages on from queue to queue: one leaves its queue when it is safe in the next.

Between plain queues of this node that is one turn: the record that has the message in its new place
stands before the one that says that it has left the old. Queues of other nodes and mirrored ones
answer later, as they do to a publisher that wants confirms. Until then the message is *held*: it is
in its slot, counts as unacknowledged and goes to no consumer. When the answer is yes it leaves, and
otherwise it is ready again in its old place, as if nothing had been.

A node that dies meanwhile leaves it in the old queue, perhaps in both; never in none.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from warren.engine.burial_answers import REFUSED, TAKEN, BurialAnswers
from warren.queue.picking import hold, let_go
from warren.wire.content import make_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.model.message import Message

#: Who is to be the master is kept waiting for no longer.
REST_MS_MAX = 1000


class Passage(NamedTuple):
    """One message that is held."""

    source: AmqpQueue
    slot: int
    #: Another one: the queue has it otherwise.
    term: int
    #: Told at the end whether the next queue has it.
    told: Callable[[bool], None]


class Passing:
    """All that is on its way on a node."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._answers = BurialAnswers(engine.turn, self._answers_came)
        self._tags: dict[int, Passage] = {}
        #: How many messages of a queue are held.
        self._held: Counter[AmqpQueue] = Counter()
        self._when_quiet: dict[AmqpQueue, Callable[[], None]] = {}

    def may_take_from(self, queue: AmqpQueue) -> bool:
        """Whether this node has a say in what leaves the queue, now and in a moment."""
        if queue.deleted or queue.retired or queue.resting:
            return False
        return queue.mirror is None or (queue.mirror.acts and not queue.mirror.paused)

    def pass_on(
        self,
        source: AmqpQueue,
        slot: int,
        message: Message,
        target: AmqpQueue,
        told: Callable[[bool], None],
    ) -> bool:
        """Give a ready message to another queue; `told` hears, now or later, whether that has it.

        To be called while `may_take_from` is true. False: it is not there any more.
        """
        if not hold(source, slot):
            return False
        self._held[source] += 1
        passage = Passage(source, slot, source.burial_term, told)
        journal = self._engine.journal
        if message.place:
            # The queue holds it under that place in the log; the other one gets one of its own.
            message = make_message(message.address, message.header, message.body)
        tag = self._answers.offer(target, message, self._engine.clock.now_ms())
        if journal is not None:
            journal.finish_publish(message)
        if tag == TAKEN and source.mirror is not None and journal is not None:
            # The other replicas hear that it has left, so it must be on the disk here by then.
            journal.when_persisted(journal.appended, partial(self._is_kept, passage))
        elif tag in {TAKEN, REFUSED}:
            self._end(passage, tag == TAKEN)
        else:
            self._tags[tag] = passage
        return True

    def _is_kept(self, passage: Passage) -> None:
        self._end(passage, True)

    def _answers_came(self) -> None:
        """In the middle of whatever brought them: they are looked at when that is over."""
        self._engine.later(self._take_answers)

    def _take_answers(self, now_ms: int) -> None:
        returned: dict[AmqpQueue, None] = {}
        for tag, accepted in self._answers.take():
            passage = self._tags.pop(tag)
            if self._end(passage, accepted) and not accepted:
                returned[passage.source] = None
        for queue in returned:
            self._engine.guard(queue.run, now_ms)

    def _end(self, passage: Passage, accepted: bool) -> bool:
        """Whether the message was still held."""
        source = passage.source
        is_held = not (source.deleted or source.retired) and source.burial_term == passage.term
        if is_held:
            let_go(source, passage.slot, accepted)
        self._held[source] -= 1
        if self._held[source] == 0:
            del self._held[source]
            self._tell_quiet(source)
        passage.told(accepted)
        return is_held

    # -- another master ----------------------------------------------------------------------------

    def rest(self, queue: AmqpQueue, then: Callable[[], None]) -> None:
        """Call when nothing is held any more, or soon in any case. The queue rests already."""
        if queue not in self._held:
            then()
            return
        self._when_quiet[queue] = then
        now_ms = self._engine.clock.now_ms()
        self._engine.timers.at(now_ms + REST_MS_MAX, lambda _now_ms: self._tell_quiet(queue))

    def _tell_quiet(self, queue: AmqpQueue) -> None:
        then = self._when_quiet.pop(queue, None)
        if then is not None:
            then()
