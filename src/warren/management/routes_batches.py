"""Batches of producers: staged in parts, and then published all at once, and once only.

A part is staged on every node that may have to publish it: the homes of its queues, and their
replicas in sync. So a batch can be committed after a failover, by whoever is master then. A commit
goes to all of those nodes; it is done when every queue of the batch was taken by its home.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from warren.engine import batches
from warren.management.across import question
from warren.management.call import Answer, Call, Route
from warren.management.errors import ApiError, bad_request
from warren.management.pace import Pace
from warren.management.routes_cursors import (
    check_still,
    number_in_query,
    passed_on,
    settled,
    worded,
)
from warren.model.message import Message
from warren.wire.staged import decode_staged

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue

Result = TypeVar("Result")
#: What a node does with a batch: of a producer, of a number, and its parts.
AtNode = Callable[[Call, str, int, list[Any]], Awaitable[dict[str, Any]]]
#: Messages of a part that are routed before it is asked whether others want their turn.
SLICE_MESSAGES = 128
#: Between the names of the nodes that have the same messages.
TOGETHER = " "


def _batch(call: Call) -> tuple[str, int]:
    number = call.path["batch"]
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise bad_request("the number of a batch must be one")
    return call.path["producer"], int(number)


async def _done(doing: Callable[[], Result]) -> Result:
    return doing()


async def _ask(
    call: Call, node: str, body: bytes, query: dict[str, str] | None = None
) -> dict[str, Any]:
    """What another node answers to the same request. Raises ApiError that it refuses with."""
    answer = await passed_on(call, node, body, query)
    assert answer.body is None or isinstance(answer.body, bytes)
    told: dict[str, Any] = msgspec.json.decode(answer.body) if answer.body else {}
    if answer.status != 200:
        raise ApiError(answer.status, told.get("error", ""), told.get("reason", ""))
    return told


# -- staging ---------------------------------------------------------------------------------------


async def stage_batch(call: Call) -> Answer:
    """Stage messages of a part of a batch, on every node that may have to publish them."""
    producer, batch = _batch(call)
    data = await call.request.read()
    context, here = call.context, call.context.node_name
    try:
        messages = decode_staged(data)
    except ValueError as error:
        raise ApiError(400, "bad_block", str(error)) from error
    router = batches.Router(context.engine, call.actor, call.vhost)
    counts: Counter[frozenset[str]] = Counter()
    mine: list[Message] = []
    plain: list[Message] = []
    pace = Pace()
    #: Queues repeat: who has them, and whether one of them has no mirrors and is here.
    known: dict[tuple[AmqpQueue, ...], tuple[frozenset[str], bool]] = {}
    for n, message in enumerate(messages):
        queues = router.queues(message)
        found = known.get(queues)
        if found is None:
            found = known[queues] = _places(call, router, queues)
        nodes, is_plain = found
        counts[nodes] += 1
        if here in nodes:
            mine.append(message)
        if is_plain:
            plain.append(message)
        if n % SLICE_MESSAGES == 0:
            await pace.rest()
    others = sorted(frozenset().union(*counts) - {here})
    if not call.is_from_peer:
        await _stage_elsewhere(call, others, counts, data)
    part, attempt = call.query.get("part", "0"), call.query.get("attempt", "0")
    key = (call.vhost.name, producer, batch, part, attempt)
    staged = context.engine.staging.stage
    block = number_in_query(call, "block", 0)
    await worded(_done(lambda: context.act(lambda: staged(key, block, mine, plain))))
    return {
        "here": len(mine),
        "messages": len(messages),
        "staged": {TOGETHER.join(sorted(nodes)): count for nodes, count in counts.items() if nodes},
    }


def _places(
    call: Call, router: batches.Router, queues: tuple[AmqpQueue, ...]
) -> tuple[frozenset[str], bool]:
    nodes = frozenset().union(*(router.nodes(queue) for queue in queues))
    if not queues and not call.is_from_peer:
        # Whoever is asked counts what goes nowhere.
        nodes = frozenset((call.context.node_name,))
    return nodes, any(not queue.is_remote and queue.mirror is None for queue in queues)


async def _stage_elsewhere(
    call: Call, nodes: list[str], counts: Counter[frozenset[str]], data: bytes
) -> None:
    """Raises ApiError: when a node sees other replicas than this one, for instance."""
    for node, told in zip(
        nodes, await asyncio.gather(*(_ask(call, node, data) for node in nodes)), strict=True
    ):
        wanted = sum(count for some, count in counts.items() if node in some)
        if told["here"] != wanted:
            text = f"node {node} has staged {told['here']} messages of {wanted}: queues are moving"
            raise ApiError(503, "unavailable", text)


# -- committing ------------------------------------------------------------------------------------


async def commit_batch(call: Call) -> Answer:
    """Publish the staged parts of a batch, all at once, unless that has been done."""
    producer, batch = _batch(call)
    body = await call.body()
    parts = body.get("parts")
    if not isinstance(parts, list) or not all(_is_part(part) for part in parts):
        raise bad_request("parts must be a list of [part, attempt, messages by nodes]")
    staging = call.context.engine.staging
    if call.is_from_peer and call.flag("check", False):
        return await _check_here(call, producer, batch, parts)
    if call.is_from_peer:
        return await _commit_here(call, producer, batch, parts)
    together = {frozenset(nodes.split(TOGETHER)) for _, _, counts in parts for nodes in counts}
    try:
        if len(together) > 1:
            # What is lost at some nodes is not published at others.
            await _at_all_nodes(call, together, {"check": "true"}, _check_here)
        told, without = await _at_all_nodes(call, together, {}, _commit_here)
    except ApiError as error:
        number, answer = staging.told.get((call.vhost.name, producer), (-1, None))
        if error.status != 404 or number != batch:
            raise
        # The answer was lost, and what was staged is forgotten.
        return answer
    _check_all_taken(batch, told, frozenset().union(*together) - without)
    answer = {
        name: sum(one[name] for one in told.values())
        for name in ("published", "duplicates", "refused", "unroutable")
    }
    call.context.act(lambda: staging.remember(call.vhost.name, producer, batch, answer))
    await _forget_everywhere(call, producer, batch, told)
    return answer


async def _at_all_nodes(
    call: Call, together: set[frozenset[str]], query: dict[str, str], act_here: AtNode
) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """By node, what each that answers says, and who has lost what was staged.

    Raises ApiError when too few do.
    """
    here = call.context.node_name
    nodes = sorted(frozenset().union(*together) - {here})
    body = await call.request.read()
    asked = (_ask(call, node, body, query) for node in nodes)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    told: dict[str, dict[str, Any]] = {}
    silent: dict[str, ApiError] = {}
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, ApiError) and answer.status in {404, 503}:
            # It is down, or was: others may have what it had.
            silent[node] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            told[node] = answer
    try:
        told[here] = await act_here(call, *_batch(call), (await call.body())["parts"])
    except ApiError as error:
        if error.status not in {404, 503}:
            raise
        silent[here] = error
    for some in together:
        if not some & set(told):
            # Those that are down come back, but without what was staged.
            raise next(
                (silent[node] for node in some if silent[node].status == 404), silent[min(some)]
            )
    return told, {node for node, error in silent.items() if error.status == 404}


def _check_all_taken(
    batch: int, told: dict[str, dict[str, Any]], staged_at: frozenset[str]
) -> None:
    """Every queue was there at one of those who answered. Raises ApiError."""
    taken = {queue for one in told.values() for queue in one["taken"]}
    for one in told.values():
        for queue, home in one["elsewhere"].items():
            if queue in taken:
                continue
            if home and home not in staged_at:
                text = f"queue '{queue}' is on {home} by now, where batch {batch} is not staged"
                raise ApiError(409, "moved", f"{text}; publish the batch again")
            text = f"queue '{queue}' has no master at present, or it is at {home or 'no node'}"
            raise ApiError(503, "unavailable", text)


def _wanted_here(call: Call, parts: list[Any]) -> list[tuple[str, str, int]]:
    """Of each part how many messages this node must have."""
    here = call.context.node_name
    return [
        (part, attempt, sum(n for nodes, n in counts.items() if here in nodes.split(TOGETHER)))
        for part, attempt, counts in parts
    ]


async def _check_here(call: Call, producer: str, batch: int, parts: list[Any]) -> dict[str, Any]:
    """This node has what it must have of a batch."""
    staging, wanted = call.context.engine.staging, _wanted_here(call, parts)
    await worded(_done(lambda: staging.check(call.vhost.name, producer, batch, wanted)))
    return {}


async def _commit_here(call: Call, producer: str, batch: int, parts: list[Any]) -> dict[str, Any]:
    """What this node has of a batch is in the queues that it serves, on all their replicas."""
    context, vhost = call.context, call.vhost.name
    engine = context.engine
    wanted = _wanted_here(call, parts)

    def act() -> batches.Outcome:
        messages = engine.staging.take(vhost, producer, batch, wanted)
        router = batches.Router(engine, call.actor, call.vhost)
        return batches.commit(engine, producer, batch, messages, router)

    outcome: batches.Outcome = await worded(_done(lambda: context.act(act)))
    await context.written()
    for queue in outcome.taken:
        if queue.mirror is None:
            continue
        await settled(call, queue)
        check_still(call, queue, None)
        if not batches.has_batch(queue, producer, batch):
            text = f"queue '{queue.name}' has another master by now: ask again"
            raise ApiError(503, "unavailable", text)
    return {
        "published": outcome.published,
        "duplicates": outcome.duplicates,
        "refused": outcome.refused,
        "unroutable": outcome.unroutable,
        "taken": [queue.name for queue in outcome.taken],
        "elsewhere": outcome.elsewhere,
    }


async def _forget_everywhere(
    call: Call, producer: str, batch: int, nodes: dict[str, dict[str, Any]]
) -> None:
    """What is not reached expires."""
    here, vhost = call.context.node_name, call.vhost.name
    staging, peers = call.context.engine.staging, call.context.peers
    call.context.act(lambda: staging.forget(vhost, producer, batch))
    path = question(call).path.removesuffix("/commit")
    what = msgspec.structs.replace(question(call, path), method="DELETE")
    if peers is not None:
        asked = (peers.ask(node, what) for node in nodes if node != here)
        await asyncio.gather(*asked, return_exceptions=True)


def _is_part(part: Any) -> bool:
    return (
        isinstance(part, list)
        and len(part) == 3
        and isinstance(part[0], str)
        and isinstance(part[1], str)
        and isinstance(part[2], dict)
        and all(isinstance(count, int) for count in part[2].values())
    )


async def abort_batch(call: Call) -> Answer:
    """Give a batch up that was staged; it expires on other nodes."""
    producer, batch = _batch(call)
    staging, vhost = call.context.engine.staging, call.vhost.name
    return call.context.act(lambda: staging.forget(vhost, producer, batch))


_BATCH = "/batches/{vhost}/{producer}/{batch}"
ROUTES = (
    Route("POST", f"{_BATCH}/stage", "vhost", stage_batch),
    Route("POST", f"{_BATCH}/commit", "vhost", commit_batch),
    Route("DELETE", _BATCH, "vhost", abort_batch),
)
