"""How old the oldest message of a queue is: in its row, and as a metric.

It is counted from when the message came to the queue, so publishers need not set timestamps. Of
messages that older versions of Warren have logged it is not known.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from warren.management.pace import Pace
from warren.queue.ages import oldest_arrival_ms

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.management.context import Context
    from warren.management.metrics import Page

METRIC = "warren_queue_oldest_message_age_seconds"


def oldest_age_ms(engine: Engine, queue: AmqpQueue) -> int | None:
    """None: there is no message, or it is not known."""
    came_ms = None if queue.is_remote else oldest_arrival_ms(queue)
    return None if came_ms is None else max(0, engine.clock.now_ms() - came_ms)


def oldest_message(engine: Engine, queue: AmqpQueue) -> dict[str, Any]:
    """When the oldest message came, in ms since 1970, and how many whole seconds ago that was."""
    age_ms = oldest_age_ms(engine, queue)
    if age_ms is None:
        return {"oldest_message_arrived_at": None, "oldest_message_age_seconds": None}
    return {
        "oldest_message_arrived_at": int(time.time() * 1000) - age_ms,
        "oldest_message_age_seconds": age_ms // 1000,
    }


async def age_metrics(context: Context, page: Page, per_object: bool) -> None:
    """Of each queue where it is known; or of the one that has the oldest message of all."""
    engine, pace = context.engine, Pace()
    page.head(METRIC, "gauge", "Time that the oldest message of a queue has been in it")
    oldest_s = 0
    for vhost in list(engine.vhosts.values()):
        for queue in list(vhost.queues_here()):
            age_ms = oldest_age_ms(engine, queue)
            await pace.rest()
            if age_ms is None:
                continue
            oldest_s = max(oldest_s, age_ms // 1000)
            if per_object:
                labels = {"vhost": vhost.name, "queue": queue.name}
                page.value(METRIC, age_ms // 1000, labels)
    if not per_object:
        page.value(METRIC, oldest_s)
