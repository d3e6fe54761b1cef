"""Moves messages from queue to queue: to one that is named, or back to where they died.

Each message is in its new queue before it leaves the old one. The work is done in slices, and
consumers of the old queue go on taking messages meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from warren.engine.publish import offer
from warren.management.pace import SLICE_S, Pace
from warren.model.errors import Postponed
from warren.model.message import MARK_HEADERS, Message
from warren.wire.tables import decode_table

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.management.context import Context

Target = Callable[[Message], "AmqpQueue | None"]


@dataclass(slots=True)
class Outcome:
    """How many messages moved, and how many stayed for want of a place to go to."""

    moved: int = 0
    kept: int = 0


def origin(vhost: VHost, message: Message) -> AmqpQueue | None:
    """The queue in which a dead letter first died, if it is still there."""
    if not message.marks & MARK_HEADERS:
        return None
    headers = decode_table(message.headers_table)
    name: Any = headers.get("x-first-death-queue")
    deaths = headers.get("x-death")
    if name is None and isinstance(deaths, list) and deaths and isinstance(deaths[-1], dict):
        name = deaths[-1].get("queue")
    return vhost.queues.get(name) if isinstance(name, str) else None


async def move(context: Context, source: AmqpQueue, count: int, target: Target) -> Outcome:
    """Move up to a number of messages; what has no place to go to stays, in its order."""
    outcome = Outcome()
    held: list[int] = []
    pace = Pace()
    left = min(count, source.ready)
    while left > 0:
        before = left
        left = await context.act_when_written(
            partial(_slice, context.engine, source, left, target, outcome, held)
        )
        if left == before:
            break
        await pace.rest()
    outcome.kept = len(held)

    def give_back() -> None:
        for slot in held:
            source.settle("requeue", slot)
        source.run(context.engine.clock.now_ms())

    context.act(give_back)
    return outcome


def _slice(
    engine: Engine,
    source: AmqpQueue,
    left: int,
    target: Target,
    outcome: Outcome,
    held: list[int],
) -> int:
    """As many as fit a slice of time; how many are left to do."""
    until_s = time.perf_counter() + SLICE_S
    now_ms = engine.clock.now_ms()
    begun = left
    while left > 0:
        found = None if source.deleted else source.get(False, now_ms)
        if found is None:
            return 0
        if found == 0:
            if left < begun:
                return left
            raise Postponed(source.open_mark)
        message, slot, _ = found
        left -= 1
        queue = target(message)
        if queue is None or queue is source or queue.deleted:
            held.append(slot)
        elif not offer(engine, [queue], message, now_ms):
            source.settle("ack", slot)
            outcome.moved += 1
        else:
            # The other queue is full, and will be for the next ones too.
            held.append(slot)
            return 0
        if time.perf_counter() >= until_s:
            break
    return left
