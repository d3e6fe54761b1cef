"""Moves messages from queue to queue: to one that is named, or back to where they died.

A message is looked at where it stands, is given to its new queue, and leaves the old one when that
has it for good (`engine/passing.py`), wherever the two are. It is never out of both, and those that
stay are not touched: they keep their order and are not marked as redelivered. The work is done in
slices, and consumers of the old queue go on taking the others meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from warren.management.errors import ApiError
from warren.management.matching import Matches, first_death, headers_of
from warren.management.pace import SLICE_S, Pace
from warren.model.message import Message
from warren.queue.looking import peek

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.management.context import Context

Target = Callable[[Message], "AmqpQueue | None"]
#: Messages looked at together; some may be large, and on the disk.
LOOK_MESSAGES = 32
#: Messages that are on their way at a time, and bytes of them.
WAITING_MAX = 1024
WAITING_BYTES_MAX = 8 * 1024 * 1024
#: How long the other queue may leave all of them without an answer.
ANSWER_S = 30.0
#: How long one order goes on before it says how far it has come; another node may wait for it.
ORDER_S = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be moved."""

    source: AmqpQueue
    target: Target
    #: How many messages at most.
    count: int
    matches: Matches | None = None
    #: Only those at these positions; None: at any.
    positions: frozenset[int] | None = None
    #: Only count what would be moved.
    dry_run: bool = False
    #: All go to the same queue: when that refuses one, the others need not be tried.
    is_one_target: bool = True
    #: What each becomes on its way.
    mark: Callable[[Message], Message] | None = None


@dataclass(slots=True)
class Outcome:
    """How many messages moved, and how many stayed: for want of a place, or not meant."""

    moved: int = 0
    kept: int = 0
    unmatched: int = 0
    #: Queue -> how many went there.
    to: Counter[str] = field(default_factory=Counter)
    #: The last message that was looked at.
    last_slot: int | None = None
    is_over: bool = False
    #: There is more to be done, by whoever has the queue then.
    is_cut: bool = False
    #: Queues that took no more.
    refusing: set[str] = field(default_factory=set)
    #: Given to a queue that has not answered yet.
    waiting: int = 0
    waiting_bytes: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_room(self) -> bool:
        return self.waiting < WAITING_MAX and self.waiting_bytes < WAITING_BYTES_MAX

    @property
    def goes_on(self) -> bool:
        return not (self.is_over or self.is_cut)


def origin(vhost: VHost, message: Message) -> AmqpQueue | None:
    """The queue in which a dead letter first died, if it is still there."""
    name = first_death(headers_of(message)).get("queue")
    return vhost.queues.get(name) if name is not None else None


async def move(context: Context, order: Order, after: int | None = None) -> Outcome:
    """Move messages, from behind a slot on; what has no place to go to stays where it is.

    What comes to the queue meanwhile is left to the next order. Raises 503 when the other queue
    does not answer.
    """
    outcome = Outcome(last_slot=after)
    passing, pace = context.engine.passing, Pace()
    left, until_s = order.source.ready, time.monotonic() + ORDER_S
    while left > 0 and outcome.goes_on:
        if not passing.may_take_from(order.source) or time.monotonic() > until_s:
            outcome.is_cut = True
        elif outcome.has_room:
            left -= context.act(partial(_slice, context.engine, order, outcome, left))
        else:
            await _answers(outcome)
        await pace.rest()
    while outcome.waiting:
        await _answers(outcome)
    if outcome.refusing and order.is_one_target and not (order.matches or order.positions):
        outcome.kept += left
    return outcome


async def _answers(outcome: Outcome) -> None:
    """Until some have come. Raises 503; the messages are held then until there is an answer."""
    outcome.answered.clear()
    try:
        async with asyncio.timeout(ANSWER_S):
            await outcome.answered.wait()
    except TimeoutError:
        raise ApiError(
            503,
            "unavailable",
            f"{outcome.moved} messages have moved; {outcome.waiting} more are on their way to a "
            f"queue that has not answered in {ANSWER_S:.0f} s: they stay unacknowledged, and leave "
            "or are ready again when it does",
        ) from None


def _slice(engine: Engine, order: Order, outcome: Outcome, left: int) -> int:
    """As many as fit a slice of time; how many were looked at."""
    until_s = time.perf_counter() + SLICE_S
    seen = 0
    while seen < left and outcome.goes_on and time.perf_counter() < until_s:
        if order.source.deleted or outcome.moved + outcome.waiting >= order.count:
            outcome.is_over = True
            break
        rows = peek(order.source, min(LOOK_MESSAGES, left - seen), after=outcome.last_slot)
        if not rows:
            outcome.is_over = True
        for slot, _, _, _, _, message in rows:
            if outcome.moved + outcome.waiting >= order.count:
                break
            if not (outcome.goes_on and outcome.has_room):
                break
            if not _deal_with(engine, order, outcome, slot, message):
                break
            seen += 1
            outcome.last_slot = slot
        if not outcome.has_room:
            break
    return seen


def _deal_with(engine: Engine, order: Order, outcome: Outcome, slot: int, message: Message) -> bool:
    """False: nothing can be done about it now, it has to be looked at again."""
    if (order.positions is not None and slot not in order.positions) or (
        order.matches is not None and not order.matches(message)
    ):
        outcome.unmatched += 1
        return True
    queue = order.target(message)
    if queue is None or queue is order.source or queue.deleted or queue.name in outcome.refusing:
        outcome.kept += 1
    elif order.dry_run:
        outcome.moved += 1
        outcome.to[queue.name] += 1
    elif queue.absence is not None:
        _refused(order, outcome, queue.name)
    elif queue.awaits_view:
        # It is there, but this node does not know yet where.
        outcome.is_cut = True
        return False
    else:
        size = message.body_len
        outcome.waiting += 1
        outcome.waiting_bytes += size
        told = partial(_told, order, outcome, queue.name, size)
        going = message if order.mark is None else order.mark(message)
        if not engine.passing.pass_on(order.source, slot, going, queue, told):
            outcome.waiting -= 1
            outcome.waiting_bytes -= size
    return True


def _told(order: Order, outcome: Outcome, name: str, size: int, accepted: bool) -> None:
    """The other queue has said something to a message."""
    outcome.waiting -= 1
    outcome.waiting_bytes -= size
    outcome.answered.set()
    if accepted:
        outcome.moved += 1
        outcome.to[name] += 1
    else:
        _refused(order, outcome, name)


def _refused(order: Order, outcome: Outcome, name: str) -> None:
    """The other queue is full, or gone, and will be for the next ones too."""
    outcome.kept += 1
    outcome.refusing.add(name)
    if order.is_one_target:
        outcome.is_over = True
