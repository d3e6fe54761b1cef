"""A get, and a passive declare, on the name of a modulus-hash exchange: see `shards`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.engine.errands import memo_of, take_errand
from warren.engine.queues import QueueFacts, facts, inspect_queue, touch
from warren.engine.remote_consume import Fetching
from warren.engine.shard_members import shard_names
from warren.model.errors import AmqpError, Postponed

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.model.errand import Errand
    from warren.model.message import Message
    from warren.session.channel import Channel
    from warren.session.connection import Connection

Found = tuple["Message", int, bool, int]
GetOne = Callable[["Engine", "Channel", str, bool, "Errand | None"], Found | None]


@dataclass(frozen=True, slots=True)
class Counting:
    """The homes of shards are asked one after the other what is in them."""

    known: dict[str, tuple[int, int]]
    asked: str


def get_from_any(
    engine: Engine,
    channel: Channel,
    names: list[str],
    no_ack: bool,
    errand: Errand | None,
    get_one: GetOne,
) -> Found | None:
    """A message of the next shard that has one; None when all are empty or cannot be reached.

    Raises AccessRefused unless the user may read from all of them.
    """
    for shard in names:
        engine.check_access(channel.connection, "queue", shard, "read")
    tried: tuple[str, ...] = ()
    fetching = memo_of(errand, Fetching)
    if fetching is not None:
        found = get_one(engine, channel, fetching.queue.name, no_ack, errand)
        if found is not None:
            return found
        tried = fetching.tried
    else:
        # Not always the same first: nobody is to wait for it to be empty.
        engine.shard_turn += 1
    first = engine.shard_turn % len(names)
    for shard in names[first:] + names[:first]:
        if shard in tried:
            continue
        tried = (*tried, shard)
        try:
            found = get_one(engine, channel, shard, no_ack, None)
        except Postponed as later:
            asked = memo_of(later.errand, Fetching)
            if asked is not None:
                asked.tried = tried
            raise
        except AmqpError:
            continue  # It cannot be reached at present.
        if found is not None:
            return found
    return None


def inspect(engine: Engine, connection: Connection, name: str) -> QueueFacts:
    """For passive declares: of shards all messages, and the consumers, who are at every one."""
    vhost: VHost = connection.vhost
    names = shard_names(vhost, name)
    if not names:
        return inspect_queue(engine, connection, name)
    errand = take_errand(connection)
    counting = memo_of(errand, Counting)
    known: dict[str, tuple[int, int]] = {}
    if counting is not None and errand is not None:
        known = {**counting.known, counting.asked: tuple(errand.result())}
    for shard in names:
        if shard not in known:
            known[shard] = _count(engine, vhost.queues[shard], known)
    ready = sum(it[0] for it in known.values())
    return name, ready, max(it[1] for it in known.values())


def _count(engine: Engine, queue: Any, known: dict[str, tuple[int, int]]) -> tuple[int, int]:
    try:
        queue.check_there()
    except AmqpError:
        return 0, 0  # It cannot be reached at present.
    if not queue.is_remote:
        touch(engine, queue)
        return facts(queue)[1:]
    assert engine.cluster is not None
    request = engine.cluster.request(queue.home, "facts", (queue.vhost.name, queue.name))
    request.memo = Counting(dict(known), queue.name)
    raise Postponed(errand=request)
