"""Routes of shovels: how they are doing, on whichever node; deleting and restarting them."""

from __future__ import annotations

import time
from typing import Any

from warren.management.across import ask_all, question, rows_of_others
from warren.management.call import Answer, Call, Reply, Route
from warren.management.errors import not_found
from warren.management.listing import answer_list
from warren.shovel.supervisor import COMPONENT
from warren.shovel.worker import Status

Shown = dict[str, Any]


def show_shovel(node: str, vhost: str, name: str, value: Any, status: Status) -> Shown:
    """A shovel with the keys that RabbitMQ has; no address of it shows a password."""
    given = value if isinstance(value, dict) else {}
    shown: Shown = {
        "node": node,
        "timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(status.since_s)),
        "name": name,
        "vhost": vhost,
        "type": "dynamic",
        "state": status.state,
        "src_protocol": "amqp091",
        "dest_protocol": "amqp091",
    }
    if status.src_uri:
        shown |= {"src_uri": status.src_uri, "dest_uri": status.dest_uri}
    for key in ("src-queue", "src-exchange", "src-exchange-key"):
        if key in given:
            shown[key.replace("-", "_")] = given[key]
    for key in ("dest-queue", "dest-exchange", "dest-exchange-key"):
        if key in given:
            shown[key.replace("-", "_")] = given[key]
    if status.state == "terminated":
        shown["reason"] = status.reason
    if status.state == "running":
        shown["blocked_status"] = "blocked" if status.is_blocked else "running"
    shown |= {"forwarded": status.forwarded, "pending": status.pending}
    if status.remaining is not None:
        shown |= {"remaining": status.remaining, "remaining_unacked": status.pending}
    return shown


def _here(call: Call) -> list[Shown]:
    shovels = call.context.shovels
    seen = {vhost.name for vhost in call.visible_vhosts()}
    return [
        show_shovel(call.context.node_name, *job)
        for job in (shovels.jobs() if shovels is not None else ())
        if job[0] in seen
    ]


async def list_shovels(call: Call) -> Answer:
    """How the shovels are doing, of all virtual hosts or of one."""
    return await answer_list(call, _here(call), lambda row: row, others=await rows_of_others(call))


def _check(call: Call) -> None:
    if (call.vhost.name, COMPONENT, call.path["name"]) not in call.context.engine.parameters:
        raise not_found()


async def get_shovel(call: Call) -> Answer:
    """How one shovel is doing."""
    _check(call)
    rows = [row for row in _here(call) if row["name"] == call.path["name"]]
    if not rows and not call.is_from_peer:
        found = await ask_all(call, question(call))
        rows = list(found.values())
    if not rows:
        # Nobody has begun yet.
        raise not_found()
    return rows[0]


async def delete_shovel(call: Call) -> Answer:
    """End a shovel and forget it."""
    _check(call)
    engine, vhost, name = call.context.engine, call.vhost.name, call.path["name"]
    await call.context.agree(lambda: engine.clear_parameter(vhost, COMPONENT, name))
    return Reply(204)


async def restart_shovel(call: Call) -> Answer:
    """Begin a shovel anew."""
    _check(call)
    shovels = call.context.shovels
    here = shovels is not None and shovels.restart(call.vhost.name, call.path["name"])
    if not here and not call.is_from_peer:
        await ask_all(call, question(call))
    return Reply(204)


ROUTES = (
    Route("GET", "/shovels", "monitor", list_shovels),
    Route("GET", "/shovels/{vhost}", "monitor", list_shovels),
    Route("GET", "/shovels/vhost/{vhost}/{name}", "monitor", get_shovel),
    Route("DELETE", "/shovels/vhost/{vhost}/{name}", "policymaker", delete_shovel),
    Route("DELETE", "/shovels/vhost/{vhost}/{name}/restart", "policymaker", restart_shovel),
)
