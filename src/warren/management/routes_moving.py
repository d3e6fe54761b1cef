"""Routes that move messages on: to a queue that is named, or back to where they died.

The node that the messages are on does it, a part at a time; the node that was asked adds up, and
goes on elsewhere when the queue has another master in the middle.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from warren.management.across import ask, question
from warren.management.call import Answer, Call, Route, field_of
from warren.management.errors import ApiError, bad_request, not_found
from warren.management.matching import compile_match
from warren.management.moving import Order, Outcome, move, origin
from warren.management.peers import ACT_S, PeerSilent
from warren.management.redriven import marker
from warren.management.routes_messages import ALL, source_of
from warren.management.show_queues import is_exclusive
from warren.model.message import Message

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue

Shown = dict[str, Any]
Body = Mapping[str, Any]
#: Positions that one request may name.
POSITIONS_MAX = 10_000
#: How long a queue may be nobody's to take from before that is said, and how often it is looked at.
STUCK_S, LOOK_S = 10.0, 0.02
COUNTS = ("moved", "kept", "unmatched")


def _shown(outcome: Outcome, dry_run: bool) -> Shown:
    last = outcome.last_slot
    return {
        "moved": outcome.moved,
        "kept": outcome.kept,
        "unmatched": outcome.unmatched,
        "to": dict(outcome.to),
        "dry_run": dry_run,
        "last_slot": None if last is None else str(last),
        "complete": not outcome.is_cut,
    }


def _wanted(body: Body) -> tuple[int, int | None]:
    """How many messages, and behind which slot on. Raises 400."""
    count, after = field_of(body, "count", int, ALL), field_of(body, "after", int, None)
    if count < 0 or not 0 <= (after or 0) < ALL:
        raise bad_request("count and after must be at least 0")
    return count, after


def _positions(queue: AmqpQueue, body: Body) -> frozenset[int] | None:
    """Those that a reader of the queue's ranges means. Raises 400, PreconditionFailed."""
    given = field_of(body, "positions", list, None)
    if given is None:
        return None
    if len(given) > POSITIONS_MAX or not all(type(one) is int for one in given):
        raise bad_request(f"positions must be a list of at most {POSITIONS_MAX} numbers")
    # A queue that was declared anew has other messages at the same positions.
    incarnation = field_of(body, "incarnation", str, "")
    if incarnation and (queue.cursors is None or queue.cursors.incarnation != incarnation):
        raise ApiError(
            412, "precondition_failed", f"queue '{queue.name}' was deleted and declared again"
        )
    return frozenset(given)


def _begin(after: int | None, positions: frozenset[int] | None) -> int | None:
    """Nothing before the first position that is meant needs a look."""
    if not positions or min(positions) == 0:
        return after
    return max(after or 0, min(positions) - 1)


# -- on the node that has the messages -------------------------------------------------------------


async def _move_here(call: Call, body: Body) -> Shown:
    source, vhost = source_of(call), call.vhost
    name = field_of(body, "to", str)
    count, after = _wanted(body)
    matches = compile_match(field_of(body, "match", dict, None))
    target = vhost.queues.get(name)
    if target is None:
        raise not_found(f"no queue '{name}' in vhost '{vhost.name}'")
    if target is source:
        raise bad_request("messages can be moved to another queue only")
    engine, actor = call.context.engine, call.actor
    engine.check_access(actor, "exchange", "", "write")
    engine.check_owner(actor, target)
    dry_run = field_of(body, "dry_run", bool, False)
    if target.absence is not None and not dry_run:
        raise ApiError(503, "unavailable", target.absence)
    positions = _positions(source, body)
    # By its name: another object is the queue when its master is another one.
    order = Order(source, lambda _: vhost.queues.get(name), count, matches, positions, dry_run)
    return _shown(await move(call.context, order, _begin(after, positions)), dry_run)


async def _redrive_here(call: Call, body: Body) -> Shown:
    source, vhost = source_of(call), call.vhost
    count, after = _wanted(body)
    matches = compile_match(field_of(body, "match", dict, None))
    engine, actor = call.context.engine, call.actor
    engine.check_access(actor, "exchange", "", "write")

    def target(message: Message) -> AmqpQueue | None:
        queue = origin(vhost, message)
        return None if queue is None or is_exclusive(queue) else queue

    positions = _positions(source, body)
    dry_run = field_of(body, "dry_run", bool, False)
    mark = marker(source.name, int(time.time()))
    order = Order(
        source, target, count, matches, positions, dry_run, is_one_target=False, mark=mark
    )
    return _shown(await move(call.context, order, _begin(after, positions)), dry_run)


# -- on the node that was asked --------------------------------------------------------------------


async def _in_parts(call: Call, here: Callable[[Call, Body], Awaitable[Shown]]) -> Answer:
    """Have the node do it that has the messages, as often as it takes; what it comes to."""
    body = dict(await call.body())
    if call.is_from_peer:
        return await here(call, body) if not call.queue().is_remote else _nothing(body)
    total, went_on_s = _nothing(body), time.monotonic()
    while True:
        try:
            part = await _part(call, body, here)
        except ApiError as error:
            if total["moved"]:
                told = f"{error.reason}; {total['moved']} messages had been moved before"
                raise ApiError(error.status, error.error, told) from error
            raise
        for name in COUNTS:
            total[name] += part[name]
        total["to"] = dict(Counter(total["to"]) + Counter(part["to"]))
        is_stuck = part["last_slot"] in {None, body.get("after")}
        total["last_slot"] = body["after"] = part["last_slot"] or body.get("after")
        total["complete"] = part.get("complete", True)
        if total["complete"]:
            return total
        if "count" in body:
            body["count"] = max(0, _wanted(body)[0] - part["moved"])
        if not is_stuck:
            went_on_s = time.monotonic()
        elif time.monotonic() > went_on_s + STUCK_S:
            # Somebody has to decide who the master is, or the master who comes after it.
            return total
        else:
            await asyncio.sleep(LOOK_S)


def _nothing(body: Body) -> Shown:
    outcome = Outcome(is_cut=True)
    return _shown(outcome, field_of(body, "dry_run", bool, False))


async def _part(call: Call, body: Body, here: Callable[[Call, Body], Awaitable[Shown]]) -> Shown:
    queue = call.queue()
    if not queue.is_remote:
        return await here(call, body)
    what = msgspec.structs.replace(question(call), body=msgspec.json.encode(body))
    try:
        answer = await ask(call, queue.home, what, ACT_S * 2)
    except PeerSilent as error:
        raise ApiError(503, "unavailable", str(error)) from error
    said: Shown = msgspec.json.decode(answer.body)
    if answer.status != 200:
        raise ApiError(answer.status, said["error"], said["reason"])
    return said


async def move_messages(call: Call) -> Answer:
    """Move ready messages, those that `match` or at `positions`, to another queue of the vhost."""
    return await _in_parts(call, _move_here)


async def redrive_messages(call: Call) -> Answer:
    """Send dead letters, those that `match` or at `positions`, back to where they first died."""
    return await _in_parts(call, _redrive_here)


ROUTES = (
    Route("POST", "/queues/{vhost}/{name}/move", "vhost", move_messages),
    Route("POST", "/queues/{vhost}/{name}/redrive", "vhost", redrive_messages),
)
