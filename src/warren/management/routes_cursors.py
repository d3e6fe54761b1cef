"""Cursors and ranges of queues, and batches of producers: what data pipelines use.

Blocks of messages are binary (`wire/columns.pyx`); everything else is JSON. Any node answers for
any queue: a request about one on another node is passed on to it.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from aiohttp import web

from warren.engine import batches, cursors
from warren.management.across import ask, question, rows_of_others
from warren.management.call import Answer, Call, Handler, Route, field_of
from warren.management.errors import ApiError, bad_request
from warren.management.listing import answer_list
from warren.management.pace import Pace
from warren.management.peers import ACT_S, PeerSilent
from warren.model.errors import NotFound, PreconditionFailed, ResourceError, ResourceLocked
from warren.queue.blocks import BlockBuilder
from warren.queue.cursors import NOTHING_KEPT
from warren.wire.staged import decode_staged

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.queue.cursors import Cursor

#: A block has no more rows than this, and is ended when its messages take so many bytes.
BLOCK_ROWS_MAX, BLOCK_BYTES_MAX = 65_536, 4 << 20
#: Rows of a block that are encoded before others have their turn: well below a millisecond.
SLICE_ROWS = 256
#: The longest that a reader waits for more.
WAIT_MS_MAX = 10_000
#: How often it is looked whether there is more.
LOOK_S = 0.02
#: The longest that a reader waits for a message that another replica is asked for.
MEND_PATIENCE_S = 5.0
#: More than any queue holds.
ALL = 2**62

_BINARY = {"Content-Type": "application/octet-stream", "Cache-Control": "no-cache"}
_JSON = {"Content-Type": "application/json", "Cache-Control": "no-cache"}
Result = TypeVar("Result")

#: What the engine raises, and how it is told: readers act by these words.
_WORDS: tuple[tuple[type[Exception], int, str], ...] = (
    (cursors.Trimmed, 410, "trimmed"),
    (NotFound, 404, "no_cursor"),
    (ResourceLocked, 409, "cursor_in_use"),
    (ResourceError, 503, "staged_too_much"),
    (PreconditionFailed, 412, "precondition_failed"),
)


def at_home(handler: Handler) -> Handler:
    """Has the queue's home answer, and words refusals so that programs can tell them apart."""

    @functools.wraps(handler)
    async def answer(call: Call) -> Answer:
        queue = call.vhost.queues.get(call.path["name"])
        if queue is None:
            name, vhost = call.path["name"], call.vhost.name
            raise ApiError(404, "no_queue", f"no queue '{name}' in vhost '{vhost}'")
        if queue.awaits_view:
            raise ApiError(503, "unavailable", f"the mirrors of queue '{queue.name}' are chosen")
        if queue.is_remote:
            if call.is_from_peer or queue.home == call.context.node_name or queue.absence:
                raise ApiError(503, "unavailable", f"queue '{queue.name}' is not served here")
            return await _passed_on(call, queue.home)
        call.context.engine.check_access(call.actor, "queue", queue.name, "read")
        try:
            told = await _worded(handler(call))
        except Exception as error:
            check_still(call, queue, error)
            raise
        check_still(call, queue, None)
        return told

    return answer


def check_still(call: Call, queue: AmqpQueue, error: Exception | None) -> None:
    """Whether that queue is still the one: an object that is not knows nothing of its messages."""
    now = call.vhost.queues.get(queue.name)
    if queue.retired or now not in {queue, None}:
        text = f"queue '{queue.name}' has gone to another node meanwhile: ask again"
        raise ApiError(503, "unavailable", text) from error


async def settled(call: Call, queue: AmqpQueue) -> None:
    """Until what was just done to the queue's cursors is on its disk, or on those of all replicas.

    Raises ApiError when they take too long.
    """
    if queue.mirror is None:
        await call.context.written()
        return
    done = asyncio.Event()
    queue.mirror.when_committed(queue.operations, done.set)
    try:
        await asyncio.wait_for(done.wait(), ACT_S)
    except TimeoutError as error:
        text = f"the mirrors of queue '{queue.name}' have not answered for {ACT_S:.0f} s: ask again"
        raise ApiError(503, "unavailable", text) from error


