"""The consumer timeout: a delivery left unacknowledged for too long closes its channel.

Channels may hold very many deliveries, so each is gone through only when one of them can be late:
when the first it held at the last look is due, or when one made since then may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.model.errors import PreconditionFailed

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.session.channel import Channel

#: How often channels are looked at; a timeout is noticed at most this much late.
CHECK_INTERVAL_MS = 5000
#: Later than all times there are.
NEVER_MS = 2**62


def watch_timeouts(engine: Engine) -> None:
    """Start looking; each look arranges for the next."""

    def ring(now_ms: int) -> None:
        # The next look is arranged first: a fault in this one must not be the last.
        engine.timers.at(now_ms + CHECK_INTERVAL_MS, ring)
        look(engine, now_ms)

    engine.timers.at(engine.clock.now_ms() + CHECK_INTERVAL_MS, ring)


def note_timeout(engine: Engine, queue: AmqpQueue) -> None:
    """To be called when what governs a queue has changed, and when it is deleted."""
    timeout_ms = None if queue.deleted else queue.effective.consumer_timeout_ms
    if timeout_ms == engine.timed_queues.get(queue):
        return
    if timeout_ms is None:
        del engine.timed_queues[queue]
    else:
        engine.timed_queues[queue] = timeout_ms
    if queue.unacked:
        # What is out already is due at another time than the last look found.
        engine.timeout_looks.clear()


def look(engine: Engine, now_ms: int) -> None:
    """Look at the channels that may hold a delivery for too long; without a timeout, at none."""
    everywhere_ms = engine.settings.consumer_timeout_ms
    in_use = [queue for queue in engine.timed_queues if queue.unacked]
    timeouts_ms = [engine.timed_queues[queue] for queue in in_use]
    if everywhere_ms is not None:
        timeouts_ms.append(everywhere_ms)
    if not timeouts_ms:
        return
    shortest_ms = min(timeouts_ms)
    vhosts = {queue.vhost for queue in in_use}
    for connection in list(engine.connections):
        if everywhere_ms is not None or connection.vhost in vhosts:
            for channel in connection.open_channels():
                if channel.closing or not channel.deliveries.live:
                    continue
                looked_ms, due_ms = engine.timeout_looks.get(channel, (0, 0))
                if now_ms > min(looked_ms + shortest_ms, due_ms):
                    _check(engine, channel, now_ms)


def _check(engine: Engine, channel: Channel, now_ms: int) -> None:
    first_due_ms = NEVER_MS
    for tag, queue, consumer, at_ms in channel.deliveries.outstanding():
        timeout_ms = _timeout_ms(engine, queue)
        if timeout_ms is None:
            continue
        if now_ms - at_ms > timeout_ms:
            by = f"consumer '{consumer.tag}'" if consumer is not None else "basic.get"
            error = PreconditionFailed(
                f"delivery acknowledgement on channel {channel.number} timed out. "
                f"Timeout value used: {timeout_ms} ms. Delivery {tag} to {by} is "
                f"{now_ms - at_ms} ms old"
            )
            channel.connection.fail(error, channel.number)
            return
        first_due_ms = min(first_due_ms, at_ms + timeout_ms)
    engine.timeout_looks[channel] = (now_ms, first_due_ms)


def _timeout_ms(engine: Engine, queue: AmqpQueue) -> int | None:
    if queue.effective.consumer_timeout_ms is not None:
        return queue.effective.consumer_timeout_ms
    return engine.settings.consumer_timeout_ms
