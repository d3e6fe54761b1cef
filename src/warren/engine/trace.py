"""The firehose: while tracing is on, publishes and deliveries go to `amq.rabbitmq.trace` too.

Whoever publishes or consumes must not notice: what cannot be put into a copy is left out of it, and
a copy that cannot be made at all is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.engine.publish import all_keys, find_queues, offer, text
from warren.engine.vhost import TRACE_EXCHANGE
from warren.model.errors import AmqpError
from warren.model.message import Address, Message
from warren.wire.content import make_message
from warren.wire.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.session.channel import Channel

#: What encoding values that came from a client may raise.
FAULTS = (AmqpError, ValueError, TypeError, OverflowError, RecursionError)
#: Type, channel, size and end of a frame.
FRAME_OVERHEAD_BYTES = 8


def set_tracing(engine: Engine, vhost_name: str, on: bool) -> None:
    """Switch the firehose of a virtual host."""
    vhost = engine.vhost(vhost_name)
    vhost.tracing = on
    vhost.trace_fault_logged = False
    for connection in engine.connections:
        if connection.vhost is vhost:
            for channel in connection.open_channels():
                channel.traced = on


def trace_publish(
    engine: Engine, channel: Channel, message: Message, queues: list[AmqpQueue]
) -> None:
    headers = {"routed_queues": [queue.name for queue in queues]}
    _copy(engine, channel, message, f"publish.{text(message.exchange)}", headers)


def trace_delivery(
    engine: Engine, channel: Channel, queue: AmqpQueue | None, message: Message, redelivered: bool
) -> None:
    if message.exchange == TRACE_EXCHANGE.encode():
        return
    name = queue.name if queue is not None else ""
    _copy(engine, channel, message, f"deliver.{name}", {"redelivered": int(redelivered)})


def _copy(
    engine: Engine, channel: Channel, message: Message, key: str, more: dict[str, Any]
) -> None:
    vhost: VHost = channel.connection.vhost
    exchange = vhost.exchanges[TRACE_EXCHANGE]
    try:
        copy = _make_copy(engine, channel, message, key, more)
        queues = find_queues(vhost, exchange, copy, [copy.routing_key])
    except FAULTS as fault:
        if not vhost.trace_fault_logged:
            vhost.trace_fault_logged = True
            engine.log.warning(
                "vhost '%s': some messages cannot be traced: %r", vhost.name, str(fault)
            )
        return
    # A trace must never deliver in the middle of the delivery it reports.
    engine.later(lambda now_ms: _offer_late(engine, queues, copy, now_ms))


def _make_copy(
    engine: Engine, channel: Channel, message: Message, key: str, more: dict[str, Any]
) -> Message:
    connection = channel.connection
    headers = {
        "exchange_name": text(message.exchange),
        "routing_keys": [text(message.routing_key)],
        "node": engine.settings.node_name,
        "vhost": connection.vhost.name,
        "connection": connection.name,
        "channel": channel.number,
        "user": connection.user,
        **more,
    }
    address = Address(TRACE_EXCHANGE.encode(), key.encode("utf-8", "surrogateescape")[:255])
    try:
        properties = decode_properties(message.header)
        keys = all_keys(message, properties.get("headers", {}))
        whole = {
            **headers,
            "routing_keys": [text(key) for key in keys],
            "properties": properties,
        }
        header = _encode(engine, whole, message)
    except FAULTS:
        # They do not fit one level deeper, or not together with what is said about them.
        header = _encode(engine, headers, message)
    return make_message(address, header, message.body)


def _encode(engine: Engine, headers: dict[str, Any], message: Message) -> bytes:
    header = encode_properties({"headers": headers}, message.body_len)
    frame_max = engine.settings.frame_max
    if frame_max and len(header) > frame_max - FRAME_OVERHEAD_BYTES:
        raise ValueError(f"a content header of {len(header)} bytes does not fit a frame")
    return header


def _offer_late(engine: Engine, queues: list[AmqpQueue], copy: Message, now_ms: int) -> None:
    offer(engine, [queue for queue in queues if not queue.deleted], copy, now_ms)
