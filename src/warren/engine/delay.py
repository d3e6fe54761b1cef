"""The x-delayed-message exchange: messages wait for their time, then are routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.engine.publish import find_queues, offer
from warren.model.message import Message

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.routing.exchange import Exchange


def delay(
    engine: Engine,
    vhost: VHost,
    exchange: Exchange,
    message: Message,
    keys: list[bytes],
    delay_ms: int,
) -> None:
    """Route the message after a time; bindings count as they are then."""
    engine.delayed_messages += 1

    def ring(now_ms: int) -> None:
        engine.delayed_messages -= 1
        if vhost.exchanges.get(exchange.name) is exchange:
            offer(find_queues(vhost, exchange, message, keys), message, now_ms)

    engine.timers.at(engine.clock.now_ms() + delay_ms, ring)
