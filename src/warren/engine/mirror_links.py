"""Mirrors by an operator's word: nodes that are to have a replica of a queue, whatever its policy.

They are definitions, so all nodes agree on them. They go with their queue and with their node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.model.errors import PreconditionFailed

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine


def links_of(queue: AmqpQueue) -> tuple[str, ...]:
    """The nodes that an operator wants replicas of the queue on, in the order they were named."""
    links: tuple[str, ...] = queue.vhost.mirror_links.get(queue.name, ())
    return links


def add_mirror_link(engine: Engine, vhost_name: str, name: str, node: str) -> bool:
    """Want a replica of a queue on a node; False: that is so already.

    Raises NotFound, and PreconditionFailed for a queue that goes with its connection.
    """
    vhost = engine.vhost(vhost_name)
    queue = vhost.known_queue(name)
    if queue.declaration.exclusive:
        raise PreconditionFailed(
            f"queue '{name}' in vhost '{vhost_name}' is exclusive: it goes with its connection, "
            "and has no mirrors"
        )
    if node in links_of(queue):
        return False
    engine.metadata.mirror_link_added(vhost, name, node)
    vhost.mirror_links[name] = (*links_of(queue), node)
    _changed(engine, queue)
    engine.emit("queue.mirror_link.added", vhost=vhost_name, name=name, node=node)
    return True


def remove_mirror_link(engine: Engine, vhost_name: str, name: str, node: str) -> bool:
    """Leave that to the policy again; False: there is no such link. Raises NotFound."""
    vhost = engine.vhost(vhost_name)
    queue = vhost.known_queue(name)
    if node not in links_of(queue):
        return False
    engine.metadata.mirror_link_removed(vhost, name, node)
    left = tuple(other for other in links_of(queue) if other != node)
    if left:
        vhost.mirror_links[name] = left
    else:
        del vhost.mirror_links[name]
    _changed(engine, queue)
    engine.emit("queue.mirror_link.removed", vhost=vhost_name, name=name, node=node)
    return True


def remove_links_to(engine: Engine, node: str) -> None:
    """A node will not come back."""
    for vhost in engine.vhosts.values():
        for name in [name for name, nodes in vhost.mirror_links.items() if node in nodes]:
            remove_mirror_link(engine, vhost.name, name, node)


def _changed(engine: Engine, queue: AmqpQueue) -> None:
    """Whether its mirrors are synchronised without being told may depend on it."""
    if engine.mirrors is not None and not engine.restoring:
        engine.mirrors.govern(queue)
