"""Messages through the API: publish one, take some, move them on."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warren.engine.opening import until_open
from warren.engine.publish import all_keys, find_destinations, offer
from warren.management.encode import table
from warren.management.errors import bad_request
from warren.model.errors import AccessRefused, AmqpError, PreconditionFailed
from warren.model.message import MARK_BAD_EXPIRATION, Address, Message
from warren.wire.content import make_message
from warren.wire.properties import PROPERTY_NAMES, decode_properties, encode_properties

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost

#: How each way of taking messages settles them; the flag says whether they were kept out.
ACK_MODES = {
    "ack_requeue_true": (False, "requeue"),
    "reject_requeue_true": (False, "requeue"),
    "reject_requeue_false": (False, "reject"),
    "ack_requeue_false": (True, ""),
}


def octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def build_message(
    exchange: str, routing_key: str, properties: Mapping[str, Any], body: bytes
) -> Message:
    """A message out of JSON. Raises 400 for properties that cannot be."""
    unknown = sorted(set(properties) - set(PROPERTY_NAMES))
    if unknown:
        raise bad_request(f"{{unknown_property,{unknown[0]}}}")
    if len(octets(routing_key)) > 255:
        raise bad_request("routing key too long")
    try:
        header = encode_properties(dict(properties), len(body))
    except (AmqpError, ValueError, TypeError, OverflowError, RecursionError, AttributeError) as bad:
        raise bad_request(f"properties cannot be used: {bad}") from bad
    message = make_message(Address(octets(exchange), octets(routing_key)), header, body)
    if message.marks & MARK_BAD_EXPIRATION:
        raise bad_request(f"invalid expiration '{properties.get('expiration')}'")
    return message


def publish(engine: Engine, actor: Any, message: Message) -> bool:
    """Publish as a user; whether any queue took it. Raises what a channel would."""
    vhost: VHost = actor.vhost
    user: str = actor.user
    name = message.exchange.decode()
    exchange = vhost.exchange(name)
    engine.check_access(actor, "exchange", name, "write")
    key = message.routing_key.decode("utf-8", "surrogateescape")
    if exchange.type == "topic":
        engine.directory.check_topic_access(user, vhost.name, name, key, "write")
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{vhost.name}'")
    if message.body_len > engine.settings.max_message_bytes:
        raise PreconditionFailed(
            f"message size {message.body_len} is larger than configured max size "
            f"{engine.settings.max_message_bytes}"
        )
    properties = decode_properties(message.header)
    claimed = properties.get("user_id")
    if claimed is not None and claimed != user:
        raise PreconditionFailed(
            f"user_id property set to '{claimed}' but authenticated user was '{user}'"
        )
    keys = all_keys(message, properties.get("headers", {}))
    queues, is_kept = find_destinations(engine, vhost, exchange, message, keys)
    engine.totals.count(vhost.name, "publish")
    exchange.counts.received += 1
    exchange.counts.routed += len(queues)
    if not queues and not is_kept:
        engine.totals.count(vhost.name, "return_unroutable")
        return False
    offer(engine, queues, message, engine.clock.now_ms())
    return True


def take(
    engine: Engine, queue: AmqpQueue, count: int, ack_mode: str
) -> list[tuple[Message, bool, int]]:
    """Take up to a number of messages: (message, redelivered, messages left)."""
    no_ack, settlement = ACK_MODES[ack_mode]
    now_ms = engine.clock.now_ms()
    mark = queue.open_ahead(count)
    if mark:
        raise until_open(queue, mark)
    taken: list[tuple[Message, bool, int]] = []
    slots: list[int] = []
    while len(taken) < count:
        found = queue.get(no_ack, now_ms)
        if found is None:
            queue.got_empty += 1
            break
        if found == 0:
            # Rare: messages far apart. Those at hand are a fair answer.
            break
        message, slot, redelivered = found
        taken.append((message, redelivered, queue.ready))
        slots.append(slot)
    if not no_ack:
        # Only now, or each would be the next one again.
        for slot in slots:
            queue.settle(settlement, slot)
        queue.run(now_ms)
    return taken


def show_message(
    message: Message, redelivered: bool, left: int, encoding: str, truncate: int | None
) -> dict[str, Any]:
    """A message as the API shows it."""
    body = message.body if truncate is None else message.body[:truncate]
    payload, shown_as = _payload(body, encoding, truncate is not None)
    properties = table(decode_properties(message.header))
    return {
        "payload_bytes": message.body_len,
        "redelivered": redelivered,
        "exchange": message.exchange.decode("utf-8", "replace"),
        "routing_key": message.routing_key.decode("utf-8", "replace"),
        "message_count": left,
        # An empty list: RabbitMQ's clients know it so.
        "properties": properties or [],
        "payload": payload,
        "payload_encoding": shown_as,
    }


def headers_of(message: Message) -> Mapping[str, Any]:
    """The headers of a message; none, where it has none."""
    found = decode_properties(message.header).get("headers")
    return found if isinstance(found, dict) else {}


def _payload(body: bytes, encoding: str, is_cut: bool) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return body.decode("utf-8"), "string"
        except UnicodeDecodeError as error:
            # A cut may go through a letter: what is before it is text all the same.
            if is_cut and error.start >= len(body) - 3 and error.reason == "unexpected end of data":
                return body[: error.start].decode("utf-8"), "string"
    return base64.b64encode(body).decode("ascii"), "base64"


def decode_payload(payload: str, encoding: str) -> bytes:
    """The body out of JSON. Raises 400."""
    if encoding == "string":
        return octets(payload)
    if encoding == "base64":
        try:
            return base64.b64decode(payload, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request("payload is not base64") from None
    raise bad_request(f"unsupported_encoding: {encoding}")


def round_trip(engine: Engine, vhost: VHost, queue_name: str) -> bool:
    """Whether a message goes in and comes out again."""
    queue = vhost.queue(queue_name)
    message = build_message("", queue_name, {}, b"test_message")
    if offer(engine, [queue], message, engine.clock.now_ms()):
        return False
    found = queue.get(True, engine.clock.now_ms())
    return isinstance(found, tuple) and found[0].body == b"test_message"