async def _worded(doing: Any) -> Answer:
    try:
        return await doing
    except tuple(kind for kind, _, _ in _WORDS) as error:
        for kind, status, word in _WORDS:
            if isinstance(error, kind):
                raise ApiError(status, word, error.explanation) from error  # type: ignore[attr-defined]
        raise


async def _passed_on(call: Call, node: str, body: bytes | None = None) -> web.Response:
    """What another node answers to the same request, whatever it is."""
    what = question(call)
    if body is None and call.request.method not in {"GET", "HEAD"}:
        body = await call.request.read()
    if body:
        what = msgspec.structs.replace(what, body=body)
    try:
        answer = await ask(call, node, what, ACT_S)
    except PeerSilent as error:
        raise ApiError(503, "unavailable", str(error)) from error
    headers = _BINARY if answer.body[:8] == b"WARRENB1" else _JSON if answer.body else {}
    return web.Response(status=answer.status, body=answer.body or None, headers=headers)


def _number(call: Call, name: str, default: int) -> int:
    given = call.query.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 19:
        raise bad_request(f"{name} must be a number")
    return int(given)


# -- cursors ---------------------------------------------------------------------------------------


def show_cursor(call: Call, queue: AmqpQueue, cursor: Cursor) -> dict[str, Any]:
    """A cursor as lists have it; its token is for its reader only."""
    now_ms = call.context.engine.clock.now_ms()
    end = queue.readable_end
    in_use = cursor.owner_until_ms > now_ms
    return {
        "created_at": cursor.created_ms,
        "end": end,
        "expires_s": cursor.expires_ms // 1000,
        "idle_s": max(0, now_ms - cursor.used_ms) // 1000,
        "in_use": in_use,
        "lag": max(0, end - cursor.position),
        "mode": cursor.mode,
        "name": cursor.name,
        "node": call.context.node_name,
        "position": cursor.position,
        "queue": queue.name,
        "retained": queue.retained,
        "retained_bytes": queue.retained_bytes,
        "start": cursor.start,
        "vhost": queue.vhost.name,
    }


def _told(call: Call, queue: AmqpQueue, cursor: Cursor) -> dict[str, Any]:
    """What its reader is told."""
    assert queue.cursors is not None
    return {
        "end": queue.readable_end,
        "epoch": queue.epoch,
        "incarnation": queue.cursors.incarnation,
        "mode": cursor.mode,
        "node": call.context.node_name,
        "position": cursor.position,
        "start": cursor.start,
        "token": cursor.token,
    }


def _of_vhost(queues: dict[str, AmqpQueue]) -> list[tuple[AmqpQueue, Cursor]]:
    return [
        (queue, cursor)
        for queue in queues.values()
        if not queue.is_remote and queue.cursors is not None
        for cursor in queue.cursors.by_name.values()
    ]


async def list_cursors(call: Call) -> Answer:
    """All cursors, with how far behind each is."""
    found = [row for vhost in call.visible_vhosts() for row in _of_vhost(vhost.queues)]
    others = await rows_of_others(call)
    return await answer_list(
        call, found, lambda row: show_cursor(call, *row), lambda row: row[1].name, others
    )


@at_home
async def list_queue_cursors(call: Call) -> Answer:
    """The cursors of a queue."""
    queue = call.queue()
    known = queue.cursors.by_name.values() if queue.cursors is not None else ()
    return [show_cursor(call, queue, cursor) for cursor in known]


@at_home
async def get_cursor(call: Call) -> Answer:
    """One cursor."""
    queue = call.queue()
    return show_cursor(call, queue, cursors.find(queue, call.path["cursor"]))


