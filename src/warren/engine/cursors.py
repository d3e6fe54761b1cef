"""Cursors as their users meet them: opened once, used by one reader at a time, dropped when unused.

What a cursor is and keeps is the queue's affair (`queue/cursors.py`). Here is who may use it: the
start of a cursor is decided when it is first opened and told for ever after; once it has trimmed
something, only those who know its token may open it again, because a reader that begins anew would
miss what is gone. Of two readers that know it, the one that came first has it while it is heard of.
Who that is, all replicas know: a new master gives it as much time again before another may have it.

What changes the cursors of a mirrored queue is done when all its replicas in sync have it, so a new
master knows them as they were told. Until then there is nothing to be seen of it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.model.errors import AmqpError, NotFound, PreconditionFailed, ResourceLocked
from warren.queue.cursors import (
    DRAIN,
    FOLLOW,
    NOTHING_KEPT,
    POSITION_MAX,
    Cursor,
    Cursors,
    drop_operation,
    open_operation,
    trim_operation,
    use_operation,
)

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.mirror import Mirror

#: A reader that is not heard of for this long has let go of its cursor.
LEASE_MS = 10_000
#: A cursor that nobody uses for this long is dropped, unless its opener says otherwise: a week.
EXPIRES_MS = 7 * 24 * 3600 * 1000
#: More readers than this on one queue are a mistake.
CURSORS_MAX = 256
NAME_BYTES_MAX = 255
#: Positions that are trimmed in one go: so few that no client waits long.
TRIM_SLICE = 512
#: The same where all replicas are waited for each time; some milliseconds of work.
TRIM_SLICE_MIRRORED = 16_384


class Trimmed(AmqpError):
    """The range begins before what is kept."""

    def __init__(self, first: int) -> None:
        super().__init__(f"messages before position {first} are trimmed")
        self.first = first


class Behind(AmqpError):
    """This master ends before what a reader was shown: it was replaced, and has not heard of it."""


def find(queue: AmqpQueue, name: str) -> Cursor:
    """Raises NotFound."""
    cursor = queue.cursors.by_name.get(name) if queue.cursors is not None else None
    if cursor is None:
        raise NotFound(f"no cursor '{name}' on queue '{queue.name}': it was dropped, or expired")
    return cursor


def use(engine: Engine, queue: AmqpQueue, name: str, token: str, owner: str) -> Cursor:
    """The cursor, for a reader that knows its token. Raises NotFound, PreconditionFailed,
    ResourceLocked."""
    cursor = find(queue, name)
    if token != cursor.token:
        raise PreconditionFailed(
            f"cursor '{name}' of queue '{queue.name}' is not the one that this reader began with: "
            "it was dropped and opened anew, or belongs to another query"
        )
    hold(engine, queue, cursor, owner)
    return cursor


def hold(engine: Engine, queue: AmqpQueue, cursor: Cursor, owner: str) -> None:
    """A reader uses the cursor. Raises ResourceLocked while another does.

    A reader that is new is told so when the operation that `queue.operations` counts is committed.
    """
    now_ms = engine.clock.now_ms()
    cursor.used_ms = now_ms
    if not owner:
        return
    if cursor.user not in {"", owner} and cursor.owner_until_ms > now_ms:
        raise ResourceLocked(f"cursor '{cursor.name}' is in use by another query")
    cursor.owner_until_ms = now_ms + LEASE_MS
    if cursor.user != owner:
        # At once, so that of two that ask before either is agreed on, one is refused.
        cursor.said_owner = owner
        queue.cursor_operation(use_operation(cursor.name, owner))


def let_go(queue: AmqpQueue, cursor: Cursor, owner: str) -> None:
    """A reader has ended: the next need not wait until it is not heard of."""
    if owner and cursor.user == owner:
        cursor.said_owner, cursor.owner_until_ms = "", 0
        queue.cursor_operation(use_operation(cursor.name, ""))


def open_cursor(
    engine: Engine,
    queue: AmqpQueue,
    name: str,
    mode: str,
    start: str | int,
    wall_ms: int,
    *,
    token: str = "",
    owner: str = "",
    expires_ms: int = EXPIRES_MS,
) -> Cursor | None:
    """The cursor of that name, made if there is none. Raises PreconditionFailed, ResourceLocked.

    None: it will be there when the operation that `queue.operations` counts is committed.
    """
    there = queue.cursors.by_name.get(name) if queue.cursors is not None else None
    if there is None and token:
        # A reader that had one comes back: it must not begin anew without knowing.
        return find(queue, name)
    if there is None:
        _check_new(queue, name, mode)
        return _make(engine, queue, name, mode, start, wall_ms, owner, expires_ms)
    if token and token != there.token:
        return use(engine, queue, name, token, owner)
    if there.mode != mode:
        raise PreconditionFailed(
            f"cursor '{name}' of queue '{queue.name}' is one to {there.mode}, not to {mode}: its "
            "mode was decided when it was first opened"
        )
    if not token and there.position > there.start:
        raise PreconditionFailed(
            f"cursor '{name}' of queue '{queue.name}' has been read up to position "
            f"{there.position} by another query: a reader that begins anew would miss what it has "
            "trimmed. Give this query another cursor, or drop that one first"
        )
    hold(engine, queue, there, owner)
    return there


def _check_new(queue: AmqpQueue, name: str, mode: str) -> None:
    if mode not in {FOLLOW, DRAIN}:
        raise PreconditionFailed(f"a cursor follows or drains; '{mode}' is neither")
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise PreconditionFailed("the name of a cursor has 1 to 255 bytes")
    if not queue.may_have_cursors:
        raise PreconditionFailed(
            f"queue '{queue.name}' has priorities: its messages have no order to read ranges in"
        )
    cursors = queue.cursors or Cursors()
    if len(cursors.by_name) >= CURSORS_MAX:
        raise PreconditionFailed(f"queue '{queue.name}' has {CURSORS_MAX} cursors already")
    if mode == DRAIN:
        queue.check_drained()
        if queue.consumers or queue.unacked:
            raise PreconditionFailed(
                f"queue '{queue.name}' has consumers or unacknowledged deliveries: a cursor that "
                "drains is the only consumer. Stop them, or use mode=follow"
            )


def _make(
    engine: Engine,
    queue: AmqpQueue,
    name: str,
    mode: str,
    start: str | int,
    wall_ms: int,
    owner: str,
    expires_ms: int,
) -> Cursor | None:
    end = queue.next_position
    first = min(queue.first_kept(), end)
    if start == "earliest":
        begin = first
    elif start == "latest":
        begin = end
    elif isinstance(start, int) and 0 <= start <= POSITION_MAX:
        if start < first:
            raise Trimmed(first)
        begin = min(start, end)
    else:
        raise PreconditionFailed(
            f"'{start}' is no position to start at: earliest, latest or a number"
        )
    marks = queue.watermarks()[0]
    cursor = Cursor(
        name, mode, engine.dice.token(), begin, begin, end, marks[1] if marks else 0, expires_ms,
        wall_ms, owner,
    )  # fmt: skip
    incarnation = queue.cursors.incarnation if queue.cursors is not None else ""
    said = open_operation(incarnation or engine.dice.token(), cursor)
    if queue.mirror is not None:
        queue.opening_drain = name if mode == DRAIN else queue.opening_drain
        mark = queue.cursor_operation(said)
        queue.mirror.when_committed(mark, lambda: _agreed(engine, queue, name, cursor.token))
        return None
    queue.cursor_operation(said)
    cursor = find(queue, name)
    hold(engine, queue, cursor, owner)
    _began(engine, queue, cursor)
    return cursor


def _agreed(engine: Engine, queue: AmqpQueue, name: str, token: str) -> None:
    """All replicas have heard of a cursor, or this one is the master no more."""
    if queue.opening_drain == name:
        queue.opening_drain = ""
    cursor = queue.cursors.by_name.get(name) if queue.cursors is not None else None
    if cursor is not None and cursor.token == token:
        _began(engine, queue, cursor)


def _began(engine: Engine, queue: AmqpQueue, cursor: Cursor) -> None:
    arm_expiry(engine, queue, cursor)
    engine.emit("cursor.created", vhost=queue.vhost.name, queue=queue.name, name=cursor.name)


def trim_some(queue: AmqpQueue, cursor: Cursor, upto: int) -> bool:
    """Go on trimming; False when it has come to the position. Raises PreconditionFailed, Behind,
    NotFound.

    A mirrored queue has gone on when its last operation is committed.
    """
    check_shown(queue, upto)
    if find(queue, cursor.name) is not cursor:
        raise NotFound(f"cursor '{cursor.name}' of queue '{queue.name}' was dropped meanwhile")
    if upto <= cursor.position:
        return False
    most = TRIM_SLICE if queue.mirror is None else TRIM_SLICE_MIRRORED
    step = min(upto, cursor.position + most)
    queue.cursor_operation(trim_operation(cursor.name, step))
    return True


def check_shown(queue: AmqpQueue, position: int) -> None:
    """Whether a reader can have come to a position here. Raises PreconditionFailed, Behind."""
    end = queue.readable_end
    if position <= end:
        return
    if queue.mirror is not None:
        # What is cut off goes on with what it has; the next master commits more, and shows it.
        raise Behind(
            f"queue '{queue.name}' ends at {end} on this node, before position {position}: it may "
            "have another master by now. Ask again"
        )
    raise PreconditionFailed(
        f"queue '{queue.name}' ends at {end}, before position {position}, which nobody has been "
        "shown yet: its node was restored from an older state, or the reader is another queue's"
    )


def drop_cursor(engine: Engine, queue: AmqpQueue, name: str, why: str = "dropped") -> None:
    """Raises NotFound."""
    find(queue, name)
    queue.cursor_operation(drop_operation(name))
    engine.emit(f"cursor.{why}", vhost=queue.vhost.name, queue=queue.name, name=name)


def arm_expiry(engine: Engine, queue: AmqpQueue, cursor: Cursor) -> None:
    """A cursor that nobody uses must not fill the disk for ever."""
    if not cursor.expires_ms:
        return

    def ring(now_ms: int) -> None:
        if queue.deleted or queue.cursors is None:
            return
        if queue.mirror is not None and not queue.mirror.acts:
            # It is the master's affair.
            return
        if queue.cursors.by_name.get(cursor.name) is not cursor:
            return
        if now_ms - cursor.used_ms < cursor.expires_ms:
            engine.timers.at(cursor.used_ms + cursor.expires_ms, ring)
            return
        engine.log.warning(
            "cursor '%s' of queue '%s' in vhost '%s' was not used for %d s and is dropped; %d "
            "messages were kept for it",
            cursor.name,
            queue.name,
            queue.vhost.name,
            cursor.expires_ms // 1000,
            max(0, queue.readable_end - cursor.position),
        )
        drop_cursor(engine, queue, cursor.name, "expired")

    cursor.used_ms = engine.clock.now_ms()
    engine.timers.at(cursor.used_ms + cursor.expires_ms, ring)


def resume_cursors(engine: Engine, queue: AmqpQueue) -> None:
    """Here from now on, after a start or a failover: those that nobody uses expire.

    Whoever used one has as much time to be heard of here as it had before.
    """
    until_ms = engine.clock.now_ms() + LEASE_MS
    if queue.cursors is not None:
        for cursor in queue.cursors.by_name.values():
            cursor.said_owner = None
            cursor.owner_until_ms = until_ms if cursor.owner else 0
            arm_expiry(engine, queue, cursor)


def check_range(queue: AmqpQueue, first: int, incarnation: str) -> None:
    """Whether a range from there on can be read. Raises PreconditionFailed, Trimmed."""
    cursors = queue.cursors
    if incarnation and (cursors is None or incarnation != cursors.incarnation):
        raise PreconditionFailed(
            f"queue '{queue.name}' was deleted and declared again: it is not the one that this "
            "range was of"
        )
    floor = cursors.floor if cursors is not None else NOTHING_KEPT
    if floor != NOTHING_KEPT and first < floor:
        raise Trimmed(floor)


def readable_replica(engine: Engine, number: int, end: int) -> Mirror | None:
    """This node's replica of a mirrored queue, if it can answer for a range up to `end`.

    It must be in sync by the newest view that is known here, lack nothing, and have come as far:
    all that it has applied is committed, so it is what the master answers.
    """
    mirror = engine.mirrors.by_number.get(number) if engine.mirrors is not None else None
    if mirror is None or mirror.replica is None or mirror.log.acts or mirror.view is None:
        return None
    log, here = mirror.log, engine.settings.node_name
    if here not in mirror.view.in_sync or log.gap[0] < log.gap[1] or log.is_broken:
        return None
    return mirror if mirror.queue.readable_end >= end else None
