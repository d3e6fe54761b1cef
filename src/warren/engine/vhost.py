"""A virtual host: its exchanges, queues and policies, and the routes learnt from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.engine.remembered_routes import RememberedRoutes
from warren.model.errors import NotFound
from warren.routing.exchange import Exchange, make_exchange

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.pausing import Pause
    from warren.model.policy import Policy

TRACE_EXCHANGE = "amq.rabbitmq.trace"
#: The exchanges every virtual host is born with.
DEFAULT_EXCHANGES = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.match", "headers"),
    ("amq.headers", "headers"),
    (TRACE_EXCHANGE, "topic"),
)


class VHost:
    """Everything inside is isolated from other virtual hosts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.description = ""
        self.tags: list[str] = []
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, AmqpQueue] = {}
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}
        #: Queue -> the nodes that are to have a replica of it besides those of its policy.
        self.mirror_links: dict[str, tuple[str, ...]] = {}
        #: Queue -> who has paused its consumers, and when.
        self.pauses: dict[str, Pause] = {}
        self.tracing = False
        #: That something cannot be traced is said once.
        self.trace_fault_logged = False
        self.connections = 0
        self.routes = RememberedRoutes()
        #: How many bindings lead to exchanges, and how many exchanges have an alternate: while
        #: there are none, a route depends on one exchange only.
        self.chained = 0
        for exchange_name, kind in DEFAULT_EXCHANGES:
            self.exchanges[exchange_name] = make_exchange(
                exchange_name, kind, durable=True, internal=exchange_name == TRACE_EXCHANGE
            )

    def exchange(self, name: str) -> Exchange:
        """Raises NotFound when there is none."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'")
        return exchange

    def queue(self, name: str) -> AmqpQueue:
        """The queue for a client; raises NotFound when there is none, or it cannot be reached.

        Raises Postponed while it is on its way out.
        """
        queue = self.known_queue(name)
        queue.check_there()
        return queue

    def known_queue(self, name: str) -> AmqpQueue:
        """The queue, whatever its state. Raises NotFound when there is none."""
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        return queue

    def queues_here(self) -> list[AmqpQueue]:
        """The queues whose messages are on this node."""
        return [queue for queue in self.queues.values() if not queue.is_remote]

    def forget_routes(self, exchange: str) -> None:
        """A binding of the exchange changed; where exchanges are chained, all routes may have."""
        if self.chained:
            self.routes.forget_all()
        else:
            self.routes.forget(exchange)

    def forget_queue_route(self, queue: str) -> None:
        """A queue came or went: its route through the default exchange changes."""
        self.routes.forget_key("", queue.encode("utf-8", "surrogateescape"))
