"""Routes about the broker itself: overview, nodes, health, names, and fixed lists."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from warren.management.across import ask_all, proxied, question
from warren.management.call import Answer, Call, Reply, Route
from warren.management.certificates import days_left
from warren.management.definitions_export import export_definitions
from warren.management.errors import bad_request, not_found
from warren.management.listing import answer_list
from warren.management.messages import round_trip
from warren.management.routes_objects import answer_one
from warren.management.show_cluster import add_overview, show_absent_node
from warren.management.show_node import show_memory, show_node, show_overview
from warren.management.spans import spans_of
from warren.model.queue_arguments import QueueDeclaration

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
    shown = await show_overview(call.context, vhosts, user, spans_of(call))
    for other in (await ask_all(call, question(call, "/overview", _spans_only(call)))).values():
        add_overview(shown, other)
    return await answer_one(call, shown)


def _spans_only(call: Call) -> dict[str, str]:
    return {name: value for name, value in call.query.items() if name != "columns"}


async def list_nodes(call: Call) -> Answer:
    """All nodes of the cluster, also those that are down."""
    rows = [_own_node(call)]
    if call.context.peers is not None and not call.is_from_peer:
        found = await ask_all(call, question(call, "/nodes", _spans_only(call)))
        rows += [row for answer in found.values() for row in answer]
        known = {row["name"] for row in rows}
        names = {*call.context.peers.running(), *call.context.peers.down()}
        drained = call.context.drained_nodes()
        rows += [show_absent_node(name, name in drained) for name in names if name not in known]
        rows.sort(key=lambda row: str(row["name"]))
    return await answer_list(call, rows, lambda row: row, lambda row: str(row["name"]))


def _own_node(call: Call) -> dict[str, Any]:
    shown = show_node(call.context, spans_of(call))
    control = call.context.cluster_control()
    if control is not None:
        status = control.status()
        shown["partitions"] = list(status.partitions.get(status.node, ()))
        shown["running"] = status.is_app_running
    return shown


def _is_other(call: Call) -> str | None:
    """The node in the path, when it is another one of the cluster. Raises 404."""
    name = call.path.get("node", call.context.node_name)
    if name == call.context.node_name:
        return None
    peers = call.context.peers
    if peers is None or call.is_from_peer or name not in {*peers.running(), *peers.down()}:
        raise not_found()
    return name


async def get_node(call: Call) -> Answer:
    """One node."""
    other = _is_other(call)
    if other is not None:
        if call.context.peers is not None and other in call.context.peers.down():
            drained = call.context.drained_nodes()
            return await answer_one(call, show_absent_node(other, other in drained))
        return await proxied(call, other)
    shown = _own_node(call)
    if call.flag("memory"):
        shown |= await show_memory(call.context)
    return await answer_one(call, shown)


async def get_node_memory(call: Call) -> Answer:
    """Where a node's memory goes."""
    other = _is_other(call)
    if other is not None:
        return await proxied(call, other)
    return await answer_one(call, await show_memory(call.context))


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

    def declare() -> None:
        if ALIVENESS_QUEUE not in vhost.queues:
            declaration = QueueDeclaration(False, False, False, {})
            engine.add_queue(vhost, ALIVENESS_QUEUE, declaration, None)

    await call.context.act_when_written(declare)
    queue = vhost.queue(ALIVENESS_QUEUE)
    if queue.is_remote:
        return await proxied(call, queue.home)
    if not call.context.act(lambda: round_trip(engine, vhost, ALIVENESS_QUEUE)):
        return failed("the message did not come back")
    return OK


async def check_node_health(call: Call) -> Answer:
    """The old health check: the node answers."""
    other = _is_other(call)
    return OK if other is None else await proxied(call, other)


async def check_alarms(call: Call) -> Answer:
    """Whether memory or disk is short on any node."""
    control = call.context.cluster_control()
    members = [] if control is None else control.status().members
    found = [
        {"node": member.name, "resource": name} for member in members for name in member.alarms
    ]
    if control is None:
        found = _local_alarms(call)
    if found:
        return failed("There are alarms in effect in the cluster", alarms=found)
    return OK


def _local_alarms(call: Call) -> list[dict[str, str]]:
    node = call.context.node_name
    # Those of other nodes are here too, with their names.
    own = [name for name in sorted(call.context.engine.alarms) if " on " not in name]
    return [{"node": node, "resource": name} for name in own]


async def check_local_alarms(call: Call) -> Answer:
    """Whether memory or disk is short on this node."""
    found = _local_alarms(call)
    if found:
        return failed("There are alarms in effect on the node", alarms=found)
    return OK


async def check_serves(call: Call) -> Answer:
    """Whether the node lets clients in."""
    control = call.context.cluster_control()
    if control is not None and not control.status().is_app_running:
        return failed("the node does not serve clients at present")
    return OK


async def check_cluster_size(call: Call) -> Answer:
    """Whether as many nodes run as the configuration hints at."""
    target = call.context.settings.cluster.size_hint
    control = call.context.cluster_control()
    running = 1 if control is None else len(control.online_nodes())
    if running < target:
        text = "Number of running cluster nodes is less than target cluster size hint"
        return failed(text, running=running, target=target)
    return OK


async def check_quorum_critical(call: Call) -> Answer:
    """Whether the others could go on without this node: more than half of all must be left."""
    control = call.context.cluster_control()
    if control is None:
        return OK
    status = control.status()
    left = [it.name for it in status.members if it.is_running and it.name != status.node]
    if len(status.members) > 1 and 2 * len(left) <= len(status.members):
        text = "Without this node the others would be no majority of the cluster"
        return failed(text, running=left, members=[member.name for member in status.members])
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


async def reset_statistics(call: Call) -> Answer:
    """Statistics are never more than a few seconds behind: there is nothing to reset."""
    _is_other(call)
    return None


_CHECKS = (
    "virtual-hosts",
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
    Route("GET", "/version", "user", get_version),
    Route("GET", "/whoami", "user", get_whoami),
    Route("GET", "/auth", "open", get_auth),
    Route("POST", "/login", "user", login),
    Route("GET", "/aliveness-test/{vhost}", "vhost", aliveness_test),
    Route("GET", "/healthchecks/node", "user", check_node_health),
    Route("GET", "/healthchecks/node/{node}", "user", check_node_health),
    Route("GET", "/health/checks/alarms", "user", check_alarms),
    Route("GET", "/health/checks/local-alarms", "user", check_local_alarms),
    Route("GET", "/health/checks/node-is-quorum-critical", "user", check_quorum_critical),
    Route("GET", "/health/checks/reached-target-cluster-size", "user", check_cluster_size),
    Route("GET", "/health/checks/is-in-service", "user", check_serves),
    Route("GET", "/health/checks/ready-to-serve-clients", "user", check_serves),
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
    Route("DELETE", "/reset", "administrator", reset_statistics),
    Route("DELETE", "/reset/{node}", "administrator", reset_statistics),
)
