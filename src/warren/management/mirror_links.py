"""Whether an operator may have a mirror of a queue on a node, or may give one up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.engine.mirror_links import links_of
from warren.management.errors import bad_request
from warren.management.mirrors import view_of

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.management.context import Context


def check_new_link(context: Context, queue: AmqpQueue, node: str) -> None:
    """Raises 400, with what to do instead."""
    engine, named = context.engine, f"queue '{queue.name}'"
    if queue.declaration.exclusive:
        raise bad_request(f"{named} is exclusive: it goes with its connection, and has no mirrors")
    if engine.mirrors is None or engine.cluster is None:
        raise bad_request(
            "there are mirrors in a cluster whose nodes have data directories only: "
            "see warrenctl cluster_status"
        )
    control = context.cluster_control()
    members = () if control is None else control.status().members
    member = next((it for it in members if it.name == node), None)
    if member is None:
        known = ", ".join(it.name for it in members)
        raise bad_request(f"{node} is not in the cluster; its nodes are {known}")
    if node in links_of(queue):
        raise bad_request(f"{node} has an explicit mirror of {named} already")
    if member.is_drained:
        raise bad_request(
            f"{node} is drained, so it gets no mirrors: warrenctl -n {node} revive, or another node"
        )
    view = view_of(engine, queue)
    if node == (queue.home if view is None else view.master):
        raise bad_request(f"{node} is the master of {named}: name another node")
    if view is not None and node in view.wanted:
        policy = "its policy" if queue.policy is None else f"policy '{queue.policy.name}'"
        raise bad_request(f"{node} has a mirror of {named} already, by {policy}")


def check_old_link(engine: Engine, queue: AmqpQueue, node: str) -> None:
    """Raises 400, with what to do instead."""
    links = links_of(queue)
    if node not in links:
        explicit = ", ".join(links) or "nobody"
        raise bad_request(
            f"{node} has no explicit mirror of queue '{queue.name}'; {explicit} has. "
            "Those of a policy go with the policy"
        )
    view = view_of(engine, queue)
    if view is None or view.master != node:
        return
    others = [name for name in view.wanted if name != node]
    if others:
        heirs = [name for name in view.in_sync if name in others]
        first = (
            f"warrenctl transfer_master '{queue.name}' {heirs[0]}"
            if heirs
            else f"warrenctl sync_queue '{queue.name}', then transfer_master"
        )
        raise bad_request(f"{node} is the master of queue '{queue.name}' now. First: {first}")
