"""Routes that read connections, channels, consumers, exchanges, queues and bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from warren.management.across import (
    REASON_HEADER,
    ask_all,
    at_home,
    others,
    proxied,
    question,
    rows_of_others,
)
from warren.management.call import Answer, Call, Route
from warren.management.encode import to_json
from warren.management.errors import ApiError, not_authorised, not_found
from warren.management.listing import answer_list, parse_query, pick, send_json
from warren.management.pace import Pace
from warren.management.remote_queues import rows_of_homes, show_absent, show_one, state_of
from warren.management.show_connections import (
    find_connection,
    show_channel,
    show_channel_whole,
    show_connection,
)
from warren.management.show_queues import show_consumer, show_queue_whole
from warren.management.show_topology import (
    all_bindings,
    exchange_bindings_to,
    queue_bindings,
    show_any_binding,
    show_binding,
    show_default_binding,
    show_exchange,
)
from warren.management.spans import spans_of
from warren.model.errors import ConnectionForced
from warren.session.channel import Consumer

if TYPE_CHECKING:
    from warren.engine.vhost import VHost
    from warren.routing.exchange import Exchange
    from warren.session.channel import Channel
    from warren.session.connection import Connection

NOT_FOUND, UNAVAILABLE = 404, 503
DEFAULT_REASON = "Closed via management plugin"
#: What other nodes have to know of a list of exchanges to have the same ones.
_FILTER = {"name", "use_regex", "msg_rates_age", "msg_rates_incr"}


async def answer_one(call: Call, shown: dict[str, Any]) -> Answer:
    """A single object, with the columns that were asked for."""
    return await send_json(call.request, to_json(pick(shown, parse_query(call.query).columns)))


async def elsewhere(call: Call) -> Answer:
    """What another node answers that has the object; 404 when none has."""
    for node in others(call):
        response = await proxied(call, node)
        if response.status != NOT_FOUND:
            return response
    raise not_found()


# -- connections and channels --------------------------------------------------------------------


def _connections(call: Call) -> list[Connection]:
    vhost = call.path.get("vhost")
    if vhost is not None:
        call.context.vhost(vhost)
    found = [
        connection
        for connection in call.context.engine.connections
        if call.caller.sees_user(connection.user) and vhost in {None, connection.vhost.name}
    ]
    return sorted(found, key=lambda connection: connection.name)


def _connection(call: Call) -> Connection:
    found = find_connection(call.context, call.path["name"])
    if found is None:
        raise not_found()
    if not call.caller.sees_user(found.user):
        raise not_authorised("User not authorised to access object")
    return found


async def list_connections(call: Call) -> Answer:
    """All connections, or those of a virtual host; plain users see their own."""
    spans = spans_of(call)
    return await answer_list(
        call,
        _connections(call),
        lambda connection: show_connection(call.context, connection, spans),
        lambda connection: connection.name,
        await rows_of_others(call),
    )


async def get_connection(call: Call) -> Answer:
    """One connection."""
    if find_connection(call.context, call.path["name"]) is None:
        return await elsewhere(call)
    return await answer_one(call, show_connection(call.context, _connection(call), spans_of(call)))


async def delete_connection(call: Call) -> Answer:
    """Close a connection; the header X-Reason tells its client why."""
    if find_connection(call.context, call.path["name"]) is None:
        return await elsewhere(call)
    connection = _connection(call)
    if connection.user != call.caller.name:
        call.caller.check_administrator()
    _close(call, [connection])
    return None


def _close(call: Call, connections: list[Connection]) -> None:
    told = call.query if call.is_from_peer else call.request.headers
    reason = told.get(REASON_HEADER) or DEFAULT_REASON

    def act() -> None:
        for connection in connections:
            connection.close(ConnectionForced(reason))

    call.context.act(act)


async def list_user_connections(call: Call) -> Answer:
    """The connections of a user."""
    found = [c for c in call.context.engine.connections if c.user == call.path["user"]]
    return await answer_list(
        call,
        found,
        lambda connection: show_connection(call.context, connection),
        others=await rows_of_others(call),
    )


async def delete_user_connections(call: Call) -> Answer:
    """Close all connections of a user."""
    found = [c for c in call.context.engine.connections if c.user == call.path["user"]]
    _close(call, found)
    for node in others(call):
        await proxied(call, node)
    return None


def _channels(connections: list[Connection]) -> list[Channel]:
    return [
        channel
        for connection in connections
        for channel in sorted(connection.open_channels(), key=lambda channel: channel.number)
        if not channel.closing
    ]


def _channel_name(channel: Channel) -> str:
    return f"{channel.connection.name} ({channel.number})"


async def list_channels(call: Call) -> Answer:
    """All channels, or those of a virtual host; plain users see their own."""
    spans = spans_of(call)
    return await answer_list(
        call,
        _channels(_connections(call)),
        lambda channel: show_channel(call.context, channel, spans),
        _channel_name,
        await rows_of_others(call),
    )


async def list_connection_channels(call: Call) -> Answer:
    """The channels of one connection."""
    if find_connection(call.context, call.path["name"]) is None:
        return await elsewhere(call)
    return await answer_list(
        call,
        _channels([_connection(call)]),
        lambda channel: show_channel(call.context, channel),
        _channel_name,
    )


async def get_channel(call: Call) -> Answer:
    """One channel, with its consumers."""
    for channel in _channels(list(call.context.engine.connections)):
        if _channel_name(channel) == call.path["name"]:
            if not call.caller.sees_user(channel.connection.user):
                raise not_authorised("User not authorised to access object")
            return await answer_one(call, show_channel_whole(call.context, channel, spans_of(call)))
    return await elsewhere(call)


async def list_consumers(call: Call) -> Answer:
    """All consumers, or those of a virtual host."""
    found = [
        consumer
        for vhost in call.visible_vhosts()
        for queue in vhost.queues.values()
        for consumer in queue.consumers
        if isinstance(consumer, Consumer)
        and call.caller.sees_user(consumer.channel.connection.user)
    ]
    return await answer_list(
        call,
        found,
        lambda consumer: show_consumer(call.context, consumer),
        others=await rows_of_others(call),
    )


# -- exchanges, queues and bindings ----------------------------------------------------------------


async def list_exchanges(call: Call) -> Answer:
    """All exchanges, or those of a virtual host."""
    found = [
        (vhost, vhost.exchanges[name])
        for vhost in call.visible_vhosts()
        for name in sorted(vhost.exchanges)
    ]
    spans = spans_of(call)
    elsewhere_too = await _stats_of_others(call)

    def show(item: tuple[VHost, Exchange]) -> dict[str, Any]:
        shown = show_exchange(call.context, *item, spans)
        for stats in elsewhere_too.get((shown["vhost"], shown["name"]), ()):
            add_stats(shown["message_stats"], stats)
        return shown

    return await answer_list(call, found, show, lambda item: item[1].name)


async def _stats_of_others(call: Call) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What other nodes have counted of exchanges, by virtual host and name.

    Each node counts what its own clients publish. All nodes have the same exchanges: a page that
    nobody has to sort is the same page there.
    """
    query = parse_query(call.query)
    wants = {name: value for name, value in call.query.items() if name in _FILTER}
    if query.columns and not any(
        path[0] == "message_stats" for path in (*query.columns, query.sort) if path
    ):
        return {}
    wants["columns"] = "vhost,name,message_stats"
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    pages = (query.page, query.page_size) if query.page and not query.sort else None
    pace = Pace()
    for row in (await rows_of_others(call, wants, pages)).rows:
        shown = msgspec.json.decode(row)
        place = found.setdefault((shown["vhost"], shown["name"]), [])
        place.append(shown.get("message_stats", {}))
        await pace.rest()
    return found


