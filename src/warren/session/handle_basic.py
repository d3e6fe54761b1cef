"""Methods of class basic but publish and the plain ack, which the compiled part does itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.model.errors import NotImplemented_, PreconditionFailed
from warren.session.names import DIRECT_REPLY_TO, queue_name
from warren.wire.methods import encode_method
from warren.wire.spec import BY_NAME

if TYPE_CHECKING:
    from warren.session.channel import Channel

Reply = tuple[Any, ...] | None

GET_OK = BY_NAME["basic.get-ok"]


def qos(channel: Channel, prefetch_size: int, prefetch_count: int, global_: bool) -> Reply:
    if prefetch_size:
        raise NotImplemented_(f"prefetch_size!=0 ({prefetch_size})")
    # The answer goes out before the deliveries that a higher limit lets go.
    channel.connection.send(channel.number, "basic.qos-ok")
    if global_:
        channel.set_global_prefetch(prefetch_count)
    else:
        channel.prefetch = prefetch_count
    return None


def consume(
    channel: Channel,
    _reserved: int,
    queue: str,
    consumer_tag: str,
    _no_local: bool,
    no_ack: bool,
    exclusive: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> Reply:
    name = queue if queue == DIRECT_REPLY_TO else queue_name(channel, queue)
    consumer = channel.engine.consume(channel, name, consumer_tag, no_ack, exclusive, arguments)
    # The answer goes out before the first delivery can.
    if not no_wait:
        channel.connection.send(channel.number, "basic.consume-ok", consumer.tag)
    channel.engine.start_consumer(consumer)
    return None


def cancel(channel: Channel, consumer_tag: str, no_wait: bool) -> Reply:
    channel.engine.cancel(channel, consumer_tag)
    return None if no_wait else ("basic.cancel-ok", consumer_tag)


def cancel_ok(_channel: Channel, _consumer_tag: str) -> Reply:
    """Some clients answer our basic.cancel, though it asks for no answer."""
    return None


def get(channel: Channel, _reserved: int, queue: str, no_ack: bool) -> Reply:
    found = channel.engine.get(channel, queue_name(channel, queue), no_ack)
    if found is None:
        return "basic.get-empty", ""
    message, tag, redelivered, remaining = found
    channel.redelivered += redelivered
    payload = encode_method(
        GET_OK,
        tag,
        redelivered,
        message.exchange.decode("utf-8", "surrogateescape"),
        message.routing_key.decode("utf-8", "surrogateescape"),
        remaining,
    )
    channel.outlet.method_with_content(channel.number, payload, message)
    return None


def ack(channel: Channel, tag: int, multiple: bool) -> Reply:
    return _settle(channel, tag, multiple, "ack")


def reject(channel: Channel, tag: int, requeue: bool) -> Reply:
    return _settle(channel, tag, False, "requeue" if requeue else "reject")


def nack(channel: Channel, tag: int, multiple: bool, requeue: bool) -> Reply:
    return _settle(channel, tag, multiple, "requeue" if requeue else "reject")


def _settle(channel: Channel, tag: int, multiple: bool, how: str) -> Reply:
    if channel.transaction is None:
        channel.settle_tag(tag, multiple, how)
        return None
    # What a settlement covers is fixed now: deliveries made before the commit are no part of it.
    settled: set[int] = channel.transaction[0]
    if not (tag == 0 and multiple) and (tag in settled or not channel.is_outstanding(tag)):
        raise PreconditionFailed(f"unknown delivery tag {tag}")
    tags = [tag]
    if multiple:
        out = (entry[0] for entry in channel.deliveries.outstanding())
        tags = [held for held in out if held not in settled and (tag == 0 or held <= tag)]
    settled.update(tags)
    channel.transaction.extend((held, False, how) for held in tags)
    return None


def recover(channel: Channel, requeue: bool) -> Reply:
    recover_async(channel, requeue)
    return ("basic.recover-ok",)


def recover_async(channel: Channel, requeue: bool) -> Reply:
    if not requeue:
        raise NotImplemented_("requeue=false")
    channel.requeue_all()
    return None
