"""Methods of class queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.session.names import clean_name, queue_name

if TYPE_CHECKING:
    from warren.session.channel import Channel

Reply = tuple[Any, ...] | None


def declare(
    channel: Channel,
    _reserved: int,
    queue: str,
    passive: bool,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> Reply:
    name = clean_name(queue)
    if passive:
        name, ready, consumers = channel.engine.inspect_queue(channel.connection, name)
    else:
        name, ready, consumers = channel.engine.declare_queue(
            channel.connection, name, durable, exclusive, auto_delete, arguments
        )
    channel.last_queue = name
    return None if no_wait else ("queue.declare-ok", name, ready, consumers)


def bind(
    channel: Channel,
    _reserved: int,
    queue: str,
    exchange: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> Reply:
    name = queue_name(channel, queue)
    key = name if not queue and not routing_key else routing_key
    source = clean_name(exchange)
    channel.engine.bind(channel.connection, "queue", name, source, key, arguments)
    return None if no_wait else ("queue.bind-ok",)


def unbind(
    channel: Channel,
    _reserved: int,
    queue: str,
    exchange: str,
    routing_key: str,
    arguments: dict[str, Any],
) -> Reply:
    name = queue_name(channel, queue)
    key = name if not queue and not routing_key else routing_key
    source = clean_name(exchange)
    channel.engine.unbind(channel.connection, "queue", name, source, key, arguments)
    return ("queue.unbind-ok",)


def purge(channel: Channel, _reserved: int, queue: str, no_wait: bool) -> Reply:
    count = channel.engine.purge_queue(channel.connection, queue_name(channel, queue))
    return None if no_wait else ("queue.purge-ok", count)


def delete(
    channel: Channel, _reserved: int, queue: str, if_unused: bool, if_empty: bool, no_wait: bool
) -> Reply:
    count = channel.engine.delete_queue(
        channel.connection, queue_name(channel, queue), if_unused, if_empty
    )
    return None if no_wait else ("queue.delete-ok", count)