def add_stats(stats: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Adds the counts and rates of another node."""
    for name, value in others.items():
        if isinstance(value, int) and isinstance(stats.get(name), int):
            stats[name] += value
        elif isinstance(value, dict) and "rate" in value and name in stats:
            stats[name] = {**stats[name], "rate": stats[name]["rate"] + value["rate"]}


async def get_exchange(call: Call) -> Answer:
    """One exchange."""
    exchange = call.exchange()
    shown = {
        **show_exchange(call.context, call.vhost, exchange, spans_of(call)),
        "incoming": [],
        "outgoing": [],
    }
    if not call.is_from_peer:
        # Each node counts what its own clients publish.
        for other in (await ask_all(call, question(call))).values():
            add_stats(shown["message_stats"], other.get("message_stats", {}))
    return await answer_one(call, shown)


async def list_exchange_source(call: Call) -> Answer:
    """The bindings that lead from an exchange."""
    vhost, exchange = call.vhost, call.exchange()
    if not exchange.name:
        return await answer_list(
            call, sorted(vhost.queues), lambda queue: show_default_binding(vhost, queue)
        )
    return await answer_list(
        call, exchange.bindings(), lambda binding: show_binding(vhost, binding)
    )


async def list_exchange_destination(call: Call) -> Answer:
    """The bindings that lead to an exchange."""
    return await answer_list(
        call, exchange_bindings_to(call.vhost, call.exchange()), lambda shown: shown
    )


async def list_queues(call: Call) -> Answer:
    """All queues, or those of a virtual host."""
    found = [vhost.queues[name] for vhost in call.visible_vhosts() for name in sorted(vhost.queues)]
    return await answer_list(
        call,
        found,
        show_one(call, spans_of(call)),
        lambda queue: queue.name,
        fetch=lambda queues: rows_of_homes(call, queues),
    )


async def get_queue(call: Call) -> Answer:
    """One queue, with its consumers."""
    queue = call.queue()
    try:
        return await _get_queue(call)
    except ApiError as error:
        if error.status != UNAVAILABLE or call.is_from_peer:
            raise
        return await answer_one(call, show_absent(call.context, queue, state_of(queue)))


@at_home
async def _get_queue(call: Call) -> Answer:
    return await answer_one(call, show_queue_whole(call.context, call.queue(), spans_of(call)))


async def list_queue_bindings(call: Call) -> Answer:
    """The bindings that lead to a queue."""
    queue = call.queue()
    return await answer_list(
        call, queue_bindings(call.vhost, queue.name, queue.sources), lambda shown: shown
    )


async def list_bindings(call: Call) -> Answer:
    """All bindings, or those of a virtual host."""
    found = [item for vhost in call.visible_vhosts() for item in all_bindings(vhost)]
    return await answer_list(call, found, show_any_binding)


ROUTES = (
    Route("GET", "/connections", "user", list_connections),
    Route("GET", "/vhosts/{vhost}/connections", "visible", list_connections),
    Route("GET", "/connections/username/{user}", "administrator", list_user_connections),
    Route("DELETE", "/connections/username/{user}", "administrator", delete_user_connections),
    Route("GET", "/connections/{name}", "user", get_connection),
    Route("DELETE", "/connections/{name}", "user", delete_connection),
    Route("GET", "/connections/{name}/channels", "user", list_connection_channels),
    Route("GET", "/channels", "user", list_channels),
    Route("GET", "/vhosts/{vhost}/channels", "visible", list_channels),
    Route("GET", "/channels/{name}", "user", get_channel),
    Route("GET", "/consumers", "user", list_consumers),
    Route("GET", "/consumers/{vhost}", "visible", list_consumers),
    Route("GET", "/exchanges", "user", list_exchanges),
    Route("GET", "/exchanges/{vhost}", "visible", list_exchanges),
    Route("GET", "/exchanges/{vhost}/{name}", "vhost", get_exchange),
    Route("GET", "/exchanges/{vhost}/{name}/bindings/source", "vhost", list_exchange_source),
    Route(
        "GET", "/exchanges/{vhost}/{name}/bindings/destination", "vhost", list_exchange_destination
    ),
    Route("GET", "/queues", "user", list_queues),
    Route("GET", "/queues/detailed", "user", list_queues),
    Route("GET", "/queues/{vhost}", "visible", list_queues),
    Route("GET", "/queues/{vhost}/{name}", "vhost", get_queue),
    Route("GET", "/queues/{vhost}/{name}/bindings", "vhost", list_queue_bindings),
    Route("GET", "/bindings", "user", list_bindings),
    Route("GET", "/bindings/{vhost}", "visible", list_bindings),
)
