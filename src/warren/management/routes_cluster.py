"""Routes by which `warrenctl` forms and examines a cluster; RabbitMQ's tools use Erlang for it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, get_args

from warren.management.across import proxied
from warren.management.call import Answer, Call, Reply, Route, field_of
from warren.management.cluster_control import (
    AgreementStatus,
    ClusterControl,
    MemberStatus,
    NodeType,
)
from warren.management.errors import bad_request
from warren.management.forks import forks_of

if TYPE_CHECKING:
    from warren.management.context import ListenerFacts

#: A longer name could not be told to clients.
CLUSTER_NAME_CHARACTERS_MAX = 255
#: The answer is to be out before the node is gone.
KILL_AFTER_S = 0.2


def _control(call: Call) -> ClusterControl:
    control = call.context.cluster_control()
    if control is None:
        raise bad_request("not clustered")
    return control


def _show_listener(node: str, listener: ListenerFacts) -> dict[str, Any]:
    return {
        "node": node,
        "protocol": listener.protocol,
        "ip_address": listener.host,
        "port": listener.port,
    }


def _show_member(member: MemberStatus) -> dict[str, Any]:
    return {
        "name": member.name,
        "running": member.is_running,
        "type": member.node_type,
        "os_pid": member.os_pid,
        "role": member.role,
        "being_drained": member.is_drained,
        "product": member.product,
        "version": member.version,
        "runtime": member.runtime,
        "cpu_cores": member.cpu_cores,
        "alarms": list(member.alarms),
        "listeners": [_show_listener(member.name, listener) for listener in member.listeners],
    }


async def get_cluster_status(call: Call) -> Answer:
    """The nodes of the cluster, as this one sees them."""
    status = _control(call).status()
    return {
        "node": status.node,
        "cluster_name": status.cluster_name,
        "app_running": status.is_app_running,
        "nodes": [_show_member(member) for member in status.members],
        "partitions": {node: list(others) for node, others in status.partitions.items()},
        "agreement": _show_agreement(status.agreement),
        "forks": forks_of(call.context.engine),
        "try_out": call.context.settings.cluster.try_out,
    }


def _show_agreement(agreement: AgreementStatus | None) -> dict[str, Any] | None:
    if agreement is None:
        return None
    return {
        "leader": agreement.leader,
        "term": agreement.term,
        "voters": list(agreement.voters),
        "learners": list(agreement.learners),
        "applied": agreement.applied,
        "has_majority": agreement.is_ready,
    }


async def get_online_nodes(call: Call) -> Answer:
    """The names of the nodes that run."""
    return {"nodes": list(_control(call).online_nodes())}


async def join_cluster(call: Call) -> Answer:
    """Join the cluster of another node."""
    body = await call.body()
    node, kind = field_of(body, "node", str), field_of(body, "type", str, "disc")
    if kind not in get_args(NodeType):
        raise bad_request(f"type must be one of {', '.join(get_args(NodeType))}")
    joined = await _control(call).join(node, kind)
    return {"already_member": not joined}


async def forget_node(call: Call) -> Answer:
    """Take a node out of the cluster."""
    body = await call.body()
    offline, force = (field_of(body, name, bool, False) for name in ("offline", "force"))
    await _control(call).forget(field_of(body, "node", str), offline, force)
    return None


async def reset_node(call: Call) -> Answer:
    """Leave the cluster and forget everything."""
    await _control(call).reset(field_of(await call.body(), "force", bool, False))
    return None


async def stop_app(call: Call) -> Answer:
    """Let no clients in until the node is started again."""
    await _control(call).stop_app()
    return None


async def start_app(call: Call) -> Answer:
    """Let clients in again."""
    await _control(call).start_app()
    return None


async def drain(call: Call) -> Answer:
    """Take this node out of service; answered when that has begun."""
    await _control(call).drain()
    return Reply(202)


async def get_drain(call: Call) -> Answer:
    """How far this node is with that: masters that have moved and stay, clients that are left."""
    status = _control(call).drain_status()
    return {
        "state": status.state,
        "masters": status.planned,
        "masters_left": status.left,
        "queues_left": [{"vhost": vhost, "name": name} for vhost, name in status.left_queues],
        "connections": status.connections,
    }


async def revive(call: Call) -> Answer:
    """Put this node into service again."""
    await _control(call).revive()
    return None


async def kill_node(call: Call) -> Answer:
    """End a node as a crash would, for a try-out; nodes that are none refuse it."""
    node = field_of(await call.body(), "node", str)
    settings = call.context.settings.cluster
    if settings.try_out is None:
        raise bad_request(
            "nodes are killed in try-outs only, as warren cluster up starts them; stop this one "
            "with warrenctl stop"
        )
    if node != call.context.node_name:
        members = {member.name for member in _control(call).status().members}
        if call.is_from_peer or node not in members:
            raise bad_request(f"{node} is no node of this cluster")
        return await proxied(call, node)
    call.context.engine.log.warning(
        "this node is killed now, as %s wants it for a try-out", call.caller.name
    )
    asyncio.get_running_loop().call_later(KILL_AFTER_S, os.kill, os.getpid(), signal.SIGKILL)
    return Reply(202)


async def get_cluster_name(call: Call) -> Answer:
    """The name of the cluster."""
    return {"name": call.context.engine.cluster_name}


async def put_cluster_name(call: Call) -> Answer:
    """Rename the cluster."""
    await rename_cluster(call, field_of(await call.body(), "name", str))
    return None


async def rename_cluster(call: Call, name: str) -> None:
    """Raises 400 for what is no name."""
    if not 0 < len(name) <= CLUSTER_NAME_CHARACTERS_MAX:
        raise bad_request(f"a name has 1 to {CLUSTER_NAME_CHARACTERS_MAX} characters")
    await _control(call).set_name(name)


async def get_links(call: Call) -> Answer:
    """The nodes that nothing is let through to, for a try-out."""
    return {"blocked": list(_control(call).blocked_links())}


async def put_link(call: Call) -> Answer:
    """Let nothing through to another node, or again, for a try-out; the control socket only."""
    if not call.is_trusted:
        raise bad_request("links are blocked through the node's control socket only")
    blocked = field_of(await call.body(), "blocked", bool)
    await _control(call).block_link(call.path["peer"], blocked)
    return None


ROUTES = (
    Route("GET", "/cluster-name", "user", get_cluster_name),
    Route("PUT", "/cluster-name", "administrator", put_cluster_name),
    Route("GET", "/warren/cluster/status", "monitor", get_cluster_status),
    Route("GET", "/warren/cluster/online", "monitor", get_online_nodes),
    Route("POST", "/warren/cluster/join", "administrator", join_cluster),
    Route("POST", "/warren/cluster/forget", "administrator", forget_node),
    Route("POST", "/warren/cluster/reset", "administrator", reset_node),
    Route("POST", "/warren/cluster/stop_app", "administrator", stop_app),
    Route("POST", "/warren/cluster/start_app", "administrator", start_app),
    Route("POST", "/warren/cluster/drain", "administrator", drain),
    Route("GET", "/warren/cluster/drain", "monitor", get_drain),
    Route("POST", "/warren/cluster/revive", "administrator", revive),
    Route("POST", "/warren/cluster/kill", "administrator", kill_node),
    Route("GET", "/warren/links", "administrator", get_links),
    Route("PUT", "/warren/links/{peer}", "administrator", put_link),
)
