"""The firehose: while tracing is on, publishes and deliveries go to `amq.rabbitmq.trace` too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.engine.publish import all_keys, find_queues, offer, text
from warren.engine.vhost import TRACE_EXCHANGE
from warren.model.message import Address, Message
from warren.wire.content import make_message
from warren.wire.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.session.channel import Channel


def set_tracing(engine: Engine, vhost_name: str, on: bool) -> None:
    """Switch the firehose of a virtual host."""
    vhost = engine.vhost(vhost_name)
    vhost.tracing = on
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
    connection = channel.connection
    properties = decode_properties(message.header)
    headers = {
        "exchange_name": text(message.exchange),
        "routing_keys": [text(k) for k in all_keys(message, properties.get("headers", {}))],
        "properties": properties,
        "node": engine.settings.node_name,
        "vhost": connection.vhost.name,
        "connection": connection.name,
        "channel": channel.number,
        "user": connection.user,
        **more,
    }
    address = Address(TRACE_EXCHANGE.encode(), key.encode("utf-8", "surrogateescape")[:255])
    header = encode_properties({"headers": headers}, message.body_len)
    copy = make_message(address, header, message.body)
    exchange = connection.vhost.exchanges[TRACE_EXCHANGE]
    queues = find_queues(connection.vhost, exchange, copy, [copy.routing_key])
    # A trace must never deliver in the middle of the delivery it reports.
    engine.later(lambda now_ms: _offer_late(queues, copy, now_ms))


def _offer_late(queues: list[AmqpQueue], copy: Message, now_ms: int) -> None:
    offer([queue for queue in queues if not queue.deleted], copy, now_ms)
