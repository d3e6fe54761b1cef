"""Moves messages from queue to queue: to one that is named, or back to where they died.

A message is looked at where it stands, is given to its new queue, and leaves the old one in the
same turn; if the new one is mirrored, when all its replicas have the message. It is never out of
both, and those that stay are not touched: they keep their order and are not marked as redelivered.
The work is done in slices, and consumers of the old queue go on taking messages meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from warren.engine.opening import until_open
from warren.engine.publish import offer
from warren.management.context import ended
from warren.management.errors import ApiError
from warren.management.matching import Matches, first_death, headers_of
from warren.management.pace import SLICE_S, Pace
from warren.model.message import Message
from warren.queue.looking import peek
from warren.queue.picking import withdraw

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.management.context import Context

Target = Callable[[Message], "AmqpQueue | None"]
#: Messages looked at together; some may be large, and on the disk.
LOOK_MESSAGES = 32
#: How long the replicas of a mirrored queue may take.
COMMIT_S = 30.0


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
    #: What mirrored queues have been given: the slot, the queue, and its operation to wait for.
    given: list[tuple[int, AmqpQueue, int]] = field(default_factory=list)


def origin(vhost: VHost, message: Message) -> AmqpQueue | None:
    """The queue in which a dead letter first died, if it is still there."""
    name = first_death(headers_of(message)).get("queue")
    return vhost.queues.get(name) if name is not None else None


async def move(context: Context, order: Order, after: int | None = None) -> Outcome:
    """Move messages, from behind a slot on; what has no place to go to stays where it is.

    What comes to the queue meanwhile is left to the next order.
    """
    outcome = Outcome(last_slot=after)
    pace = Pace()
    left = order.source.ready
    while left > 0 and not outcome.is_over:
        left -= context.act(partial(_slice, context.engine, order, outcome, left))
        if outcome.given:
            await _finish(context, order, outcome)
        await pace.rest()
    return outcome


async def _finish(context: Context, order: Order, outcome: Outcome) -> None:
    """Messages have been given to mirrored queues: they leave when all replicas have them.

    Raises 503 when that takes too long: then they are in both queues.
    """
    given, outcome.given = outcome.given, []
    newest = {queue: mark for _, queue, mark in given}
    try:
        async with asyncio.timeout(COMMIT_S):
            for queue, mark in newest.items():
                waited = until_open(queue, mark).errand
                if waited is not None:
                    await ended(waited)
    except TimeoutError:
        raise ApiError(
            503,
            "unavailable",
            f"the replicas of the other queue did not answer in {COMMIT_S:.0f} s: the last "
            f"{len(given)} messages may be in both queues",
        ) from None

    def withdraw_all() -> None:
        for slot, _, _ in given:
            withdraw(order.source, slot)

    context.act(withdraw_all)


def _slice(engine: Engine, order: Order, outcome: Outcome, left: int) -> int:
    """As many as fit a slice of time; how many were looked at."""
    until_s = time.perf_counter() + SLICE_S
    seen = 0
    while not outcome.is_over and seen < left and time.perf_counter() < until_s:
        if order.source.deleted or outcome.moved >= order.count:
            outcome.is_over = True
            break
        rows = peek(order.source, min(LOOK_MESSAGES, left - seen), after=outcome.last_slot)
        if not rows:
            outcome.is_over = True
        for slot, _, _, _, _, message in rows:
            if outcome.is_over or outcome.moved >= order.count:
                break
            seen += 1
            outcome.last_slot = slot
            _deal_with(engine, order, outcome, slot, message)
    return seen


def _deal_with(engine: Engine, order: Order, outcome: Outcome, slot: int, message: Message) -> None:
    if (order.positions is not None and slot not in order.positions) or (
        order.matches is not None and not order.matches(message)
    ):
        outcome.unmatched += 1
        return
    queue = order.target(message)
    if queue is None or queue is order.source or queue.deleted:
        outcome.kept += 1
        return
    if not order.dry_run:
        going = message if order.mark is None else order.mark(message)
        if offer(engine, [queue], going, engine.clock.now_ms()):
            # The other queue is full, and will be for the next ones too.
            outcome.kept += 1
            outcome.is_over = True
            return
        if queue.mirror is None:
            withdraw(order.source, slot)
        else:
            outcome.given.append((slot, queue, queue.operations))
    outcome.moved += 1
    outcome.to[queue.name] += 1
