"""Publishing in full: finding routes, and every message that the straight path cannot take.

The straight path (`session.channel.finish`) hands a message to the queues of its route. It comes
here for the route, and for messages with a user id, a reply address or carbon copies, for exchanges
that look at headers, for delays, for tracing, and when no queue is found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from warren.engine.direct_reply import reply
from warren.model.errors import AccessRefused, PreconditionFailed
from warren.model.message import (
    MARK_BAD_EXPIRATION,
    MARK_CARBON_COPY,
    MARK_DELAY,
    MARK_HEADERS,
    MARK_REPLY_TO,
    MARK_USER_ID,
    Address,
    Message,
)
from warren.model.ports import Route
from warren.model.queue_arguments import amqp_type_name
from warren.routing.exchange import Exchange
from warren.routing.resolve import resolve
from warren.session.names import DIRECT_REPLY_TO
from warren.wire.content import make_message
from warren.wire.methods import encode_method
from warren.wire.properties import decode_properties, replace_properties
from warren.wire.spec import BY_NAME
from warren.wire.tables import decode_table, join_entries, split_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.session.channel import Channel

REPLY_PREFIX = (DIRECT_REPLY_TO + ".").encode()
INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
RETURN = BY_NAME["basic.return"]
NO_ROUTE = 312
#: So many books of deleted exchanges are let be in a channel before they are swept out.
STALE_BOOKS_MAX = 64
SPECIAL = MARK_BAD_EXPIRATION | MARK_USER_ID | MARK_REPLY_TO | MARK_CARBON_COPY


def text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def route_for(engine: Engine, channel: Channel, exchange_name: bytes, routing_key: bytes) -> Route:
    """The route of a publish, after checking that the client may publish there at all."""
    connection = channel.connection
    vhost: VHost = connection.vhost
    name = text(exchange_name)
    exchange = vhost.exchange(name)
    # The right to publish was checked for this very exchange, not for one of its name.
    if channel.books.get(exchange_name) is vhost.routes.book(name):
        return find_route(vhost, exchange, routing_key)
    engine.check_access(connection, "exchange", name, "write")
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{vhost.name}'")
    if exchange.type == "topic" and engine.directory.list_topic_permissions(
        connection.user, vhost.name
    ):
        engine.directory.check_topic_access(
            connection.user, vhost.name, name, text(routing_key), "write"
        )
    else:
        _keep_book(vhost, channel, exchange_name)
    return find_route(vhost, exchange, routing_key)


def _keep_book(vhost: VHost, channel: Channel, exchange_name: bytes) -> None:
    """The channel looks routes up by itself from now on."""
    if len(channel.books) > vhost.routes.exchanges + STALE_BOOKS_MAX:
        for known, book in list(channel.books.items()):
            if not vhost.routes.holds(text(known), book):
                del channel.books[known]
    channel.books[exchange_name] = vhost.routes.book(text(exchange_name))


def find_route(vhost: VHost, exchange: Exchange, routing_key: bytes) -> Route:
    route = vhost.routes.find(exchange.name, routing_key)
    if route is not None:
        return route
    address = Address(exchange.name.encode("utf-8", "surrogateescape"), routing_key)
    if exchange.name == "":
        queue = vhost.queues.get(text(routing_key))
        if queue is not None and queue.awaits_view:
            queue = None
        plain = not routing_key.startswith(REPLY_PREFIX)
        route = Route(address, exchange, (queue,) if queue is not None else (), plain)
    elif is_plain(vhost, exchange):
        queues = resolve(exchange, (routing_key,), None, None, vhost.exchanges.get)
        route = Route(address, exchange, tuple(_there(queues)), True)
    else:
        route = Route(address, exchange, (), False)
    vhost.routes.remember(exchange.name, routing_key, route)
    return route


def is_plain(vhost: VHost, exchange: Exchange) -> bool:
    """Whether the routing key alone decides, in this exchange and all it leads to."""
    if not vhost.chained:
        return exchange.caches_by_key and not exchange.is_delayed
    seen = {exchange.name}
    waiting = [exchange]
    for current in waiting:
        if not current.caches_by_key or current.is_delayed:
            return False
        nearby = [b.destination for b in current.bindings() if b.destination_kind == "exchange"]
        if current.alternate is not None:
            nearby.append(current.alternate)
        for name in nearby:
            if name not in seen and name in vhost.exchanges:
                seen.add(name)
                waiting.append(vhost.exchanges[name])
    return True


def publish(
    engine: Engine, channel: Channel, message: Message, route: Route, mandatory: bool
) -> int:
    """Publish in full; 1 when some queue refused it, so that the publisher gets a nack."""
    vhost: VHost = channel.connection.vhost
    keys = [message.routing_key]
    if message.marks & SPECIAL:
        check_properties(engine, channel, message)
        if message.marks & MARK_REPLY_TO:
            message = _with_reply_address(engine, channel, message)
        if message.marks & MARK_CARBON_COPY:
            message, keys = _with_carbon_copies(message)
    exchange: Exchange = route.exchange
    if exchange.name == "" and message.routing_key.startswith(REPLY_PREFIX):
        return _reply(engine, channel, message, mandatory)
    is_kept = False
    if vhost.exchanges.get(exchange.name) is not exchange:
        # Deleted before the transaction was committed.
        queues: list[AmqpQueue] = []
    elif route.plain and route.valid and len(keys) == 1:
        queues = list(route.queues)
    else:
        queues, is_kept = find_destinations(engine, vhost, exchange, message, keys)
    if channel.traced:
        engine.trace_publish(channel, message, queues)
    if not queues and not is_kept:
        if mandatory:
            return_message(channel, message)
        else:
            engine.unroutable_dropped += 1
            engine.totals.count(vhost.name, "drop_unroutable")
        return 0
    route.counts.routed += len(queues)
    refused = offer(engine, queues, message, channel.outlet.now_ms)
    for queue in queues:
        if queue.congested:
            channel.outlet.link.hold(queue)
    return refused


def find_destinations(
    engine: Engine,
    vhost: VHost,
    exchange: Exchange,
    message: Message,
    keys: list[bytes],
) -> tuple[list[AmqpQueue], bool]:
    """Where a message goes now, and whether a delayed exchange on its way keeps it for later."""
    found, is_kept = find_all(engine, vhost, exchange, message, keys)
    return list(_there(found)), is_kept


def find_all(
    engine: Engine,
    vhost: VHost,
    exchange: Exchange,
    message: Message,
    keys: list[bytes],
    again: bool = False,
) -> tuple[list[AmqpQueue], bool]:
    """The same, with those queues that nothing may be given to yet.

    `again`: delayed exchanges on its way have it already.
    """
    delay_ms = _delay_ms(message) if message.marks & MARK_DELAY else 0
    if delay_ms <= 0:
        return _find_queues(vhost, exchange, message, keys, None), False
    delaying: list[Exchange] = []
    queues = _find_queues(vhost, exchange, message, keys, delaying)
    for keeper in () if again else delaying:
        engine.delay(vhost, keeper, message, delay_ms)
    return queues, bool(delaying)


def all_keys(message: Message, table: dict[str, Any]) -> list[bytes]:
    """The routing keys of a published message: its own, those in CC, those that were in BCC."""
    keys = [message.routing_key]
    copies = table.get("CC")
    if isinstance(copies, list):
        keys += [c.encode("utf-8", "surrogateescape") for c in copies if isinstance(c, str)]
    return list(dict.fromkeys([*keys, *message.address.hidden_keys]))


def offer(engine: Engine, queues: list[AmqpQueue], message: Message, now_ms: int) -> int:
    """Give a message to all its queues; 1 when one of them refused it."""
    refused = 0
    if message.place:
        # Another queue may hold it under that place in the log; these get one of their own.
        message = make_message(message.address, message.header, message.body)
    for queue in queues:
        if not queue.offer(message, now_ms):
            refused = 1
    if engine.journal is not None:
        engine.journal.finish_publish(message)
    return refused


def find_queues(
    vhost: VHost, exchange: Exchange, message: Message, keys: list[bytes]
) -> list[AmqpQueue]:
    """Where a message goes, looking at everything an exchange may look at; see `resolve`."""
    return list(_there(_find_queues(vhost, exchange, message, keys, None)))


def _find_queues(
    vhost: VHost,
    exchange: Exchange,
    message: Message,
    keys: list[bytes],
    delaying: list[Exchange] | None,
) -> list[AmqpQueue]:
    if exchange.name == "":
        found = (vhost.queues.get(text(key)) for key in keys)
        return list(dict.fromkeys(queue for queue in found if queue is not None))
    headers: dict[str, Any] = {}
    if message.marks & MARK_HEADERS:
        headers = decode_table(message.headers_table)
    properties = decode_properties(message.header)
    return list(resolve(exchange, keys, headers, properties, vhost.exchanges.get, delaying))


def _there(queues: Iterable[AmqpQueue]) -> Iterator[AmqpQueue]:
    """Those that messages may be given to: not those whose first view is on its way."""
    return (queue for queue in queues if not queue.awaits_view)


def return_message(channel: Channel, message: Message) -> None:
    """No queue took a mandatory message: it goes back, before its confirm."""
    payload = encode_method(
        RETURN, NO_ROUTE, "NO_ROUTE", text(message.exchange), text(message.routing_key)
    )
    channel.outlet.method_with_content(channel.number, payload, message)
    engine, vhost = channel.engine, channel.connection.vhost.name
    engine.totals.count(vhost, "return_unroutable")
    if engine.on_return is not None:
        engine.on_return(vhost, message.body_len)


def check_properties(_engine: Engine, channel: Channel, message: Message) -> None:
    """The properties that a publish can be refused for. Raises PreconditionFailed."""
    properties = decode_properties(message.header)
    if message.marks & MARK_BAD_EXPIRATION:
        given = properties["expiration"]
        raise PreconditionFailed(f"invalid expiration '{given}': {_expiration_fault(given)}")
    if message.marks & MARK_USER_ID:
        claimed, user = properties["user_id"], channel.connection.user
        if claimed != user and not channel.engine.directory.user(user).has_tag("impersonator"):
            raise PreconditionFailed(
                f"user_id property set to '{claimed}' but authenticated user was '{user}'"
            )


def _expiration_fault(given: str) -> str:
    """What is wrong with an expiration, in the words clients know."""
    number = INTEGER.match(given)
    if number is None:
        return "no_integer"
    if number.end() < len(given):
        return f'{{leftover_string,"{given[number.end() :]}"}}'
    kind = "value_negative" if given.startswith("-") else "value_too_large"
    return f"{{{kind},{number.group()}}}"


def _with_reply_address(engine: Engine, channel: Channel, message: Message) -> Message:
    address = engine.reply_address(channel)
    if address is None:
        raise PreconditionFailed("fast reply consumer does not exist")
    header = replace_properties(message.header, {"reply_to": address})
    return make_message(message.address, header, message.body)


def _with_carbon_copies(message: Message) -> tuple[Message, list[bytes]]:
    """The routing keys with those in CC and BCC; BCC is not shown to consumers."""
    table = decode_table(message.headers_table)
    keys = [message.routing_key]
    for name in ("CC", "BCC"):
        shown = len(keys)
        if name not in table:
            continue
        values = table[name]
        if not isinstance(values, list):
            kind = amqp_type_name(values)
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
            )
        for value in values:
            if isinstance(value, bytes):
                keys.append(bytes(value))
            elif isinstance(value, str):
                keys.append(value.encode("utf-8", "surrogateescape"))
    if "BCC" in table:
        entries = split_entries(message.headers_table)
        del entries["BCC"]
        header = replace_properties(message.header, {"headers": join_entries(entries)})
        address = Address(message.exchange, message.routing_key, tuple(keys[shown:]))
        message = make_message(address, header, message.body)
    return message, list(dict.fromkeys(keys))


#: A longer delay is no delay, as in RabbitMQ's own delayed exchange: 49 days, in milliseconds.
DELAY_MS_MAX = 2**32 - 1


def _delay_ms(message: Message) -> int:
    value = decode_table(message.headers_table).get("x-delay")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value > DELAY_MS_MAX:
        return 0
    return value


def _reply(engine: Engine, channel: Channel, message: Message, mandatory: bool) -> int:
    """A reply goes straight to the consumer that waits for it.

    Its address is no queue: to `mandatory` the message is unrouted even so.
    """
    reply(engine, channel.connection.vhost, text(message.routing_key), message)
    if mandatory:
        return_message(channel, message)
    return 0
