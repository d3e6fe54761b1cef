"""Following a queue: every message that comes is shown once, whoever takes it in between.

A follower has a cursor on the queue for as long as it asks, so that what consumers are through with
is kept until it was shown. One that does not ask for a while has gone: its cursor is dropped. One
that cannot keep up is told how many it has missed, so that nobody's memory or disk fills for it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from warren.engine import cursors
from warren.management.call import Answer, Call, Route, field_of
from warren.management.errors import bad_request
from warren.management.matching import compile_match
from warren.management.pace import Pace
from warren.management.routes_cursors import LOOK_S, WAIT_MS_MAX, at_home, check_still, settled
from warren.management.routes_messages import AT_A_TIME, TAIL_MAX, encoding_of, show_row
from warren.model.errors import ResourceLocked
from warren.queue.cursors import FOLLOW
from warren.queue.looking import arrivals, kept

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.queue.cursors import Cursor
    from warren.queue.looking import Row

#: A follower that does not ask for so long has gone.
FOLLOWER_GONE_MS = 60_000
#: More than this is not kept for a follower that is slow; it goes on with the newest.
BEHIND_MAX = 50_000
#: Names of cursors that are followers'.
PREFIX = "tail."


@at_home
async def follow_messages(call: Call) -> Answer:
    """Follow a queue under a `name` of one's own; the `cursor` of an answer is the next `since`.

    Without `since` it begins: with the newest `count` that are there. Waits up to `wait_ms` for
    more. None is consumed, and none that comes is missed but by who is too slow for the queue.
    """
    body, queue = await call.body(), call.queue()
    call.context.engine.check_owner(call.actor, queue)
    encoding, truncate = encoding_of(body)
    name = PREFIX + field_of(body, "name", str)
    since = field_of(body, "since", int, None)
    count = field_of(body, "count", int, 0)
    wait_ms = field_of(body, "wait_ms", int, 0)
    if not 0 <= count <= TAIL_MAX:
        raise bad_request(f"count must be between 0 and {TAIL_MAX}")
    matches = compile_match(field_of(body, "match", dict, None))
    missed = 0
    if since is None:
        cursor = await _begin(call, queue, name)
        position, rows = cursor.position, _before(queue, cursor.position, count)
    else:
        cursor = cursors.find(queue, name)
        cursors.hold(call.context.engine, queue, cursor, "")
        position, missed = await _go_on(call, queue, cursor, since)
        await _more(call, queue, cursor, position, wait_ms)
        position, rows = _from(queue, position)
    wall_ms = int(time.time() * 1000) - call.context.engine.clock.now_ms()
    pace = Pace()
    shown: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        if matches is None or matches(row[5]):
            shown.append(show_row(row, queue.ready, encoding, truncate, wall_ms))
        if number % AT_A_TIME == 0:
            await pace.rest()
    return {"cursor": position, "missed": missed, "messages": shown}


async def _begin(call: Call, queue: AmqpQueue, name: str) -> Cursor:
    """A cursor that sees what comes from now on. Raises what the engine refuses with."""
    if queue.cursors is not None and name in queue.cursors.by_name:
        raise ResourceLocked(f"somebody follows queue '{queue.name}' under this name already")

    def act() -> Cursor | None:
        return cursors.open_cursor(
            call.context.engine,
            queue,
            name,
            FOLLOW,
            "latest",
            time.time_ns() // 1_000_000,
            expires_ms=FOLLOWER_GONE_MS,
        )

    cursor = call.context.act(act)
    await settled(call, queue)
    if cursor is None:
        # A mirrored queue has it when its replicas have.
        check_still(call, queue, None)
        cursor = call.context.act(act)
    assert cursor is not None
    return cursor


def _before(queue: AmqpQueue, position: int, count: int) -> list[Row]:
    """The newest of those that were there when somebody began to follow."""
    if not count:
        return []
    # Some may have come since.
    reach = min(count + max(0, queue.next_position - position), BEHIND_MAX)
    return [row for row in arrivals(queue, {}, reach) if row[0] < position][-count:]


async def _go_on(call: Call, queue: AmqpQueue, cursor: Cursor, since: int) -> tuple[int, int]:
    """Where it goes on, and how many are passed over; what was shown is let go."""
    end = queue.readable_end
    if not 0 <= since <= end:
        raise bad_request("since must be the cursor of an earlier answer")
    if since < cursor.position:
        raise cursors.Trimmed(cursor.position)
    missed = 0
    if end - since > BEHIND_MAX:
        missed = end - TAIL_MAX - since
        since += missed
    pace = Pace()
    while call.context.act(lambda: cursors.trim_some(queue, cursor, since)):
        if queue.mirror is not None:
            await settled(call, queue)
            check_still(call, queue, None)
        await pace.rest()
    return since, missed


async def _more(call: Call, queue: AmqpQueue, cursor: Cursor, position: int, wait_ms: int) -> None:
    """Until there is more than what was shown, or for as long as it may take."""
    deadline_s = time.monotonic() + min(wait_ms, WAIT_MS_MAX) / 1000
    while queue.readable_end <= position and time.monotonic() < deadline_s:
        if queue.deleted or queue.retired:
            return
        await asyncio.sleep(LOOK_S)
        cursors.hold(call.context.engine, queue, cursor, "")


def _from(queue: AmqpQueue, position: int) -> tuple[int, list[Row]]:
    """The next messages, and the position behind them."""
    end = queue.readable_end
    rows = [row for row in kept(queue, position, TAIL_MAX) if row[0] < end]
    return (rows[-1][0] + 1 if len(rows) == TAIL_MAX else end), rows


ROUTES = (Route("POST", "/queues/{vhost}/{name}/tail", "vhost", follow_messages),)
