"""Routes on the messages in a queue: look at them, follow them, move them on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warren.management.across import at_home, rows_of_others
from warren.management.call import Answer, Call, Route, field_of
from warren.management.encode import read_object
from warren.management.errors import ApiError, bad_request, not_found
from warren.management.listing import answer_list
from warren.management.matching import compile_match
from warren.management.messages import show_message
from warren.management.moving import Order, Outcome, move, origin
from warren.management.pace import Pace
from warren.management.redriven import marker
from warren.management.show_queues import channel_details, is_exclusive
from warren.model.message import Message
from warren.queue.looking import arrivals, ends, peek
from warren.session.channel import Consumer

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.queue.looking import Row

#: More than any queue holds.
ALL = 2**62
#: Messages that one look shows.
LOOK_MAX = 10_000
#: ... and that one answer of `tail` does.
TAIL_MAX = 500
#: Positions that one request may name.
POSITIONS_MAX = 10_000
#: Messages looked at between two rests.
AT_A_TIME = 16


def _source(call: Call) -> AmqpQueue:
    """The queue in the path, if the caller may take messages out of it."""
    queue, engine, actor = call.queue(), call.context.engine, call.actor
    engine.check_access(actor, "queue", queue.name, "read")
    engine.check_owner(actor, queue)
    return queue


def encoding_of(given: Mapping[str, Any]) -> tuple[str, int | None]:
    """How payloads are to be shown. Raises 400."""
    encoding = field_of(given, "encoding", str, "auto")
    truncate = field_of(given, "truncate", int, None)
    if encoding not in {"auto", "base64"}:
        raise bad_request(f"Unsupported encoding: {encoding}. Please use one of: auto, base64")
    if truncate is not None and truncate < 0:
        raise bad_request("truncate must be at least 0")
    return encoding, truncate


# -- looking ---------------------------------------------------------------------------------------


@at_home
async def peek_messages(call: Call) -> Answer:
    """Look at messages in a queue: none is taken out, none is marked as redelivered."""
    body, queue = await call.body(), _source(call)
    encoding, truncate = encoding_of(body)
    count, offset = field_of(body, "count", int, 1), field_of(body, "offset", int, 0)
    after = field_of(body, "after", int, None)
    if not 0 <= count <= LOOK_MAX or not 0 <= offset < ALL or not 0 <= (after or 0) < ALL:
        raise bad_request(f"count must be between 0 and {LOOK_MAX}, offset and after at least 0")
    matches = compile_match(field_of(body, "match", dict, None))
    unacked = field_of(body, "unacked", bool, False)
    wall_ms = int(time.time() * 1000) - call.context.engine.clock.now_ms()
    all_of_them = queue.unacked if unacked else queue.ready
    pace = Pace()
    shown: list[dict[str, Any]] = []
    # What comes meanwhile is left to the next look.
    seen, limit = 0, max(0, all_of_them - offset)
    while len(shown) < count and seen < limit:
        wanted = AT_A_TIME if matches is not None else min(AT_A_TIME, count - len(shown))
        rows = peek(queue, wanted, offset if seen == 0 else 0, after, unacked)
        if not rows:
            break
        for row in rows:
            seen, after = seen + 1, row[0]
            if len(shown) < count and (matches is None or matches(row[5])):
                left = max(0, all_of_them - offset - seen)
                shown.append(show_row(row, left, encoding, truncate, wall_ms))
        await pace.rest()
    return await answer_list(call, shown, lambda row: row)


def show_row(
    row: Row, left: int, encoding: str, truncate: int | None, wall_ms: int
) -> dict[str, Any]:
    slot, is_ready, redelivered, returns, expires_ms, message = row
    return {
        **show_message(message, redelivered, left, encoding, truncate),
        # More than 2**53 with priorities: kept by JavaScript as a text only.
        "slot": str(slot),
        "ready": is_ready,
        "returns": returns,
        "expires_at": wall_ms + expires_ms if expires_ms else None,
    }


@at_home
async def tail_messages(call: Call) -> Answer:
    """What has come to a queue since the last answer, whose `cursor` is given as `since`.

    Messages that came and left in between are counted as `missed`.
    """
    queue = _source(call)
    encoding, truncate = encoding_of(call.query)
    count = field_of(call.query, "count", int, TAIL_MAX)
    if not 0 <= count <= TAIL_MAX:
        raise bad_request(f"count must be between 0 and {TAIL_MAX}")
    matches = compile_match(_json_object(call.query.get("match")))
    wall_ms = int(time.time() * 1000) - call.context.engine.clock.now_ms()
    positions = ends(queue)
    cursor = f"{queue.published}:" + ",".join(f"{n}.{at}" for n, at in positions.items())
    since = call.query.get("since")
    if since is None:
        # The newest of those that are there, so that a look begins with something to see.
        published, rows = queue.published, arrivals(queue, {}, count)[-count:] if count else []
        missed = 0
    else:
        published, known = _read_cursor(since)
        rows = arrivals(queue, known, count)
        missed = max(0, queue.published - published - len(rows))
    shown = [
        show_row(row, queue.ready, encoding, truncate, wall_ms)
        for row in rows
        if matches is None or matches(row[5])
    ]
    return {"cursor": cursor, "missed": missed, "messages": shown}


def _json_object(text: str | None) -> dict[str, Any]:
    """An object in a query. Raises 400."""
    return {} if text is None else read_object(text.encode())


def _read_cursor(text: str) -> tuple[int, dict[int, int]]:
    published, _, rest = text.partition(":")
    pairs = [pair.partition(".")[::2] for pair in rest.split(",") if pair]
    numbers = [published, *(number for pair in pairs for number in pair)]
    if not all(number.isascii() and number.isdigit() and len(number) < 19 for number in numbers):
        raise bad_request("since must be the cursor of an earlier answer")
    return int(published), {int(level): int(at) for level, at in pairs}


async def list_unacked(call: Call) -> Answer:
    """Deliveries that wait for an acknowledgement: who has them, and since when."""
    queue = call.queue()
    now_ms = call.context.engine.clock.now_ms()
    wall_ms = int(time.time() * 1000)
    pace = Pace()
    found: list[dict[str, Any]] = []
    for connection in list(call.context.engine.connections):
        if connection.vhost is not queue.vhost:
            continue
        for channel in connection.open_channels():
            for tag, held, consumer, at_ms in channel.deliveries.outstanding():
                if held is queue:
                    found.append(
                        {
                            "delivery_tag": tag,
                            "consumer_tag": consumer.tag
                            if isinstance(consumer, Consumer)
                            else None,
                            "delivered_at": wall_ms - (now_ms - at_ms),
                            "age_ms": now_ms - at_ms,
                            "channel_details": channel_details(call.context, channel),
                        }
                    )
            await pace.rest()
    found.sort(key=lambda row: row["delivered_at"])
    return await answer_list(call, found, lambda row: row, others=await rows_of_others(call))


# -- moving ----------------------------------------------------------------------------------------


def _shown(order: Order, outcome: Outcome) -> dict[str, Any]:
    last = outcome.last_slot
    return {
        "moved": outcome.moved,
        "kept": outcome.kept,
        "unmatched": outcome.unmatched,
        "to": dict(outcome.to),
        "dry_run": order.dry_run,
        "last_slot": None if last is None else str(last),
    }


def _wanted(body: Mapping[str, Any]) -> tuple[int, int | None]:
    """How many messages, and behind which slot on. Raises 400."""
    count, after = field_of(body, "count", int, ALL), field_of(body, "after", int, None)
    if count < 0 or not 0 <= (after or 0) < ALL:
        raise bad_request("count and after must be at least 0")
    return count, after


def _positions(queue: AmqpQueue, body: Mapping[str, Any]) -> frozenset[int] | None:
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


@at_home
async def move_messages(call: Call) -> Answer:
    """Move ready messages, those that `match` or at `positions`, to another queue of the vhost."""
    body, source = await call.body(), _source(call)
    name = field_of(body, "to", str)
    count, after = _wanted(body)
    matches = compile_match(field_of(body, "match", dict, None))
    target = call.vhost.queues.get(name)
    if target is None:
        raise not_found(f"no queue '{name}' in vhost '{call.vhost.name}'")
    if target is source:
        raise bad_request("messages can be moved to another queue only")
    if target.is_remote:
        raise bad_request(
            f"queue '{name}' is on {target.home} and queue '{source.name}' on {source.home}: "
            "messages are moved between queues of one node only; use a shovel"
        )
    engine, actor = call.context.engine, call.actor
    engine.check_access(actor, "exchange", "", "write")
    engine.check_owner(actor, target)
    dry_run = field_of(body, "dry_run", bool, False)
    positions = _positions(source, body)
    order = Order(source, lambda _: target, count, matches, positions, dry_run)
    return _shown(order, await move(call.context, order, _begin(after, positions)))


@at_home
async def redrive_messages(call: Call) -> Answer:
    """Send dead letters, those that `match` or at `positions`, back to where they first died.

    They are marked with a header, `x-redriven`.
    """
    body, source, vhost = await call.body(), _source(call), call.vhost
    count, after = _wanted(body)
    matches = compile_match(field_of(body, "match", dict, None))
    engine, actor = call.context.engine, call.actor
    engine.check_access(actor, "exchange", "", "write")

    def target(message: Message) -> AmqpQueue | None:
        queue = origin(vhost, message)
        if queue is None or queue.is_remote or is_exclusive(queue):
            return None
        return queue

    positions = _positions(source, body)
    dry_run = field_of(body, "dry_run", bool, False)
    mark = marker(source.name, int(time.time()))
    order = Order(source, target, count, matches, positions, dry_run, mark)
    return _shown(order, await move(call.context, order, _begin(after, positions)))


ROUTES = (
    Route("POST", "/queues/{vhost}/{name}/peek", "vhost", peek_messages),
    Route("GET", "/queues/{vhost}/{name}/tail", "vhost", tail_messages),
    Route("GET", "/queues/{vhost}/{name}/unacked", "vhost", list_unacked),
    Route("POST", "/queues/{vhost}/{name}/move", "vhost", move_messages),
    Route("POST", "/queues/{vhost}/{name}/redrive", "vhost", redrive_messages),
)
