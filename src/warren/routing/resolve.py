"""From an exchange to the queues of one message, through other exchanges and alternates.

Every exchange is visited at most once per message, which ends all cycles, and every queue is given
at most once whatever the number of keys, bindings and ways that lead to it. The alternate exchange
of an exchange takes over when that exchange finds no destination at all, queue or exchange, for any
of the keys. An alternate that does not exist is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from warren.routing.exchange import Exchange
from warren.routing.matcher import Table


def resolve(
    exchange: Exchange,
    routing_keys: Sequence[bytes],
    headers: Table | None,
    properties: Table | None,
    lookup: Callable[[str], Exchange | None],
    delaying: list[Exchange] | None = None,
) -> list[Any]:
    """The queues that a message published to `exchange` goes to, nearest exchange first.

    For a message that has to wait, `delaying` takes up the delayed exchanges on the way: it goes no
    further there, and their destinations are found when its time has come.
    """
    visited = {exchange}
    waiting = [exchange]
    queues: dict[Any, None] = {}
    # The list grows while it is walked: exchanges are visited in the order they are found.
    for current in waiting:
        if delaying is not None and current.is_delayed:
            delaying.append(current)
            continue
        found = _match_keys(current, routing_keys, headers, properties)
        if not found and current.alternate is not None:
            alternate = lookup(current.alternate)
            found = [alternate] if alternate is not None else []
        for destination in found:
            if not isinstance(destination, Exchange):
                queues[destination] = None
            elif destination not in visited:
                visited.add(destination)
                waiting.append(destination)
    return list(queues)


def _match_keys(
    exchange: Exchange,
    routing_keys: Sequence[bytes],
    headers: Table | None,
    properties: Table | None,
) -> list[Any]:
    if len(routing_keys) == 1:
        return exchange.match(routing_keys[0], headers, properties)
    found: dict[Any, None] = {}
    for routing_key in routing_keys:
        found.update(dict.fromkeys(exchange.match(routing_key, headers, properties)))
    return list(found)
