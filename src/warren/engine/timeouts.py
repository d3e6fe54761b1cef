"""The consumer timeout: a delivery left unacknowledged for too long closes its channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.model.errors import PreconditionFailed

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.session.channel import Channel

#: How often channels are looked at; a timeout is noticed at most this much late.
CHECK_INTERVAL_MS = 5000


def watch_timeouts(engine: Engine) -> None:
    """Start looking; each look arranges for the next."""

    def ring(now_ms: int) -> None:
        # The next look is arranged first: a fault in this one must not be the last.
        engine.timers.at(now_ms + CHECK_INTERVAL_MS, ring)
        look(engine, now_ms)

    engine.timers.at(engine.clock.now_ms() + CHECK_INTERVAL_MS, ring)


def note_timeout(engine: Engine, queue: AmqpQueue) -> None:
    """To be called when what governs a queue has changed, and when it is deleted."""
    if queue.effective.consumer_timeout_ms is None or queue.deleted:
        engine.timed_queues.discard(queue)
    else:
        engine.timed_queues.add(queue)


def look(engine: Engine, now_ms: int) -> None:
    """Look at the channels that may hold a delivery for too long; without a timeout, at none."""
    everywhere = engine.settings.consumer_timeout_ms is not None
    vhosts = {queue.vhost for queue in engine.timed_queues if queue.unacked}
    if not everywhere and not vhosts:
        return
    for connection in list(engine.connections):
        if everywhere or connection.vhost in vhosts:
            for channel in connection.open_channels():
                if not channel.closing and channel.deliveries.live:
                    _check(engine, channel, now_ms)


def _check(engine: Engine, channel: Channel, now_ms: int) -> None:
    for tag, queue, consumer, at_ms in channel.deliveries.outstanding():
        timeout_ms = _timeout_ms(engine, queue)
        if timeout_ms is not None and now_ms - at_ms > timeout_ms:
            by = f"consumer '{consumer.tag}'" if consumer is not None else "basic.get"
            error = PreconditionFailed(
                f"delivery acknowledgement on channel {channel.number} timed out. "
                f"Timeout value used: {timeout_ms} ms. Delivery {tag} to {by} is "
                f"{now_ms - at_ms} ms old"
            )
            channel.connection.fail(error, channel.number)
            return


def _timeout_ms(engine: Engine, queue: AmqpQueue) -> int | None:
    if queue.effective.consumer_timeout_ms is not None:
        return queue.effective.consumer_timeout_ms
    return engine.settings.consumer_timeout_ms
