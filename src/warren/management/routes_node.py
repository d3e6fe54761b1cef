"""Routes about the broker itself: overview, nodes, health, names, and fixed lists."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

from warren.management.call import Answer, Call, Reply, Route
from warren.management.certificates import days_left
from warren.management.definitions_export import export_definitions
from warren.management.errors import bad_request, not_found
from warren.management.listing import answer_list
from warren.management.messages import round_trip
from warren.management.routes_objects import answer_one, spans_of
from warren.management.show_node import show_memory, show_node, show_overview
from warren.model.queue_arguments import QueueDeclaration

if TYPE_CHECKING:
    from warren.management.context import Context

OK = {"status": "ok"}
ALIVENESS_QUEUE = "aliveness-test"
_UNITS = {"days": 1, "weeks": 7, "months": 30, "years": 365}


def failed(reason: str, **details: Any) -> Reply:
    """A health check that found something."""
    return Reply(503, {"status": "failed", "reason": reason, **details})


async def get_overview(call: Call) -> Answer:
    """The broker at a glance."""
    caller = call.caller
    vhosts = None if caller.is_monitor else [vhost.name for vhost in call.visible_vhosts()]
    user = None if caller.is_monitor else caller.name
    return await answer_one(call, await show_overview(call.context, vhosts, user, spans_of(call)))


async def list_nodes(call: Call) -> Answer:
    """All nodes of the cluster."""
    spans = spans_of(call)
    return await answer_list(call, [call.context], lambda context: show_node(context, spans))


def _check_node(call: Call) -> Context:
    if call.path.get("node", call.context.node_name) != call.context.node_name:
        raise not_found()
    return call.context


async def get_node(call: Call) -> Answer:
    """One node."""
    shown = show_node(_check_node(call), spans_of(call))
    if call.flag("memory"):
        shown |= await show_memory(call.context)
    return await answer_one(call, shown)


async def get_node_memory(call: Call) -> Answer:
    """Where a node's memory goes."""
    return await answer_one(call, await show_memory(_check_node(call)))


async def get_whoami(call: Call) -> Answer:
    """The user behind the request."""
    return {"name": call.caller.name, "tags": list(call.caller.user.tags)}


async def list_nothing(_call: Call) -> Answer:
    """A list that is always empty here."""
    return []


async def get_version(call: Call) -> Answer:
    """The version that the broker announces."""
    return call.context.engine.settings.version


async def get_auth(_call: Call) -> Answer:
    """How to log in: always with a name and a password."""
    return {"oauth_enabled": False}


async def login(call: Call) -> Answer:
    """Check a user's name and password."""
    return {"name": call.caller.name, "tags": list(call.caller.user.tags)}


async def aliveness_test(call: Call) -> Answer:
    """Declare a queue, publish to it and take the message out again."""
    vhost, engine = call.vhost, call.context.engine

    def act() -> bool:
        if ALIVENESS_QUEUE not in vhost.queues:
            declaration = QueueDeclaration(False, False, False, {})
            engine.add_queue(vhost, ALIVENESS_QUEUE, declaration, None)
        return round_trip(engine, vhost, ALIVENESS_QUEUE)

    if not call.context.act(act):
        return failed("the message did not come back")
    return OK


async def check_node_health(call: Call) -> Answer:
    """The old health check: the node answers."""
    _check_node(call)
    return OK


async def check_alarms(call: Call) -> Answer:
    """Whether memory or disk is short."""
    context = call.context
    if context.engine.alarms:
        found = [
            {"node": context.node_name, "resource": name} for name in sorted(context.engine.alarms)
        ]
        return failed("There are alarms in effect in the cluster", alarms=found)
    return OK


async def check_ok(_call: Call) -> Answer:
    """A check that cannot fail on a node that answers."""
    return OK


async def check_port(call: Call) -> Answer:
    """Whether something listens on a port."""
    text = call.path["port"]
    if not text.isdigit():
        raise bad_request(f"Invalid port: {text}")
    ports = [listener.port for listener in call.context.listeners]
    if int(text) not in ports:
        return failed("No active listener", missing=int(text), ports=ports)
    return {"status": "ok", "port": int(text)}


_PROTOCOLS = {"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp091s": "amqp/ssl", "amqps": "amqp/ssl"}


async def check_protocol(call: Call) -> Answer:
    """Whether something listens for one of the named protocols."""
    active = [listener.protocol for listener in call.context.listeners]
    for name in call.path["protocol"].split(","):
        protocol = _PROTOCOLS.get(name.lower(), name.lower())
        if protocol in active:
            return {"status": "ok", "protocol": protocol}
    return failed("No active listener", missing=call.path["protocol"], protocols=active)


