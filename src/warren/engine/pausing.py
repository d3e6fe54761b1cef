"""Queues whose consumers an operator has paused: they are given nothing until they are resumed.

A pause is a definition, so all nodes agree on it, whoever is the master of the queue next has it,
and it outlives a restart of all nodes if its queue does. It goes with its queue.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine


class Pause(NamedTuple):
    """Who has paused a queue, and when by the clock of the node that was asked to."""

    by: str
    at_ms: int


def pause_of(queue: AmqpQueue) -> Pause | None:
    """None: its consumers are not paused."""
    pause: Pause | None = queue.vhost.pauses.get(queue.name)
    return pause


def pause_queue(engine: Engine, vhost_name: str, name: str, by: str, at_ms: int) -> None:
    """Give the consumers of a queue nothing more. Raises NotFound.

    For one that is paused already the last word counts, as for all that operators set.
    """
    vhost = engine.vhost(vhost_name)
    queue = vhost.known_queue(name)
    engine.metadata.queue_paused(queue, by, at_ms)
    vhost.pauses[name] = Pause(by, at_ms)
    _set(engine, queue, True)
    engine.emit("queue.paused", vhost=vhost_name, name=name, by=by)


def resume_queue(engine: Engine, vhost_name: str, name: str) -> bool:
    """Let its consumers go on; False: they were not paused. Raises NotFound."""
    vhost = engine.vhost(vhost_name)
    queue = vhost.known_queue(name)
    if name not in vhost.pauses:
        return False
    engine.metadata.queue_resumed(queue)
    del vhost.pauses[name]
    _set(engine, queue, False)
    engine.emit("queue.resumed", vhost=vhost_name, name=name)
    return True


def _set(engine: Engine, queue: Any, paused: bool) -> None:
    """On what stands for the queue here, and on this node's copy, which may be the next to serve.

    Those that are made later look at the virtual host.
    """
    queue.set_paused(paused)
    if engine.mirrors is not None:
        mirror = engine.mirrors.by_number.get(queue.number)
        if mirror is not None and mirror.queue is not queue:
            mirror.queue.set_paused(paused)
    if not paused:
        # Not in the middle of an image of all definitions, which may bring others that matter.
        engine.later(partial(_go_on, engine, queue.vhost.name, queue.name))


def _go_on(engine: Engine, vhost_name: str, name: str, now_ms: int) -> None:
    vhost = engine.vhosts.get(vhost_name)
    queue = None if vhost is None else vhost.queues.get(name)
    if queue is not None:
        queue.run(now_ms)
