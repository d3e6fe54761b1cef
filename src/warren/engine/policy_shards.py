"""Shards by policy, as RabbitMQ's sharding plugin has them.

A policy with `shards-per-node` on a modulus-hash exchange makes so many queues on every node, bound
with its `routing-key`. Each node makes its own, soon after it sees that they are missing: when the
policy or the exchange is new, and when the node joins or comes back. None is ever deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from warren.engine.exchanges import add_binding
from warren.engine.queues import add_queue
from warren.model.errors import AmqpError, Postponed
from warren.model.policy import match, merge
from warren.model.queue_arguments import QueueDeclaration
from warren.routing.binding import Binding
from warren.routing.exchange import MODULUS_TYPE

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.model.errand import Errand
    from warren.routing.exchange import Exchange

LOOK_MS = 1000


def shard_name(exchange: str, node: str, number: int) -> str:
    """What the plugin calls them, too."""
    return f"sharding: {exchange} - {node} - {number}"


class PolicyShards:
    """`may_make` says whether this node is to have queues now."""

    def __init__(self, engine: Engine, may_make: Callable[[], bool]) -> None:
        self._engine = engine
        self._may_make = may_make
        #: A queue or binding that the nodes are agreeing on.
        self._errand: Errand | None = None

    def start(self) -> None:
        """Look now and then, from now on."""
        engine = self._engine
        engine.timers.at(engine.clock.now_ms() + LOOK_MS, self._ring)

    def _ring(self, now_ms: int) -> None:
        self._engine.timers.at(now_ms + LOOK_MS, self._ring)
        self._look(now_ms)

    def _look(self, _now_ms: int) -> None:
        if (self._errand is not None and not self._errand.is_done) or not self._may_make():
            return
        self._errand = None
        for make in self._missing():
            try:
                make()
            except Postponed as later:
                self._errand = later.errand
                if self._errand is not None:
                    # The next one at once: there may be many.
                    self._errand.when_done(partial(self._engine.later, self._look))
                return
            except AmqpError as error:
                self._engine.log.warning("no shards are made for now: %s", error)
                return

    def _missing(self) -> Iterator[Callable[[], object]]:
        for vhost in list(self._engine.vhosts.values()):
            if not vhost.policies:
                continue
            for exchange in list(vhost.exchanges.values()):
                if exchange.type == MODULUS_TYPE:
                    yield from self._missing_of(vhost, exchange)

    def _missing_of(self, vhost: VHost, exchange: Exchange) -> Iterator[Callable[[], object]]:
        engine, here = self._engine, self._engine.settings.node_name
        definition = merge(match(vhost.policies.values(), "exchange", exchange.name), None)
        count, key = definition.get("shards-per-node"), definition.get("routing-key", "")
        if not isinstance(count, int) or not isinstance(key, str):
            return
        for number in range(count):
            name = shard_name(exchange.name, here, number)
            queue = vhost.queues.get(name)
            if queue is None:
                limit = engine.directory.vhost_limit(vhost.name, "max-queues")
                if limit is not None and len(vhost.queues) >= limit:
                    return
                declaration = QueueDeclaration(exchange.durable, False, False, {})
                yield partial(add_queue, engine, vhost, name, declaration, None, here)
                queue = vhost.queues[name]
            binding = Binding(
                exchange.name, "queue", name, key.encode("utf-8", "surrogateescape"), {}
            )
            if not exchange.holds(binding):
                yield partial(add_binding, engine, vhost, exchange, binding, queue)