async def check_certificates(call: Call) -> Answer:
    """Whether a certificate of the listeners ends soon."""
    number, unit = call.path["within"], call.path["unit"]
    if not number.isdigit():
        raise bad_request("Invalid expiration value.")
    if unit not in _UNITS:
        raise bad_request(f"Time unit not recognised: {unit}")
    within = int(number) * _UNITS[unit]
    settings = call.context.settings
    ending = []
    for tls in (settings.tls, settings.management.tls, settings.prometheus.tls):
        left = days_left(tls.certfile) if tls.certfile else None
        if left is not None and left < within:
            ending.append({"certfile": tls.certfile, "days_left": left})
    if ending:
        return failed("Certificates expiring", expired=ending)
    return OK


async def get_all_definitions(call: Call) -> Answer:
    """Everything that was declared and set, as a file that can be imported again."""
    shown = await export_definitions(call.context.engine)
    return Reply(200, shown, {"Content-Disposition": f"attachment; filename={_file_name(call)}"})


def _file_name(call: Call) -> str:
    name = call.query.get("download") or "definitions.json"
    return "".join(letter for letter in name if letter.isalnum() or letter in "._- ")


async def get_vhost_definitions(call: Call) -> Answer:
    """What was declared in one virtual host."""
    shown = await export_definitions(call.context.engine, call.vhost)
    return Reply(200, shown, {"Content-Disposition": f"attachment; filename={_file_name(call)}"})


async def get_effective_configuration(call: Call) -> Answer:
    """The settings the node runs with; secrets are left out."""
    return _plain(call.context.settings)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.repr
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if not isinstance(value, datetime.datetime) else value.isoformat()


async def rebalance(_call: Call) -> Answer:
    """Spread the masters of queues over the nodes; one node has them all."""
    return None


async def reset_statistics(call: Call) -> Answer:
    """Statistics are never more than a few seconds behind: there is nothing to reset."""
    _check_node(call)
    return None


_CHECKS = (
    "virtual-hosts",
    "node-is-mirror-sync-critical",
    "node-is-quorum-critical",
    "reached-target-cluster-size",
    "is-in-service",
    "ready-to-serve-clients",
    "below-node-connection-limit",
    "metadata-store/initialized",
)

ROUTES = (
    Route("GET", "/overview", "user", get_overview),
    Route("GET", "/nodes", "monitor", list_nodes),
    Route("GET", "/nodes/{node}", "monitor", get_node),
    Route("GET", "/nodes/{node}/memory", "monitor", get_node_memory),
    Route("GET", "/nodes/{node}/memory/relative", "monitor", get_node_memory),
    Route("GET", "/extensions", "user", list_nothing),
    Route("GET", "/feature-flags", "user", list_nothing),
    Route("GET", "/deprecated-features", "user", list_nothing),
    Route("GET", "/deprecated-features/used", "user", list_nothing),
    Route("GET", "/federation-links", "monitor", list_nothing),
    Route("GET", "/shovels", "monitor", list_nothing),
    Route("GET", "/version", "user", get_version),
    Route("GET", "/whoami", "user", get_whoami),
    Route("GET", "/auth", "open", get_auth),
    Route("POST", "/login", "user", login),
    Route("GET", "/aliveness-test/{vhost}", "vhost", aliveness_test),
    Route("GET", "/healthchecks/node", "user", check_node_health),
    Route("GET", "/healthchecks/node/{node}", "user", check_node_health),
    Route("GET", "/health/checks/alarms", "user", check_alarms),
    Route("GET", "/health/checks/local-alarms", "user", check_alarms),
    *(Route("GET", f"/health/checks/{name}", "user", check_ok) for name in _CHECKS),
    Route("GET", "/health/checks/port-listener/{port}", "user", check_port),
    Route("GET", "/health/checks/protocol-listener/{protocol}", "user", check_protocol),
    Route(
        "GET", "/health/checks/certificate-expiration/{within}/{unit}", "user", check_certificates
    ),
    Route("GET", "/definitions", "administrator", get_all_definitions),
    Route("GET", "/all-configuration", "administrator", get_all_definitions),
    Route("GET", "/definitions/{vhost}", "policymaker", get_vhost_definitions),
    Route("GET", "/config/effective", "administrator", get_effective_configuration),
    Route("POST", "/rebalance/queues", "administrator", rebalance),
    Route("DELETE", "/reset", "administrator", reset_statistics),
    Route("DELETE", "/reset/{node}", "administrator", reset_statistics),
)
