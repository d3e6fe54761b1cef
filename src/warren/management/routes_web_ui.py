"""Routes that the web UI asks for beside the others: sessions, the log, previews, dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from warren.management.across import ask_all, proxied, question
from warren.management.call import Answer, Call, Route, field_of
from warren.management.errors import bad_request, not_found
from warren.management.listing import answer_list
from warren.management.pace import Pace
from warren.management.patterns import is_cheap
from warren.model.policy import Policy, match, validate_policy
from warren.model.policy_keys import PolicyError
from warren.telemetry.log import level_number

if TYPE_CHECKING:
    from warren.engine.vhost import VHost
    from warren.model.policy import EntityKind

#: Names that a preview shows of what a policy covers.
EXAMPLES_MAX = 200
#: Lines of the log in one answer.
LINES_MAX = 500
#: Events of one node in one answer.
EVENTS_MAX = 500


# -- sessions --------------------------------------------------------------------------------------


async def begin_session(call: Call) -> Answer:
    """Log in: a token that stands for name and password until it ends."""
    if call.request.headers.get("Authorization", "")[:7].lower() == "bearer ":
        # A token that could renew itself would never end.
        raise bad_request("a session begins with a name and a password")
    user = call.caller.user
    token, ends_s = call.context.sessions.begin(user)
    return {
        "token": token,
        "ends_at": ends_s * 1000,
        "name": user.name,
        "tags": list(user.tags),
        "node": call.context.node_name,
    }


# -- the log ---------------------------------------------------------------------------------------


async def get_log(call: Call) -> Answer:
    """The last lines of a node's log, after the line whose number `since` names."""
    node = call.path["node"]
    if node != call.context.node_name:
        peers = call.context.peers
        if call.is_from_peer or peers is None or node not in peers.running():
            raise not_found()
        return await proxied(call, node)
    since, level = call.query.get("since", "0"), call.query.get("level", "debug")
    if not since.isdigit():
        raise bad_request("since must be the number of a line")
    try:
        lowest = level_number(level)
    except KeyError:
        raise bad_request(f"there is no level '{level}'") from None
    tail = call.context.log_tail
    lines = tail.since(int(since), lowest, call.query.get("category", ""))
    return {
        "node": node,
        "last": tail.last_number,
        "left_out": max(0, len(lines) - LINES_MAX),
        "lines": [
            {"id": line.number, **msgspec.json.decode(line.json, type=dict[str, Any])}
            for line in lines[-LINES_MAX:]
        ],
    }


# -- policies --------------------------------------------------------------------------------------


async def preview_policy(call: Call) -> Answer:
    """What a policy would cover if it were set, and what it would be overruled by; sets nothing."""
    body, vhost = await call.body(), call.vhost
    operator = field_of(body, "operator", bool, False)
    policy = Policy(
        vhost.name,
        field_of(body, "name", str, "") or "new policy",
        field_of(body, "pattern", str, ""),
        field_of(body, "definition", dict, {}),
        field_of(body, "priority", int, 0),
        field_of(body, "apply-to", str, "queues" if operator else "all"),
    )
    try:
        validate_policy(policy, operator)
        error = None
    except PolicyError as refusal:
        error = str(refusal)
    found = await _covered(vhost, policy, operator) if _can_run(policy) else []
    return {
        "valid": error is None,
        "error": error,
        "matched": len(found),
        "governed": sum(row["after"] == policy.name for row in found),
        "queues": len(vhost.queues),
        "exchanges": len(vhost.exchanges),
        "examples": found[:EXAMPLES_MAX],
    }


def _can_run(policy: Policy) -> bool:
    """Whether the pattern may be tried on all names while somebody types it."""
    try:
        validate_policy(Policy(policy.vhost, policy.name, policy.pattern, {"expires": 1}))
        return policy.pattern != "" and is_cheap(policy.pattern)
    except (PolicyError, ValueError, RecursionError, OverflowError):
        return False


