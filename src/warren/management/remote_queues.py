"""Queues of other nodes in lists: their homes are asked for rows, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from warren.management.across import ROWS_AT_A_TIME, ask, question, wanted_of_others
from warren.management.call import Answer, Call, Route
from warren.management.encode import table, to_json
from warren.management.errors import bad_request
from warren.management.listing import parse_query, pick
from warren.management.mirrors import mirror_fields
from warren.management.pace import LIST_SLICE_S, Pace
from warren.management.peers import PeerSilent
from warren.management.show_queues import (
    is_exclusive,
    pause_fields,
    show_queue,
    show_queue_totals,
)
from warren.management.spans import spans_of
from warren.model.policy import merge

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.management.context import Context
    from warren.management.show_queues import Spans

Shown = dict[str, Any]
ROWS_PATH = "/nodes/rows/queues"
_names_decoder = msgspec.json.Decoder(list[tuple[str, str]])
_rows_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_NOTHING = b"null"


def show_absent(context: Context, queue: AmqpQueue, state: str) -> Shown:
    """A queue whose home does not answer: what every node knows of it, and no counters."""
    policy, operator_policy = queue.policy, queue.operator_policy
    return {
        "arguments": table(queue.declaration.arguments),
        "auto_delete": queue.declaration.auto_delete,
        "durable": queue.declaration.durable,
        "effective_policy_definition": dict(merge(policy, operator_policy)),
        "exclusive": is_exclusive(queue),
        "name": queue.name,
        "node": queue.home,
        "operator_policy": operator_policy.name if operator_policy is not None else None,
        "policy": policy.name if policy is not None else None,
        "state": state,
        "type": "classic",
        "vhost": queue.vhost.name,
        **pause_fields(queue),
        **mirror_fields(context.engine, queue),
    }


def state_of(queue: AmqpQueue) -> str:
    """Of a queue whose home has not answered."""
    return "down" if queue.absence is not None else "unresponsive"


def show_one(call: Call, spans: Spans) -> Callable[[AmqpQueue], Shown]:
    """How a queue of this node stands in a list."""
    context = call.context
    if call.flag("disable_stats") or context.settings.management.disable_stats:
        return lambda queue: show_queue_totals(context, queue)
    return lambda queue: show_queue(context, queue, spans)


async def rows_of_homes(
    call: Call, queues: Iterable[AmqpQueue]
) -> dict[AmqpQueue, msgspec.Raw | Shown]:
    """The rows of those that are on other nodes; each home is asked once for all of its own."""
    by_home: dict[str, list[AmqpQueue]] = {}
    for queue in queues:
        if queue.is_remote:
            by_home.setdefault(queue.home, []).append(queue)
    found: dict[AmqpQueue, msgspec.Raw | Shown] = {}
    for rows in await asyncio.gather(*(_ask_home(call, *item) for item in by_home.items())):
        found.update(rows)
    return found


async def _ask_home(
    call: Call, home: str, queues: list[AmqpQueue]
) -> dict[AmqpQueue, msgspec.Raw | Shown]:
    found: dict[AmqpQueue, msgspec.Raw | Shown] = {}
    query = wanted_of_others(call.query)
    is_silent = False
    for first in range(0, len(queues), ROWS_AT_A_TIME):
        some = queues[first : first + ROWS_AT_A_TIME]
        rows: list[msgspec.Raw] = []
        reachable = [queue for queue in some if queue.absence is None]
        if reachable and not is_silent:
            names = msgspec.json.encode([(queue.vhost.name, queue.name) for queue in reachable])
            try:
                answer = await ask(call, home, question(call, ROWS_PATH, query, names))
                rows = _rows_decoder.decode(answer.body) if answer.status == 200 else []
            except PeerSilent:
                # Once is enough: nobody waits a second for every page of it.
                is_silent = True
        pairs = zip(reachable, rows, strict=False)
        found.update({queue: row for queue, row in pairs if bytes(row) != _NOTHING})
        columns = parse_query(query).columns
        for queue in some:
            if queue not in found:
                found[queue] = pick(show_absent(call.context, queue, state_of(queue)), columns)
    return found


async def queue_rows(call: Call) -> Answer:
    """Rows of queues of this node, for another that lists them."""
    try:
        names = _names_decoder.decode(await call.request.read())
    except msgspec.DecodeError as error:
        raise bad_request(f"names of queues: {error}") from error
    columns, show = parse_query(call.query).columns, show_one(call, spans_of(call))
    vhosts = call.context.engine.vhosts
    rows: list[msgspec.Raw] = []
    pace = Pace(LIST_SLICE_S)
    for vhost_name, name in names:
        vhost = vhosts.get(vhost_name)
        queue = None if vhost is None else vhost.queues.get(name)
        if queue is None or queue.is_remote or not call.caller.sees_vhost(vhost_name):
            rows.append(msgspec.Raw(_NOTHING))
        else:
            rows.append(msgspec.Raw(to_json(pick(show(queue), columns))))
        await pace.rest()
    return rows


ROUTES = (Route("POST", ROWS_PATH, "user", queue_rows),)
