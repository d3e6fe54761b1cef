"""Having another replica of a queue be its master, and waiting for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from warren.management.errors import ApiError, bad_request
from warren.management.mirrors import command_on, view_of

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.management.context import Context

#: How long an operator waits for another master, in seconds, and how often that is looked at.
HAND_OVER_S, LOOK_S = 10.0, 0.005


async def transfer(context: Context, queue: AmqpQueue, node: str) -> None:
    """Hand a queue of this node over. Raises 400 when that cannot be, 503 when it takes too long.

    A handover: nothing is redelivered, and no publish fails.
    """
    mirrors = context.engine.mirrors
    assert mirrors is not None
    _check_successor(context, queue, node)
    context.act(lambda: mirrors.hand_over(queue, node))
    await _await_master(context, queue, node)


async def _await_master(context: Context, queue: AmqpQueue, node: str) -> None:
    views, loop = context.engine.views, asyncio.get_running_loop()
    end_s = loop.time() + HAND_OVER_S
    while loop.time() < end_s:
        view = views.get(queue.number)
        if view is None or view.master == node:
            return
        await asyncio.sleep(LOOK_S)
    raise ApiError(
        503,
        "unavailable",
        f"after {HAND_OVER_S:g} s {node} is not master of queue '{queue.name}': "
        f"{command_on(queue, 'explain')} says why",
    )


def _check_successor(context: Context, queue: AmqpQueue, node: str) -> None:
    """Raises 400 unless the node has everything, and is another than the master."""
    view = view_of(context.engine, queue)
    if view is None:
        raise bad_request("not_mirrored")
    cluster = context.engine.cluster
    # Who is in service is known at once, who is drained is a part of the whole status: when masters
    # are rebalanced, this is asked for hundreds of times.
    may_be_drained = cluster is None or node not in cluster.nodes_in_service()
    if may_be_drained and node in context.drained_nodes():
        raise bad_request(f"{node} is drained, so it gets no masters: warrenctl -n {node} revive")
    others = [name for name in view.in_sync if name != view.master]
    if node == view.master:
        raise bad_request(f"{node} is the master of queue '{queue.name}' already")
    if node not in others:
        known = ", ".join(others) or "nobody"
        raise bad_request(
            f"{node} has no synchronised mirror of queue '{queue.name}'. Who has: {known}"
        )
