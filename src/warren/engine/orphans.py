"""Auto-delete queues whose master was lost: they go, unless one of their consumers comes back.

The consumers that the old master had are known to nobody else. Those of clients on nodes that go on
are attached anew by these nodes; a queue that has none after a while lost its last one with the
master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from warren.engine.consume import delete_if_unused

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.homes import Homes

#: Nodes attach consumers anew as soon as they know the new master, which takes some ms; a node that
#: is slow to hear of it must not find its clients' queue deleted.
CONSUMERS_BACK_MS = 3_000


def await_consumers(engine: Engine, queue: AmqpQueue) -> None:
    """This node is the master of a queue that has had consumers."""
    queue.had_consumers = True

    def ring(_now_ms: int) -> None:
        if queue.deleted or queue.vhost.queues.get(queue.name) is not queue:
            return
        if not cast("Homes", engine.cluster).has_all_links():
            # A node that is alive may have consumers, and cannot say so.
            await_consumers(engine, queue)
        else:
            delete_if_unused(engine, queue)

    engine.timers.at(engine.clock.now_ms() + CONSUMERS_BACK_MS, ring)