async def _covered(vhost: VHost, policy: Policy, operator: bool) -> list[dict[str, Any]]:
    """The entities whose name matches: what governs them now, and what would."""
    table = vhost.operator_policies if operator else vhost.policies
    then = [*(one for one in table.values() if one.name != policy.name), policy]
    kinds: list[tuple[EntityKind, list[str]]] = [("queue", sorted(vhost.queues))]
    if not operator:
        kinds.append(("exchange", sorted(name for name in vhost.exchanges if name)))
    pace, found = Pace(), []
    for kind, names in kinds:
        for name in names:
            await pace.rest()
            if not policy.applies(kind, name):
                continue
            now, after = match(table.values(), kind, name), match(then, kind, name)
            found.append(
                {
                    "kind": kind,
                    "name": name,
                    "now": None if now is None else now.name,
                    "after": None if after is None else after.name,
                }
            )
    return found


# -- dead letters ----------------------------------------------------------------------------------


async def list_dead_letter_queues(call: Call) -> Answer:
    """The queues that dead letters end up in, and the queues they come from."""
    pace = Pace()
    found: list[dict[str, Any]] = []
    for vhost in call.visible_vhosts():
        sources = await _dead_letter_sources(vhost, pace)
        for name in sorted(sources):
            queue = vhost.queues.get(name)
            if queue is not None:
                found.append(
                    {
                        "vhost": vhost.name,
                        "name": name,
                        "node": queue.home or call.context.node_name,
                        "sources": sorted(sources[name]),
                    }
                )
    return await answer_list(call, found, lambda row: row, lambda row: str(row["name"]))


async def _dead_letter_sources(vhost: VHost, pace: Pace) -> dict[str, set[str]]:
    """By queue, those whose dead letters its bindings can lead to it."""
    leads_to: dict[str, set[str]] = {}
    sources: dict[str, set[str]] = {}
    for queue in list(vhost.queues.values()):
        await pace.rest()
        exchange = queue.effective.dead_letter_exchange
        if exchange is None:
            continue
        if exchange == "":
            key = queue.effective.dead_letter_routing_key
            targets = {queue.name if key is None else key}
        else:
            if exchange not in leads_to:
                leads_to[exchange] = _queues_behind(vhost, exchange)
            targets = leads_to[exchange]
        for target in targets:
            sources.setdefault(target, set()).add(queue.name)
    return sources


def _queues_behind(vhost: VHost, exchange: str) -> set[str]:
    """All queues that an exchange leads to, through other exchanges as well."""
    queues: set[str] = set()
    seen, waiting = {exchange}, [exchange]
    while waiting:
        one = vhost.exchanges.get(waiting.pop())
        if one is None:
            continue
        for binding in one.bindings():
            if binding.destination_kind == "queue":
                queues.add(binding.destination)
            elif binding.destination not in seen:
                seen.add(binding.destination)
                waiting.append(binding.destination)
    return queues


# -- events of all nodes ---------------------------------------------------------------------------


async def list_events_of_all(call: Call) -> Answer:
    """What every node has seen happen since the time `after`, in the order of their clocks."""
    names, after = call.query.get("names", ""), call.query.get("after", "0")
    if not after.isdigit():
        raise bad_request("after must be a time, in milliseconds since 1970")
    events = [
        event
        for event in call.context.events.since(0, tuple(names.split(",")))
        if event.timestamp > int(after)
    ][-EVENTS_MAX:]
    found = [{**event.shown(), "seen_by": call.context.node_name} for event in events]
    if not call.is_from_peer:
        what = question(call, "/warren/events", {"names": names, "after": after})
        for answer in (await ask_all(call, what)).values():
            found += answer
        found.sort(key=lambda row: (row["timestamp"], row["seen_by"], row["id"]))
    return found


ROUTES = (
    Route("POST", "/warren/session", "user", begin_session),
    Route("GET", "/warren/log/{node}", "monitor", get_log),
    Route("POST", "/warren/policies/{vhost}/preview", "policymaker", preview_policy),
    Route("GET", "/warren/dead-letters", "user", list_dead_letter_queues),
    Route("GET", "/warren/dead-letters/{vhost}", "visible", list_dead_letter_queues),
    Route("GET", "/warren/events", "monitor", list_events_of_all),
)
