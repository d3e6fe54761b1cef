"""Routes of shovels: how they are doing, on whichever node; pausing, restarting, deleting them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from warren.management.across import ask_all, question, rows_of_others
from warren.management.call import Answer, Call, Reply, Route
from warren.management.errors import bad_request, not_found
from warren.management.listing import answer_list
from warren.shovel.settings import PAUSED, is_paused, without_pause
from warren.shovel.supervisor import COMPONENT
from warren.shovel.worker import Status

Shown = dict[str, Any]


def show_shovel(
    node: str, vhost: str, name: str, value: Any, status: Status, rate: float = 0.0
) -> Shown:
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
    shown |= {"forwarded": status.forwarded, "pending": status.pending, "rate": round(rate, 1)}
    shown |= {"since": int(status.since_s * 1000), **_pause_of(given)}
    if status.last_error:
        shown |= {"last_error": status.last_error, "last_error_at": int(status.last_error_s * 1000)}
    if status.remaining is not None:
        shown |= {"remaining": status.remaining, "remaining_unacked": status.pending}
    return shown


def _pause_of(value: Mapping[str, Any]) -> Shown:
    """Who has paused it, and when, where that is told."""
    pause = value.get(PAUSED)
    told = pause if isinstance(pause, dict) else {}
    names = {"by": "paused_by", "at": "paused_at"}
    return {shown: told[name] for name, shown in names.items() if name in told}


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


async def pause_shovel(call: Call) -> Answer:
    """Have a shovel move nothing until it is resumed; answered when all nodes know it."""
    value = _value(call)
    if not is_paused(value):
        told = {"by": str(call.caller.name), "at": time.time_ns() // 1_000_000}
        await _set(call, {**value, PAUSED: told}, "shovel.paused")
    return Reply(204)


async def resume_shovel(call: Call) -> Answer:
    """Have a paused shovel go on, from where it was; answered when all nodes know it."""
    value = _value(call)
    if is_paused(value):
        await _set(call, without_pause(value), "shovel.resumed")
    return Reply(204)


def _value(call: Call) -> dict[str, Any]:
    """The definition of the shovel in the path. Raises 404, and 400 for one that is none."""
    _check(call)
    value = call.context.engine.parameters[call.vhost.name, COMPONENT, call.path["name"]]
    if not isinstance(value, dict):
        raise bad_request("the definition of this shovel cannot be used")
    return value


async def _set(call: Call, value: dict[str, Any], event: str) -> None:
    engine, vhost, name = call.context.engine, call.vhost.name, call.path["name"]
    await call.context.agree(lambda: engine.set_parameter(vhost, COMPONENT, name, value))
    engine.emit(event, vhost=vhost, name=name, by=str(call.caller.name))


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
    Route("PUT", "/shovels/vhost/{vhost}/{name}/pause", "policymaker", pause_shovel),
    Route("PUT", "/shovels/vhost/{vhost}/{name}/resume", "policymaker", resume_shovel),
)
