"""Routes that RabbitMQ does not have: what operators asked of it for years."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aiohttp import web

from warren.management.across import at_home, proxied, rows_of_others
from warren.management.call import Answer, Call, Route, field_of
from warren.management.encode import to_json
from warren.management.errors import bad_request, not_found
from warren.management.listing import answer_list
from warren.management.moving import Outcome, move, origin
from warren.management.pace import Pace
from warren.management.show_queues import channel_details, is_exclusive
from warren.model.message import Message
from warren.session.channel import Consumer

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue

#: A comment is sent to live listeners this often, so that nobody takes them for dead.
PATIENCE_S = 15.0
#: More than any queue holds.
ALL = 2**62


async def list_unacked(call: Call) -> Answer:
    """Deliveries that wait for an acknowledgement: who has them, and since when."""
    queue = call.queue()
    now_ms = call.context.engine.clock.now_ms()
    wall_ms = int(time.time() * 1000)
    pace = Pace()
    found: list[dict[str, Any]] = []
    for connection in list(call.context.engine.connections):
        if connection.vhost is not queue.vhost:
            continue
        for channel in connection.open_channels():
            for tag, held, consumer, at_ms in channel.deliveries.outstanding():
                if held is queue:
                    found.append(
                        {
                            "delivery_tag": tag,
                            "consumer_tag": consumer.tag
                            if isinstance(consumer, Consumer)
                            else None,
                            "delivered_at": wall_ms - (now_ms - at_ms),
                            "age_ms": now_ms - at_ms,
                            "channel_details": channel_details(call.context, channel),
                        }
                    )
            await pace.rest()
    found.sort(key=lambda row: row["delivered_at"])
    return await answer_list(call, found, lambda row: row, others=await rows_of_others(call))


@at_home
async def list_mirrors(call: Call) -> Answer:
    """The copies of a queue; there is the master only, until nodes form a cluster."""
    queue = call.queue()
    return [
        {
            "node": call.context.node_name,
            "role": "master",
            "synchronised": True,
            "messages": queue.ready + queue.unacked,
            "lag_messages": 0,
            "lag_bytes": 0,
        }
    ]


def _source(call: Call) -> AmqpQueue:
    """The queue in the path, if the caller may take messages out of it."""
    queue, engine, actor = call.queue(), call.context.engine, call.actor
    engine.check_access(actor, "queue", queue.name, "read")
    engine.check_owner(actor, queue)
    return queue


def _shown(outcome: Outcome) -> dict[str, int]:
    return {"moved": outcome.moved, "kept": outcome.kept}


@at_home
async def move_messages(call: Call) -> Answer:
    """Move ready messages to another queue of the same virtual host."""
    body, source = await call.body(), _source(call)
    name, count = field_of(body, "to", str), field_of(body, "count", int, ALL)
    target = call.vhost.queues.get(name)
    if target is None:
        raise not_found(f"no queue '{name}' in vhost '{call.vhost.name}'")
    if target.is_remote:
        raise bad_request(
            f"queue '{name}' is on {target.home} and queue '{source.name}' on {source.home}: "
            "messages are moved between queues of one node only"
        )
    if target is source or count < 0:
        raise bad_request("messages can be moved to another queue only, and no fewer than none")
    engine, actor = call.context.engine, call.actor
    engine.check_access(actor, "exchange", "", "write")
    engine.check_owner(actor, target)
    return _shown(await move(call.context, source, count, lambda _: target))


@at_home
async def redrive_messages(call: Call) -> Answer:
    """Send dead letters back to the queue in which they first died."""
    body, source, vhost = await call.body(), _source(call), call.vhost
    count = field_of(body, "count", int, ALL)
    engine, actor = call.context.engine, call.actor
    engine.check_access(actor, "exchange", "", "write")

    def target(message: Message) -> AmqpQueue | None:
        queue = origin(vhost, message)
        if queue is None or queue.is_remote or is_exclusive(queue):
            return None
        return queue

    return _shown(await move(call.context, source, count, target))


async def list_events(call: Call) -> Answer:
    """What happened lately, after the event whose number `since` names."""
    since = call.query.get("since", "0")
    if not since.isdigit():
        raise bad_request("since must be the number of an event")
    events = call.context.events.since(int(since))
    return await answer_list(call, events, lambda event: event.shown())


async def stream_events(call: Call) -> Answer:
    """What happens, live, as server-sent events."""
    events = call.context.events
    given = call.request.headers.get("Last-Event-ID") or call.query.get("since", "")
    number = int(given) if given.isdigit() else events.last_number
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    )
    await response.prepare(call.request)
    if call.request.method == "HEAD":
        return response
    await response.write(b": listening\n\n")
    async for news in events.follow(number, PATIENCE_S):
        pieces = [
            f"id: {event.number}\nevent: {event.name}\n".encode()
            + b"data: "
            + to_json(event.shown())
            + b"\n\n"
            for event in news
        ]
        await response.write(b"".join(pieces) or b": still here\n\n")
    await response.write_eof()
    return response


async def authenticate_user(call: Call) -> Answer:
    """Check a user's password without logging in as it."""
    password = field_of(await call.body(), "password", str)
    directory = call.context.engine.directory
    name = call.path["user"]
    if not directory.has_user(name) or not directory.user(name).accepts_password(password):
        raise bad_request(f"user '{name}' - invalid credentials")
    return {"name": name, "tags": list(directory.user(name).tags)}


async def stop_node(call: Call) -> Answer:
    """Stop the node in good order, as a signal would."""
    if call.path["node"] != call.context.node_name:
        peers = call.context.peers
        if peers is None or call.path["node"] not in peers.running():
            raise not_found()
        return await proxied(call, call.path["node"])
    if call.context.on_stop is None:
        raise bad_request("this node is part of another program and ends with it")
    call.context.on_stop()
    return None


ROUTES = (
    Route("POST", "/users/{user}/authenticate", "administrator", authenticate_user),
    Route("POST", "/nodes/{node}/stop", "administrator", stop_node),
    Route("GET", "/queues/{vhost}/{name}/unacked", "vhost", list_unacked),
    Route("GET", "/queues/{vhost}/{name}/mirrors", "vhost", list_mirrors),
    Route("POST", "/queues/{vhost}/{name}/move", "vhost", move_messages),
    Route("POST", "/queues/{vhost}/{name}/redrive", "vhost", redrive_messages),
    Route("GET", "/cluster/events", "monitor", list_events),
    Route("GET", "/cluster/events/stream", "monitor", stream_events),
)
