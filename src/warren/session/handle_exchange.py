"""Methods of class exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.session.names import clean_name

if TYPE_CHECKING:
    from warren.session.channel import Channel

Reply = tuple[Any, ...] | None


def declare(
    channel: Channel,
    _reserved: int,
    exchange: str,
    exchange_type: str,
    passive: bool,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> Reply:
    name = clean_name(exchange)
    if passive:
        channel.engine.find_exchange(channel.connection.vhost, name)
    else:
        channel.engine.declare_exchange(
            channel.connection, name, exchange_type, durable, auto_delete, internal, arguments
        )
    return None if no_wait else ("exchange.declare-ok",)


def delete(
    channel: Channel, _reserved: int, exchange: str, if_unused: bool, no_wait: bool
) -> Reply:
    channel.engine.delete_exchange(channel.connection, clean_name(exchange), if_unused)
    return None if no_wait else ("exchange.delete-ok",)


def bind(
    channel: Channel,
    _reserved: int,
    destination: str,
    source: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> Reply:
    ends = (clean_name(destination), clean_name(source))
    channel.engine.bind(channel.connection, "exchange", *ends, routing_key, arguments)
    return None if no_wait else ("exchange.bind-ok",)


def unbind(
    channel: Channel,
    _reserved: int,
    destination: str,
    source: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> Reply:
    ends = (clean_name(destination), clean_name(source))
    channel.engine.unbind(channel.connection, "exchange", *ends, routing_key, arguments)
    return None if no_wait else ("exchange.unbind-ok",)
