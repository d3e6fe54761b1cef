"""One action on many queues in one request, which says of each what came of it.

Each is let in, checked and done as if it were asked for alone: one that fails, or that the caller
may not touch, keeps none of the others from being done.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from warren.auth.users import OperatorName
from warren.management.across import ask
from warren.management.call import TRUSTED, Answer, Call, Reply, Route, check_access, field_of
from warren.management.errors import REFUSALS, ApiError, as_api_error, bad_request, not_found
from warren.management.peers import ACT_S, PeerRequest, PeerSilent, Question
from warren.management.routes_declare import delete_queue, purge_queue
from warren.management.routes_mirrors import queue_action
from warren.management.routes_pausing import pause_queue, resume_queue

#: Queues that one request may name.
QUEUES_MAX = 10_000
#: So many are under way at once: in a cluster each waits for the others to agree.
AT_ONCE = 32
DONE = 204


@dataclass(frozen=True, slots=True)
class Action:
    """What is done to each: the route that does it to one."""

    route: Route
    body: bytes = b""
    #: Only the node that the queue is on can do it.
    at_home: bool = False


_QUEUE = "/queues/{vhost}/{name}"
ACTIONS = {
    "purge": Action(Route("DELETE", f"{_QUEUE}/contents", "vhost", purge_queue)),
    "delete": Action(Route("DELETE", _QUEUE, "vhost", delete_queue)),
    "pause": Action(Route("PUT", f"{_QUEUE}/pause", "vhost", pause_queue)),
    "resume": Action(Route("PUT", f"{_QUEUE}/resume", "vhost", resume_queue)),
    "sync": Action(
        Route("POST", f"{_QUEUE}/actions", "policymaker", queue_action),
        b'{"action":"sync"}',
        at_home=True,
    ),
    "cancel_sync": Action(
        Route("POST", f"{_QUEUE}/actions", "policymaker", queue_action),
        b'{"action":"cancel_sync"}',
        at_home=True,
    ),
}


def _named(body: dict[str, Any]) -> list[tuple[str, str]]:
    """(virtual host, name) of the queues, each once. Raises 400."""
    given = field_of(body, "queues", list)
    if len(given) > QUEUES_MAX:
        raise bad_request(f"queues must name at most {QUEUES_MAX}")
    names = []
    for item in given:
        if not isinstance(item, dict):
            raise bad_request('queues must be a list of {"vhost": ..., "name": ...}')
        names.append((field_of(item, "vhost", str), field_of(item, "name", str)))
    return list(dict.fromkeys(names))


async def act_on_queues(call: Call) -> Answer:
    """Purge, delete, pause, resume or synchronise many queues; says of each what came of it."""
    body = await call.body()
    name = field_of(body, "action", str)
    action = ACTIONS.get(name)
    if action is None:
        raise bad_request(f"unknown action '{name}': it is one of {', '.join(ACTIONS)}")
    queues = _named(body)
    room = asyncio.Semaphore(AT_ONCE)

    async def one(vhost: str, queue: str) -> dict[str, Any]:
        async with room:
            status, reason = await _outcome(call, action, vhost, queue)
        return {"vhost": vhost, "name": queue, "status": status, "reason": reason}

    items = await asyncio.gather(*(one(*where) for where in queues))
    done = sum(item["status"] == DONE for item in items)
    return {"action": name, "done": done, "failed": len(items) - done, "items": items}


async def _outcome(call: Call, action: Action, vhost: str, name: str) -> tuple[int, str | None]:
    """The status and the reason that the action on one queue alone would be answered with."""
    user = None if isinstance(call.caller.name, OperatorName) else call.caller.name
    path = action.route.path.format(vhost=quote(vhost, safe=""), name=quote(name, safe=""))
    question = Question(action.route.method, path, "", user, action.body)
    request: Any = PeerRequest(question, app={TRUSTED: call.is_trusted})
    single = Call(call.context, call.caller, request, {"vhost": vhost, "name": name})
    try:
        check_access(single, action.route)
        queue = call.context.vhost(vhost).queues.get(name)
        if queue is None:
            raise not_found(f"no queue '{name}' in vhost '{vhost}'")
        if action.at_home and queue.is_remote:
            answer = await ask(call, queue.home, question, ACT_S)
            return answer.status, _reason(answer.body)
        result = await action.route.handler(single)
    except ApiError as error:
        return error.status, str(error.reason)
    except REFUSALS as error:
        refusal = as_api_error(error)
        return refusal.status, str(refusal.reason)
    except PeerSilent as error:
        return 503, str(error)
    if isinstance(result, Reply | web.Response):
        return result.status, None
    return DONE, None


def _reason(body: bytes) -> str | None:
    if not body:
        return None
    said = msgspec.json.decode(body)
    return str(said.get("reason")) if isinstance(said, dict) else None


ROUTES = (Route("POST", "/warren/queues/actions", "user", act_on_queues),)
