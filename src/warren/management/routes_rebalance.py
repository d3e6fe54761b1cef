"""Spreading the masters of mirrored queues over the nodes."""

from __future__ import annotations

import dataclasses

import msgspec

from warren.management.across import proxied
from warren.management.call import Answer, Call, Route
from warren.management.errors import ApiError, not_found
from warren.management.rebalancer import Rebalancer, read_order


async def rebalance(call: Call) -> Answer:
    """Spread the masters of mirrored queues over the nodes; answered when it has begun."""
    order = read_order(await call.body())
    rebalancer, elsewhere = _whose(call)
    if elsewhere is not None:
        return await proxied(call, elsewhere)
    moves = None if rebalancer is None else await rebalancer.order(order)
    if order.dry_run:
        return [dataclasses.asdict(move) for move in moves or ()]
    return None


async def get_rebalance(call: Call) -> Answer:
    """How far the last rebalancing is, what is appointed, and how many masters each node has."""
    rebalancer, elsewhere = _whose(call)
    if elsewhere is not None:
        return await proxied(call, elsewhere)
    return {"state": "idle"} if rebalancer is None else rebalancer.shown()


async def cancel_rebalance(call: Call) -> Answer:
    """Move no further masters, and forget what is appointed."""
    rebalancer, elsewhere = _whose(call)
    if elsewhere is not None:
        return await proxied(call, elsewhere)
    if rebalancer is None:
        raise not_found()
    await rebalancer.cancel()
    return None


async def get_facts(call: Call) -> Answer:
    """What a plan needs to know of this node."""
    rebalancer = call.context.rebalancer
    if rebalancer is None:
        raise not_found()
    return msgspec.to_builtins(rebalancer.facts(), str_keys=True)


def _whose(call: Call) -> tuple[Rebalancer | None, str | None]:
    """Who does it: this node, or another that is to be asked. Raises 503 while nobody leads."""
    rebalancer = call.context.rebalancer
    if rebalancer is None:
        return None, None
    leader = rebalancer.leader()
    if leader == call.context.node_name:
        return rebalancer, None
    if leader is None or call.is_from_peer:
        raise ApiError(
            503,
            "unavailable",
            "no node leads the agreement; try again in a moment, or see warrenctl cluster_status",
        )
    return rebalancer, leader


ROUTES = (
    Route("POST", "/rebalance/queues", "administrator", rebalance),
    Route("GET", "/rebalance/queues", "administrator", get_rebalance),
    Route("DELETE", "/rebalance/queues", "administrator", cancel_rebalance),
)
#: For other nodes of the cluster only.
PEER_ROUTES = (Route("GET", "/rebalance/facts", "monitor", get_facts),)
