"""A consumer on the name of a modulus-hash exchange takes from all queues that are bound to it.

To its client it is one consumer with one tag. Behind it there is a member for each queue: the first
one stands in the channel under the tag, the others under the tag and the name of their queue. One
that is lost, since its queue or its home is gone, is missed by nobody while there are others; when
the queue is back, or another one is bound, it is attached within a second.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from warren.engine import remote_consume
from warren.engine.errands import memo_of
from warren.engine.queues import check_exclusive
from warren.engine.shard_members import SHARD_OF, members_of, shard_names
from warren.model.errors import AmqpError, NotAllowed
from warren.session.channel import Channel, Consumer

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.model.errand import Errand
    from warren.session.connection import Connection

#: How often it is looked whether there are queues without a member.
LOOK_MS = 1000


def choose_first(
    engine: Engine,
    connection: Connection,
    name: str,
    exclusive: bool,
    arguments: dict[str, Any],
    errand: Errand | None,
) -> tuple[str, dict[str, Any]]:
    """The queue of the first member, and its arguments; for other names both as they are.

    Raises AccessRefused unless the user may read from all the queues.
    """
    names = shard_names(connection.vhost, name)
    if not names:
        if SHARD_OF in arguments:
            arguments = {key: it for key, it in arguments.items() if key != SHARD_OF}
        return name, arguments
    if exclusive:
        raise NotAllowed(f"'{name}' stands for several queues: nobody can have them alone")
    for shard in names:
        engine.check_access(connection, "queue", shard, "read")
    attaching = memo_of(errand, remote_consume.Attaching)
    queues = connection.vhost.queues
    there = [it for it in names if queues[it].absence is None] or names
    first = next((it for it in there if not queues[it].is_remote), there[0])
    if attaching is not None and attaching.queue.name in names:
        first = attaching.queue.name
    return first, {**arguments, SHARD_OF: name}


def attach_others(engine: Engine, channel: Channel, tag: str, _now_ms: int = 0) -> None:
    """Have a member at every queue, now and from now on, until the consumer is cancelled."""
    first = channel.consumers.get(tag)
    name = None if first is None else first.arguments.get(SHARD_OF)
    if first is None or name is None:
        return
    vhost: VHost = channel.connection.vhost
    members = {it.queue.name for it in members_of(channel, tag)}
    for shard in shard_names(vhost, name):
        if shard not in members:
            _attach(engine, first, vhost.queues[shard])
    engine.timers.at(engine.clock.now_ms() + LOOK_MS, partial(attach_others, engine, channel, tag))


def _attach(engine: Engine, first: Consumer, queue: Any) -> None:
    try:
        queue.check_there()
        engine.check_access(first.channel.connection, "queue", queue.name, "read")
        if not queue.is_remote:
            check_exclusive(queue, False)
    except AmqpError:
        return  # Somebody has it alone, or it cannot be reached at present.
    member = Consumer(
        first.channel,
        first.tag,
        queue,
        first.no_ack,
        False,
        first.priority,
        first.arguments,
        first.prefetch,
    )
    first.channel.consumers[f"{first.tag}\0{queue.name}"] = member
    if queue.is_remote:
        remote_consume.attach_again(engine, queue, member, queue.enter(member))
    else:
        engine.start_member(member)
