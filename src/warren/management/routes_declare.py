"""Routes that declare, delete, bind, purge, publish and take messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from warren.engine.queues import touch
from warren.management.across import at_home
from warren.management.call import Answer, Call, Reply, Route, exchange_name, field_of
from warren.management.errors import ApiError, bad_request, not_found
from warren.management.listing import answer_list
from warren.management.messages import (
    ACK_MODES,
    build_message,
    decode_payload,
    headers_of,
    publish,
    show_message,
    take,
)
from warren.management.routes_access import CREATED, NO_CONTENT
from warren.management.show_topology import show_binding, show_default_binding
from warren.routing.binding import Binding
from warren.telemetry.trace_context import is_traced, note_get, publish_span

if TYPE_CHECKING:
    from warren.model.message import Message
    from warren.routing.binding import DestinationKind

#: More messages than this are not taken in one request: they would all be in memory at once.
TAKE_MAX = 50_000

_KINDS: dict[str, DestinationKind] = {"q": "queue", "e": "exchange"}


# -- exchanges and queues --------------------------------------------------------------------------


async def put_exchange(call: Call) -> Answer:
    """Declare an exchange."""
    body, actor = await call.body(), call.actor
    name = exchange_name(call.path["name"])
    existed = name in call.vhost.exchanges
    await call.context.act_when_written(
        lambda: call.context.engine.declare_exchange(
            actor,
            name,
            field_of(body, "type", str, "direct"),
            field_of(body, "durable", bool, True),
            field_of(body, "auto_delete", bool, False),
            field_of(body, "internal", bool, False),
            field_of(body, "arguments", dict, {}),
        ),
        actor,
    )
    return Reply(NO_CONTENT if existed else CREATED)


async def delete_exchange(call: Call) -> Answer:
    """Delete an exchange; with if-unused=true only if nothing is bound to it."""
    actor, name = call.actor, call.exchange().name
    if_unused = call.flag("if-unused")
    await call.context.act_when_written(
        lambda: call.context.engine.delete_exchange(actor, name, if_unused), actor
    )
    return None


async def put_queue(call: Call) -> Answer:
    """Declare a queue."""
    body, actor, name = await call.body(), call.actor, call.path["name"]
    existed = name in call.vhost.queues
    await call.context.act_when_written(
        lambda: call.context.engine.declare_queue(
            actor,
            name,
            field_of(body, "durable", bool, True),
            False,
            field_of(body, "auto_delete", bool, False),
            field_of(body, "arguments", dict, {}),
        ),
        actor,
    )
    return Reply(NO_CONTENT if existed else CREATED)


async def delete_queue(call: Call) -> Answer:
    """Delete a queue; with if-empty=true and if-unused=true only then."""
    actor, name = call.actor, call.queue().name
    unused, empty = call.flag("if-unused"), call.flag("if-empty")
    await call.context.act_when_written(
        lambda: call.context.engine.delete_queue(actor, name, unused, empty), actor
    )
    return None


async def purge_queue(call: Call) -> Answer:
    """Drop all messages of a queue that wait to be delivered."""
    actor, name = call.actor, call.queue().name
    await call.context.act_when_written(lambda: call.context.engine.purge_queue(actor, name), actor)
    return None


# -- bindings --------------------------------------------------------------------------------------


def _ends(call: Call) -> tuple[str, DestinationKind, str]:
    """Source, kind and destination of the bindings that the path names. Raises 404."""
    kind = _KINDS.get(call.path["kind"])
    if kind is None:
        raise not_found()
    destination = call.path["destination"]
    known = call.vhost.queues if kind == "queue" else call.vhost.exchanges
    source = exchange_name(call.path["source"])
    if destination not in known or source not in call.vhost.exchanges:
        raise not_found()
    return source, kind, destination


def _bindings(call: Call) -> list[tuple[str, dict[str, Any], Binding | None]]:
    """(properties key, as shown, the binding or None for the default one)."""
    source, kind, destination = _ends(call)
    vhost = call.vhost
    if not source:
        if kind == "exchange":
            return []
        shown = show_default_binding(vhost, destination)
        return [(destination, shown, None)]
    found = vhost.exchanges[source].bindings_to(kind, destination)
    return [(b.properties_key, show_binding(vhost, b), b) for b in found]


async def list_pair_bindings(call: Call) -> Answer:
    """The bindings between an exchange and a queue or another exchange."""
    return await answer_list(call, [shown for _, shown, _ in _bindings(call)], lambda row: row)


async def post_binding(call: Call) -> Answer:
    """Bind; the header Location names the new binding."""
    source, kind, destination = _ends(call)
    body, actor = await call.body(), call.actor
    key = field_of(body, "routing_key", str, "")
    arguments = field_of(body, "arguments", dict, {})
    await call.context.act_when_written(
        lambda: call.context.engine.bind(actor, kind, destination, source, key, arguments), actor
    )
    binding = Binding(source, kind, destination, key.encode(), arguments)
    place = f"{quote(destination, safe='')}/{quote(binding.properties_key, safe='~')}"
    return Reply(CREATED, None, {"Location": place})


def _find_binding(call: Call) -> tuple[dict[str, Any], Binding | None]:
    wanted = call.path["props"]
    for key, shown, binding in _bindings(call):
        # Clients send the key back as they got it, or quoted once more, which the path undoes.
        if wanted in {key, quote(key, safe="")} or (wanted == "~" and key == "~"):
            return shown, binding
    raise not_found()


async def get_binding(call: Call) -> Answer:
    """One binding."""
    return _find_binding(call)[0]


async def delete_binding(call: Call) -> Answer:
    """Unbind."""
    source, kind, destination = _ends(call)
    _, binding = _find_binding(call)
    actor = call.actor
    if binding is None:
        raise bad_request("the binding to the default exchange cannot be deleted")
    key = binding.routing_key.decode("utf-8", "surrogateescape")
    arguments = binding.arguments
    await call.context.act_when_written(
        lambda: call.context.engine.unbind(actor, kind, destination, source, key, arguments), actor
    )
    return None


# -- messages --------------------------------------------------------------------------------------


def _check_serves(call: Call) -> None:
    """Raises 503 on a node that lets no clients in: whoever publishes and takes is one.

    What it takes might not be agreed on before the others are back, nor what is published.
    """
    control = call.context.cluster_control()
    if control is not None and not control.status().is_app_running:
        name = call.context.node_name
        raise ApiError(
            503,
            "not_serving",
            f"{name} lets no clients in at present: it cannot reach most of the cluster's nodes, "
            f"or was stopped; see warrenctl -n {name} cluster_status",
        )


async def publish_message(call: Call) -> Answer:
    """Publish a message; the answer says whether a queue took it."""
    _check_serves(call)
    body, actor = await call.body(), call.actor
    exchange = call.exchange()
    properties = body.get("properties", {})
    if properties == []:
        properties = {}
    if not isinstance(properties, dict):
        raise bad_request("properties must be an object")
    key = field_of(body, "routing_key", str)
    payload = decode_payload(
        field_of(body, "payload", str), field_of(body, "payload_encoding", str, "string")
    )
    engine = call.context.engine
    headers = properties.get("headers") or {}
    own = headers if isinstance(headers, dict) else {}
    with publish_span(exchange.name, key, call.request.headers, own) as traced:
        if traced and headers is own:
            properties = {**properties, "headers": {**traced, **own}}
        message = build_message(exchange.name, key, properties, payload)
        routed = call.context.act(lambda: publish(engine, actor, message))
    return {"routed": routed}


@at_home
async def get_messages(call: Call) -> Answer:
    """Take messages out of a queue, and put them back where asked; not a mere look."""
    _check_serves(call)
    body, queue = await call.body(), call.queue()
    ack_mode = field_of(body, "ackmode", str, None)
    if ack_mode is None:
        # The spelling before 3.7.
        requeue = field_of(body, "requeue", bool, None)
        if requeue is None:
            raise bad_request("{key_missing,ackmode}")
        ack_mode = "ack_requeue_true" if requeue else "ack_requeue_false"
    if ack_mode not in ACK_MODES:
        raise bad_request(f"ackmode must be one of {', '.join(sorted(ACK_MODES))}")
    encoding = field_of(body, "encoding", str)
    if encoding not in {"auto", "base64"}:
        raise bad_request(f"Unsupported encoding: {encoding}. Please use one of: auto, base64")
    count = field_of(body, "count", int)
    truncate = field_of(body, "truncate", int, None)
    if not 0 <= count <= TAKE_MAX or (truncate is not None and truncate < 0):
        raise bad_request(f"count must be between 0 and {TAKE_MAX}, truncate at least 0")
    engine, actor = call.context.engine, call.actor

    def act() -> list[tuple[Message, bool, int]]:
        engine.check_access(actor, "queue", queue.name, "read")
        engine.check_owner(actor, queue)
        touch(engine, queue)
        return take(engine, queue, count, ack_mode)

    taken = await call.context.act_when_written(act)
    if is_traced():
        note_get(queue.name, call.request.headers, (headers_of(found[0]) for found in taken))
    return await answer_list(call, taken, lambda found: show_message(*found, encoding, truncate))


ROUTES = (
    Route("PUT", "/exchanges/{vhost}/{name}", "vhost", put_exchange),
    Route("DELETE", "/exchanges/{vhost}/{name}", "vhost", delete_exchange),
    Route("POST", "/exchanges/{vhost}/{name}/publish", "vhost", publish_message),
    Route("PUT", "/queues/{vhost}/{name}", "vhost", put_queue),
    Route("DELETE", "/queues/{vhost}/{name}", "vhost", delete_queue),
    Route("DELETE", "/queues/{vhost}/{name}/contents", "vhost", purge_queue),
    Route("POST", "/queues/{vhost}/{name}/get", "vhost", get_messages),
    Route("GET", "/bindings/{vhost}/e/{source}/{kind}/{destination}", "vhost", list_pair_bindings),
    Route("POST", "/bindings/{vhost}/e/{source}/{kind}/{destination}", "vhost", post_binding),
    Route("GET", "/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}", "vhost", get_binding),
    Route(
        "DELETE",
        "/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}",
        "vhost",
        delete_binding,
    ),
)
