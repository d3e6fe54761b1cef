"""Pausing the consumers of a queue, and letting them go on."""

from __future__ import annotations

import time

from warren.engine.pausing import pause_of
from warren.management.call import Answer, Call, Route


def _check(call: Call) -> tuple[str, str]:
    """The queue in the path, if the caller may configure it. Raises what the engine refuses with.

    Whoever may delete a queue may stop what is taken out of it.
    """
    queue, engine, actor = call.queue(), call.context.engine, call.actor
    engine.check_access(actor, "queue", queue.name, "configure")
    return queue.vhost.name, queue.name


async def pause_queue(call: Call) -> Answer:
    """Deliver nothing to the consumers of a queue; answered when all nodes know it."""
    context, where = call.context, _check(call)
    if pause_of(call.queue()) is None:
        by, at_ms = str(call.caller.name), time.time_ns() // 1_000_000
        await context.agree(lambda: context.engine.pause_queue(*where, by, at_ms))
    return None


async def resume_queue(call: Call) -> Answer:
    """Let the consumers of a queue go on; answered when all nodes know it."""
    context, where = call.context, _check(call)
    await context.agree(lambda: context.engine.resume_queue(*where))
    return None


ROUTES = (
    Route("PUT", "/queues/{vhost}/{name}/pause", "vhost", pause_queue),
    Route("PUT", "/queues/{vhost}/{name}/resume", "vhost", resume_queue),
)
