"""The x-delayed-message exchange: messages wait for their time, then are routed.

What waits belongs to its exchange: it goes when the exchange or the virtual host is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.engine.publish import find_queues, offer
from warren.model.message import Message
from warren.wire.content import make_message
from warren.wire.properties import replace_properties
from warren.wire.tables import encode_value, join_entries, split_entries

if TYPE_CHECKING:
    from warren.base.timers import Timer
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.routing.exchange import Exchange

#: The clock counts whole milliseconds, so a deadline may ring this much early; a delay must not.
CLOCK_STEP_MS = 1


def delay(
    engine: Engine,
    vhost: VHost,
    exchange: Exchange,
    message: Message,
    keys: list[bytes],
    delay_ms: int,
) -> None:
    """Route the message after a time; bindings count as they are then."""
    message = _without_delay(message, delay_ms)
    waiting = engine.delayed.setdefault(exchange, set())

    def ring(now_ms: int) -> None:
        waiting.discard(timer)
        if not waiting:
            engine.delayed.pop(exchange, None)
        offer(engine, find_queues(vhost, exchange, message, keys), message, now_ms)

    timer: Timer = engine.timers.at(engine.clock.now_ms() + delay_ms + CLOCK_STEP_MS, ring)
    waiting.add(timer)


def drop_delayed(engine: Engine, exchange: Exchange) -> None:
    """The exchange is gone, and with it what it keeps."""
    for timer in engine.delayed.pop(exchange, ()):
        timer.cancel()


def _without_delay(message: Message, delay_ms: int) -> Message:
    """The delay's sign is turned, so that no other exchange on the way delays it again."""
    entries = split_entries(message.headers_table)
    entries["x-delay"] = encode_value(-delay_ms)
    header = replace_properties(message.header, {"headers": join_entries(entries)})
    return make_message(message.address, header, message.body)
