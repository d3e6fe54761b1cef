"""Routes that RabbitMQ does not have: what operators asked of it for years."""

from __future__ import annotations

from aiohttp import web

from warren.management.across import proxied
from warren.management.call import Answer, Call, Route, field_of
from warren.management.encode import to_json
from warren.management.errors import bad_request, not_found
from warren.management.listing import answer_list

#: A comment is sent to live listeners this often, so that nobody takes them for dead.
PATIENCE_S = 15.0
#: More than are kept.
EVENTS_MAX = 1_000_000


def _event_names(call: Call) -> tuple[str, ...]:
    """How the names of the wanted events begin; all, where nothing is said."""
    return tuple(call.query.get("names", "").split(","))


async def list_events(call: Call) -> Answer:
    """What happened lately, after the event whose number `since` names; the `last` so many."""
    since, last = call.query.get("since", "0"), call.query.get("last", str(EVENTS_MAX))
    if not since.isdigit() or not last.isdigit():
        raise bad_request("since must be the number of an event, last a number of events")
    found = call.context.events.since(int(since), _event_names(call))
    events = found[max(0, len(found) - int(last)) :]
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
    async for news in events.follow(number, PATIENCE_S, _event_names(call)):
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
    Route("GET", "/cluster/events", "monitor", list_events),
    Route("GET", "/cluster/events/stream", "monitor", stream_events),
)