@at_home
async def open_cursor(call: Call) -> Answer:
    """Open a cursor: its start is decided the first time, and told for ever after."""
    body, queue = await call.body(), call.queue()
    start = body.get("start", "earliest")
    wall_ms = time.time_ns() // 1_000_000
    engine = call.context.engine

    def act() -> Cursor | None:
        begin = start
        if isinstance(start, dict):
            begin = _at_time(queue, field_of(start, "timestamp", int))
        return cursors.open_cursor(
            engine,
            queue,
            call.path["cursor"],
            field_of(body, "mode", str, "follow"),
            begin,
            wall_ms,
            token=field_of(body, "token", str, ""),
            owner=field_of(body, "owner", str, ""),
            expires_ms=1000 * max(0, field_of(body, "expires_s", int, cursors.EXPIRES_MS // 1000)),
        )

    cursor = call.context.act(act)
    if cursor is None or queue.mirror is None:
        await settled(call, queue)
    if cursor is None:
        check_still(call, queue, None)
        cursor = call.context.act(act)
    assert cursor is not None
    return _told(call, queue, cursor)


def _at_time(queue: AmqpQueue, at_ms: int) -> int:
    if queue.cursors is None:
        # Nobody has noted when messages came, so all of them are later than any time.
        return queue.first_kept()
    return max(queue.first_kept(), queue.cursors.position_at(at_ms, queue.next_position))


@at_home
async def drop_cursor(call: Call) -> Answer:
    """Drop a cursor: what was kept for it alone is gone."""
    queue, name = call.queue(), call.path["cursor"]
    call.context.act(lambda: cursors.drop_cursor(call.context.engine, queue, name))
    await settled(call, queue)
    return None


def _reader(call: Call, body: dict[str, Any]) -> tuple[AmqpQueue, Cursor]:
    queue = call.queue()
    cursor = cursors.use(
        call.context.engine,
        queue,
        call.path["cursor"],
        field_of(body, "token", str),
        field_of(body, "owner", str, ""),
    )
    return queue, cursor


@at_home
async def poll_cursor(call: Call) -> Answer:
    """How far a reader may read next; waits a while for more than it has."""
    body = await call.body()
    queue, cursor = _reader(call, body)
    after = field_of(body, "after", int, 0)
    rows, size = field_of(body, "rows", int, ALL), field_of(body, "bytes", int, ALL)
    if after < cursor.position:
        raise cursors.Trimmed(cursor.position)
    deadline_s = time.monotonic() + min(field_of(body, "wait_ms", int, 0), WAIT_MS_MAX) / 1000
    while queue.readable_end <= after and time.monotonic() < deadline_s:
        if queue.deleted or queue.retired:
            break
        await asyncio.sleep(LOOK_S)
    admitted = max(after, queue.admit(after, ALL, max(1, rows), max(1, size)))
    return {**_told(call, queue, cursor), "admitted": admitted}


@at_home
async def trim_cursor(call: Call) -> Answer:
    """All before a position is done with; for a cursor that drains, acknowledged."""
    body = await call.body()
    queue, cursor = _reader(call, body)
    upto = field_of(body, "upto", int)
    pace = Pace()
    while call.context.act(functools.partial(cursors.trim_some, queue, cursor, upto)):
        if queue.mirror is not None:
            await settled(call, queue)
            check_still(call, queue, None)
        await pace.rest()
    return _told(call, queue, cursor)


@at_home
async def release_cursor(call: Call) -> Answer:
    """A reader has ended; another may take the cursor at once."""
    body = await call.body()
    cursor = cursors.find(call.queue(), call.path["cursor"])
    cursors.let_go(cursor, field_of(body, "owner", str))
    return None


# -- ranges ----------------------------------------------------------------------------------------


@at_home
async def get_range_info(call: Call) -> Answer:
    """What can be read of a queue: its first and last positions, and the one at a time."""
    queue = call.queue()
    known = queue.cursors
    first = queue.first_kept()
    if known is not None and known.floor != NOTHING_KEPT:
        first = max(first, min(known.floor, queue.readable_end))
    answer = {
        "end": queue.readable_end,
        "epoch": queue.epoch,
        "first": first,
        "incarnation": known.incarnation if known is not None else "",
        "node": call.context.node_name,
    }
    if "timestamp" in call.query:
        answer["at"] = min(_at_time(queue, _number(call, "timestamp", 0)), queue.readable_end)
    return answer


@at_home
async def read_range(call: Call) -> Answer:
    """Messages of a range of positions as a block of columns; nothing is taken out."""
    return await _read_block(call, call.queue())


async def _read_block(call: Call, queue: AmqpQueue) -> Answer:
    first, end = _number(call, "from", 0), _number(call, "to", ALL)
    cursors.check_range(queue, first, call.query.get("incarnation", ""))
    rows_max = min(_number(call, "rows", BLOCK_ROWS_MAX), BLOCK_ROWS_MAX)
    bytes_max = min(_number(call, "bytes", BLOCK_BYTES_MAX), BLOCK_BYTES_MAX)
    known = queue.cursors
    # A cursor knows from where on nothing may be missing.
    cursor = cursors.find(queue, call.query["cursor"]) if "cursor" in call.query else None
    block = BlockBuilder(
        first,
        cursor,
        list(known.times) if known is not None else [],
        call.flag("body", True),
        call.flag("headers", True),
    )
    pace, patient_s = Pace(), time.monotonic() + MEND_PATIENCE_S
    while block.next < end and block.rows < rows_max and block.size < bytes_max:
        before = block.next
        block.fill(queue, end, min(SLICE_ROWS, rows_max - block.rows), bytes_max)
        if block.next == before:
            if block.rows or before >= queue.readable_end or time.monotonic() > patient_s:
                break
            # Another replica is asked for the next one, which cannot be read here.
            await asyncio.sleep(LOOK_S)
        await pace.rest()
        # It may have been trimmed meanwhile.
        cursors.check_range(queue, first, call.query.get("incarnation", ""))
    data = block.finish(
        epoch=queue.epoch,
        incarnation=known.incarnation if known is not None else "",
        node=call.context.node_name,
    )
    return web.Response(body=data, headers=_BINARY)


def at_replica(handler: Callable[[Call, AmqpQueue], Any]) -> Handler:
    """Has the node of the query answer for its own replica of a mirrored queue, master or not."""

    @functools.wraps(handler)
    async def answer(call: Call) -> Answer:
        context, name = call.context, call.path["name"]
        node = call.query.get("node", context.node_name)
        if node != context.node_name and not call.is_from_peer:
            return await _passed_on(call, node)
        queue = call.vhost.queues.get(name)
        if queue is None:
            raise ApiError(404, "no_queue", f"no queue '{name}' in vhost '{call.vhost.name}'")
        context.engine.check_access(call.actor, "queue", name, "read")
        mirrors = context.engine.mirrors
        mirror = None if mirrors is None else mirrors.by_number.get(queue.number)
        if mirror is None or mirror.replica is None:
            text = f"node {context.node_name} has no replica of queue '{name}'"
            raise ApiError(404, "no_replica", text)
        return await _worded(handler(call, mirror.queue))

    return answer


@at_replica
async def get_replica_info(call: Call, queue: AmqpQueue) -> Answer:
    """What one node's own replica of a mirrored queue has: its first and last positions."""
    known = queue.cursors
    return {
        "cursors": sorted(known.by_name) if known is not None else [],
        "end": queue.readable_end,
        "first": queue.first_kept(),
        "incarnation": known.incarnation if known is not None else "",
        "node": call.context.node_name,
    }


@at_replica
async def read_replica(call: Call, queue: AmqpQueue) -> Answer:
    """A range of one node's own replica of a mirrored queue, as a block of columns."""
    return await _read_block(call, queue)


# -- batches ---------------------------------------------------------------------------------------


def _batch(call: Call) -> tuple[str, int]:
    number = call.path["batch"]
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise bad_request("the number of a batch must be one")
    return call.path["producer"], int(number)


async def _elsewhere(call: Call, nodes: list[str], body: bytes) -> list[dict[str, Any]]:
    """The answers of other nodes. Raises what they refuse with."""
    answers = await asyncio.gather(*(_passed_on(call, node, body) for node in nodes))
    for answer in answers:
        if answer.status != 200:
            assert isinstance(answer.body, bytes)
            told = msgspec.json.decode(answer.body) if answer.body else {}
            raise ApiError(answer.status, told.get("error", ""), told.get("reason", ""))
    return [msgspec.json.decode(answer.body) for answer in answers]  # type: ignore[arg-type]


async def stage_batch(call: Call) -> Answer:
    """Stage messages of a part of a batch, on every node that has one of their queues."""
    producer, batch = _batch(call)
    data = await call.request.read()
    context = call.context
    try:
        messages = decode_staged(data)
    except ValueError as error:
        raise ApiError(400, "bad_block", str(error)) from error
    router = batches.Router(context.engine, call.actor, call.vhost)
    homes: set[str] = set()
    mine = []
    pace = Pace()
    for n, message in enumerate(messages):
        queues = router.queues(message)
        if any(not queue.is_remote for queue in queues) or not (queues or call.is_from_peer):
            mine.append(message)
        homes.update(queue.home for queue in queues if queue.is_remote)
        if n % SLICE_ROWS == 0:
            await pace.rest()
    others = [] if call.is_from_peer else sorted(homes)
    told = await _elsewhere(call, others, data)
    part, attempt = call.query.get("part", "0"), call.query.get("attempt", "0")
    key = (call.vhost.name, producer, batch, part, attempt)
    staged = context.engine.staging.stage
    block = _number(call, "block", 0)
    await _worded(_done(lambda: context.act(lambda: staged(key, block, mine))))
    counts = {node: one["staged"][node] for node, one in zip(others, told, strict=True)}
    return {"messages": len(messages), "staged": {**counts, context.node_name: len(mine)}}


async def _done(doing: Callable[[], Result]) -> Result:
    return doing()


async def commit_batch(call: Call) -> Answer:
    """Publish the staged parts of a batch, all at once, unless that has been done."""
    producer, batch = _batch(call)
    body = await call.body()
    context, vhost = call.context, call.vhost.name
    parts = body.get("parts")
    if not isinstance(parts, list) or not all(_is_part(part) for part in parts):
        raise bad_request("parts must be a list of [part, attempt, messages by node]")
    engine, staging = context.engine, context.engine.staging
    here = context.node_name
    wanted = [(part, attempt, counts.get(here, 0)) for part, attempt, counts in parts]
    nodes = sorted({node for _, _, counts in parts for node in counts} - {here})

    def act() -> batches.Outcome:
        messages = staging.take(vhost, producer, batch, wanted)
        router = batches.Router(engine, call.actor, call.vhost)
        homes = {q.home for m in messages for q in router.queues(m) if q.is_remote}
        if homes - set(nodes) and not call.is_from_peer:
            raise ApiError(409, "moved", f"queues are on {', '.join(sorted(homes))} by now")
        return batches.commit(engine, producer, batch, messages, router)

    told = [] if call.is_from_peer else await _elsewhere(call, nodes, await call.request.read())
    outcome: Any = await _worded(_done(lambda: context.act(act)))
    await context.written()
    context.act(lambda: staging.forget(vhost, producer, batch))
    return {
        "published": outcome.published + sum(one["published"] for one in told),
        "duplicates": outcome.duplicates + sum(one["duplicates"] for one in told),
        "refused": outcome.refused + sum(one["refused"] for one in told),
        "unroutable": outcome.unroutable,
    }


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
    """Give a batch up that was staged."""
    producer, batch = _batch(call)
    staging, vhost = call.context.engine.staging, call.vhost.name
    return call.context.act(lambda: staging.forget(vhost, producer, batch))


_QUEUE = "/queues/{vhost}/{name}"
_CURSOR = f"{_QUEUE}/cursors/{{cursor}}"
_BATCH = "/batches/{vhost}/{producer}/{batch}"
ROUTES = (
    Route("GET", "/cursors", "user", list_cursors),
    Route("GET", "/cursors/{vhost}", "vhost", list_cursors),
    Route("GET", f"{_QUEUE}/cursors", "vhost", list_queue_cursors),
    Route("GET", _CURSOR, "vhost", get_cursor),
    Route("PUT", _CURSOR, "vhost", open_cursor),
    Route("DELETE", _CURSOR, "vhost", drop_cursor),
    Route("POST", f"{_CURSOR}/poll", "vhost", poll_cursor),
    Route("POST", f"{_CURSOR}/trim", "vhost", trim_cursor),
    Route("POST", f"{_CURSOR}/release", "vhost", release_cursor),
    Route("GET", f"{_QUEUE}/range", "vhost", read_range),
    Route("GET", f"{_QUEUE}/range/info", "vhost", get_range_info),
    Route("GET", f"{_QUEUE}/replica", "vhost", get_replica_info),
    Route("GET", f"{_QUEUE}/replica/range", "vhost", read_replica),
    Route("POST", f"{_BATCH}/stage", "vhost", stage_batch),
    Route("POST", f"{_BATCH}/commit", "vhost", commit_batch),
    Route("DELETE", _BATCH, "vhost", abort_batch),
)
