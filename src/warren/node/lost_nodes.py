"""Nodes that an operator has given up are taken out of the table when the node serves again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from warren.cluster.member_effects import Why
from warren.node.agreement import ProposalError
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.node.cluster import NodeCluster

#: How long it may take until they count as down, in seconds, and until all agree on one of them.
PATIENCE_S, AGREE_S = 30.0, 10.0
LOOK_AGAIN_S = 0.2


async def forget_lost(cluster: NodeCluster, names: tuple[str, ...]) -> None:
    """They vote no more; what is left of them is in the table of nodes and in views."""
    until_s = asyncio.get_running_loop().time() + PATIENCE_S
    for name in names:
        while not await _forget(cluster, name):
            if asyncio.get_running_loop().time() > until_s:
                logger("cluster").warning(
                    "%s cannot be forgotten yet, since nobody else has some queue in full: "
                    "warrenctl forget_cluster_node %s says which",
                    name,
                    name,
                )
                break
            await asyncio.sleep(LOOK_AGAIN_S)


async def _forget(cluster: NodeCluster, name: str) -> bool:
    try:
        await cluster.forget(name, AGREE_S)
    except ProposalError as error:
        return error.why is Why.NOT_FOUND
    except TimeoutError:
        return False
    return True
