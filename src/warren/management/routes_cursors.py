"""Cursors and ranges of queues: what data pipelines read with.

Blocks of messages are binary (`wire/columns.pyx`); everything else is JSON. Any node answers for
any queue: a request about one on another node is passed on to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from aiohttp import web

from warren.engine import batches, cursors
from warren.management.across import ask, question, rows_of_others
from warren.management.block_answer import HEADERS, answer_block
from warren.management.call import Answer, Call, Handler, Route, field_of
from warren.management.errors import ApiError, bad_request
from warren.management.listing import answer_list
from warren.management.pace import CalmPace
from warren.management.peers import ACT_S, PeerSilent
from warren.model.errors import NotFound, PreconditionFailed, ResourceError, ResourceLocked
from warren.queue.blocks import BlockBuilder
from warren.queue.cursors import NOTHING_KEPT

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.queue.cursors import Cursor

#: A block has no more rows than this, and is ended when its messages take so many bytes.
BLOCK_ROWS_MAX, BLOCK_BYTES_MAX = 65_536, 4 << 20
#: Rows of a block that are encoded before it is asked whether others want their turn, and bytes.
SLICE_ROWS, SLICE_BYTES = 256, 65_536
#: Positions that are looked at before, likewise, when it is found how far a batch goes.
ADMIT_SLICE = 8_192
#: The longest that a reader waits for more.
WAIT_MS_MAX = 10_000
#: How often it is looked whether there is more.
LOOK_S = 0.02
#: The longest that a reader waits for a message that another replica is asked for.
MEND_PATIENCE_S = 5.0
#: More than any queue holds.
ALL = 2**62

_JSON = {"Content-Type": "application/json", "Cache-Control": "no-cache"}
Result = TypeVar("Result")

#: What the engine raises, and how it is told: readers act by these words.
_WORDS: tuple[tuple[type[Exception], int, str], ...] = (
    (cursors.Trimmed, 410, "trimmed"),
    (batches.NotStaged, 404, "not_staged"),
    (NotFound, 404, "no_cursor"),
    (ResourceLocked, 409, "cursor_in_use"),
    (ResourceError, 503, "staged_too_much"),
    (batches.NotServed, 503, "unavailable"),
    (cursors.Behind, 503, "unavailable"),
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
            return await passed_on(call, queue.home)
        call.context.engine.check_access(call.actor, "queue", queue.name, "read")
        try:
            told = await worded(handler(call))
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


async def worded(doing: Any) -> Any:
    """What it says; what the engine refuses as an error of the API that programs understand."""
    try:
        return await doing
    except tuple(kind for kind, _, _ in _WORDS) as error:
        for kind, status, word in _WORDS:
            if isinstance(error, kind):
                raise ApiError(status, word, error.explanation) from error  # type: ignore[attr-defined]
        raise


async def passed_on(
    call: Call, node: str, body: bytes | None = None, more: dict[str, str] | None = None
) -> web.Response:
    """What another node answers to the same request, with `more` in its query, whatever it is."""
    what = question(call, query={**call.query, **(more or {})})
    if body is None and call.request.method not in {"GET", "HEAD"}:
        body = await call.request.read()
    if body:
        what = msgspec.structs.replace(what, body=body)
    try:
        answer = await ask(call, node, what, ACT_S)
    except PeerSilent as error:
        raise ApiError(503, "unavailable", str(error)) from error
    if answer.body[:8] == b"WARRENB1":
        return answer_block(answer.body, call.context.calm)
    headers = _JSON if answer.body else {}
    return web.Response(status=answer.status, body=answer.body or None, headers=headers)


def number_in_query(call: Call, name: str, default: int) -> int:
    """Raises ApiError for what is none."""
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

    before = queue.operations
    cursor = call.context.act(act)
    if cursor is None or queue.mirror is None or queue.operations > before:
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


async def _reader(call: Call, body: dict[str, Any]) -> tuple[AmqpQueue, Cursor]:
    queue, name = call.queue(), call.path["cursor"]
    token, owner = field_of(body, "token", str), field_of(body, "owner", str, "")
    before = queue.operations
    use = functools.partial(cursors.use, call.context.engine, queue, name, token, owner)
    cursor = call.context.act(use)
    if queue.operations > before:
        # It is a new reader: all replicas are to know it first.
        await settled(call, queue)
        check_still(call, queue, None)
    return queue, cursor


@at_home
async def poll_cursor(call: Call) -> Answer:
    """How far a reader may read next; waits a while for more than it has."""
    body = await call.body()
    queue, cursor = await _reader(call, body)
    after = field_of(body, "after", int, 0)
    rows, size = field_of(body, "rows", int, ALL), field_of(body, "bytes", int, ALL)
    if after < cursor.position:
        raise cursors.Trimmed(cursor.position)
    cursors.check_shown(queue, after)
    deadline_s = time.monotonic() + min(field_of(body, "wait_ms", int, 0), WAIT_MS_MAX) / 1000
    while queue.readable_end <= after and time.monotonic() < deadline_s:
        if queue.deleted or queue.retired:
            break
        await asyncio.sleep(LOOK_S)
    admitted = await _admitted(call, queue, after, max(1, rows), max(1, size))
    return {**_told(call, queue, cursor), "admitted": admitted}


async def _admitted(call: Call, queue: AmqpQueue, after: int, rows: int, size: int) -> int:
    """How far a batch goes; found in slices, so that no message waits for a long one."""
    end, found, taken = queue.readable_end, 0, 0
    if rows >= end - after and size == ALL:
        return max(after, end)
    pace = CalmPace(call.context.calm)
    while after < end and not (queue.deleted or queue.retired):
        slice_end = min(end, after + ADMIT_SLICE)
        after, found, taken = queue.admit(after, slice_end, rows, size, found, taken)
        if after < slice_end:
            break
        await pace.rest()
    return after


@at_home
async def trim_cursor(call: Call) -> Answer:
    """All before a position is done with; for a cursor that drains, acknowledged."""
    body = await call.body()
    queue, cursor = await _reader(call, body)
    upto = field_of(body, "upto", int)
    pace = CalmPace(call.context.calm)
    while call.context.act(functools.partial(cursors.trim_some, queue, cursor, upto)):
        if queue.mirror is not None:
            await settled(call, queue)
            check_still(call, queue, None)
        if pace.is_due:
            await pace.rest()
    return _told(call, queue, cursor)


@at_home
async def release_cursor(call: Call) -> Answer:
    """A reader has ended; another may take the cursor at once."""
    body = await call.body()
    queue, owner = call.queue(), field_of(body, "owner", str)
    cursor = cursors.find(queue, call.path["cursor"])
    call.context.act(lambda: cursors.let_go(queue, cursor, owner))
    await settled(call, queue)
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
        answer["at"] = min(
            _at_time(queue, number_in_query(call, "timestamp", 0)), queue.readable_end
        )
    return answer


@at_home
async def _read_at_home(call: Call) -> Answer:
    queue = call.queue()
    if queue.mirror is not None and "to" in call.query:
        # Whoever names the end was told it.
        cursors.check_shown(queue, number_in_query(call, "to", ALL))
    return await _read_block(call, queue)


async def read_range(call: Call) -> Answer:
    """Messages of a range of positions as a block of columns; nothing is taken out.

    A node with a replica that is in sync answers by itself, for what it knows to be committed.
    Where a mirror is wanted, the master answers only if no other replica can.
    """
    queue = call.vhost.queues.get(call.path["name"])
    if queue is not None and call.flag("mirror", False) and not call.is_from_peer:
        told = await _read_at_mirror(call, queue)
        if told is not None:
            return told
    if queue is not None and queue.is_remote and not call.flag("master", False):
        # Up to where it is read; a range without an end is read up to the master's.
        end = number_in_query(call, "to", ALL)
        mirror = cursors.readable_replica(call.context.engine, queue.number, end)
        if mirror is not None:
            call.context.engine.check_access(call.actor, "queue", queue.name, "read")
            own, generation = mirror.queue, mirror.log.generation
            # What it refuses, the master may know better: a cursor that was opened a moment ago.
            with contextlib.suppress(ApiError):
                told = await worded(_read_block(call, own))
                # It may have begun anew meanwhile, or the node be the master.
                if mirror.queue is own and mirror.log.generation == generation:
                    return told
    return await _read_at_home(call)


async def _read_at_mirror(call: Call, queue: AmqpQueue) -> web.Response | None:
    """What another replica in sync answers that is not the master; None: this node has one, or none
    can."""
    view = call.context.engine.views.get(queue.number) if queue.number else None
    mirrors = [node for node in view.in_sync if node != view.master] if view is not None else []
    if call.context.node_name in mirrors:
        return None
    for node in mirrors:
        with contextlib.suppress(ApiError):
            answer = await passed_on(call, node)
            if answer.status == 200:
                return answer
    return None


async def _read_block(call: Call, queue: AmqpQueue, mends: bool = True) -> Answer:
    first, end = number_in_query(call, "from", 0), number_in_query(call, "to", ALL)
    incarnation = call.query.get("incarnation", "")
    cursors.check_range(queue, first, incarnation)
    rows_max = min(number_in_query(call, "rows", BLOCK_ROWS_MAX), BLOCK_ROWS_MAX)
    bytes_max = min(number_in_query(call, "bytes", BLOCK_BYTES_MAX), BLOCK_BYTES_MAX)
    known = queue.cursors
    # A cursor knows from where on nothing may be missing.
    cursor = cursors.find(queue, call.query["cursor"]) if "cursor" in call.query else None
    block = BlockBuilder(
        first,
        cursor,
        list(known.times) if known is not None else [],
        call.flag("body", True),
        call.flag("headers", True),
        mends,
    )
    block.expect(queue, min(rows_max, max(0, end - first)), bytes_max)
    calm = call.context.calm
    pace, patient_s = CalmPace(calm), time.monotonic() + MEND_PATIENCE_S
    await pace.rest()
    cursors.check_range(queue, first, incarnation)
    while block.next < end and block.rows < rows_max and block.size < bytes_max:
        before = block.next
        size = min(block.size + SLICE_BYTES, bytes_max)
        block.fill(queue, end, min(SLICE_ROWS, rows_max - block.rows), size)
        if block.next == before:
            if block.rows or before >= queue.readable_end or time.monotonic() > patient_s:
                break
            # Another replica is asked for the next one, which cannot be read here.
            await asyncio.sleep(LOOK_S)
        elif not pace.is_due:
            continue
        await pace.rest()
        # It may have been trimmed meanwhile.
        cursors.check_range(queue, first, incarnation)
    data = block.finish(
        epoch=queue.epoch,
        incarnation=known.incarnation if known is not None else "",
        node=call.context.node_name,
    )
    if call.is_from_peer:
        return web.Response(body=bytes(data), headers=HEADERS)
    return answer_block(data, calm)


def at_replica(handler: Callable[[Call, AmqpQueue], Any]) -> Handler:
    """Has the node of the query answer for its own replica of a mirrored queue, master or not."""

    @functools.wraps(handler)
    async def answer(call: Call) -> Answer:
        context, name = call.context, call.path["name"]
        node = call.query.get("node", context.node_name)
        if node != context.node_name and not call.is_from_peer:
            return await passed_on(call, node)
        queue = call.vhost.queues.get(name)
        if queue is None:
            raise ApiError(404, "no_queue", f"no queue '{name}' in vhost '{call.vhost.name}'")
        context.engine.check_access(call.actor, "queue", name, "read")
        mirrors = context.engine.mirrors
        mirror = None if mirrors is None else mirrors.by_number.get(queue.number)
        if mirror is None or mirror.replica is None:
            text = f"node {context.node_name} has no replica of queue '{name}'"
            raise ApiError(404, "no_replica", text)
        return await worded(handler(call, mirror.queue))

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
    """A range of one node's own replica of a mirrored queue, as a block of columns.

    As it is: who compares replicas is to see what one lacks, and not what the others have.
    """
    return await _read_block(call, queue, mends=False)


_QUEUE = "/queues/{vhost}/{name}"
_CURSOR = f"{_QUEUE}/cursors/{{cursor}}"
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
)
