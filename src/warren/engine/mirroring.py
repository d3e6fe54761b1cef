"""Queues that are declared under a mirroring policy, until their first view comes.

Such a queue must be empty when its mirrors begin, so that they need no copy of it: it is known to
all nodes, but nobody may use it before the view is there. Publishes pass it by, as they would have
passed it by a moment before; all other verbs wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.engine.errands import NewQueue
from warren.model.errand import Errand

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine


def await_view(engine: Engine, queue: AmqpQueue, born_mirrored: bool | None) -> None:
    """To be called when a queue is made; `born_mirrored`: of an earlier run, or None."""
    if born_mirrored is not None:
        # Whether it was ever used is not known any more: it is one like all others.
        queue.born_mirrored = born_mirrored
        return
    queue.born_mirrored = engine.agreed is not None and is_to_be_mirrored(queue)
    if queue.born_mirrored and engine.mirrors is not None:
        queue.awaits_view = True
        queue.view_errand = Errand(NewQueue(queue.name))


def is_to_be_mirrored(queue: AmqpQueue) -> bool:
    """Whether policies want mirrors; a queue that goes with its connection has none."""
    return queue.effective.ha_mode is not None and not queue.declaration.exclusive


def look_again(queue: AmqpQueue) -> None:
    """Whoever waits for the first view finds out that the queue, or its home, is gone."""
    waiting = queue.view_errand
    if waiting is not None:
        queue.view_errand = Errand(waiting.memo) if queue.awaits_view else None
        waiting.finish()


def view_came(engine: Engine, queue: AmqpQueue, known_everywhere: Errand) -> None:
    """The first view of a queue is here: publishes find it, and the others when all know it."""
    queue.awaits_view = False
    waiting = queue.view_errand
    if queue.number and not queue.is_remote:
        engine.numbered[queue.number] = queue
    queue.vhost.forget_queue_route(queue.name)
    for source in sorted(queue.sources):
        queue.vhost.forget_routes(source)

    def over() -> None:
        queue.view_errand = None
        if waiting is not None:
            waiting.finish()

    known_everywhere.when_done(over)
