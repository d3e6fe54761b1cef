"""The cursors of a queue: who reads it by ranges of positions, and how far each has come.

A cursor that *follows* has messages kept for it that consumers are through with, until it trims
them. A cursor that *drains* is the queue's consumer: what it trims is acknowledged. Everything that
changes here is one operation of the queue's log, a small JSON object: `apply` is the only door, for
a live queue, for one that comes back from the log, and for a mirror.

| operation | what it says |
|---|---|
| open  | a cursor begins: its start is decided for ever, its token tells its reader apart |
| use   | who reads by it from now on; nobody: whoever did has ended |
| trim  | all before a position is done with |
| drop  | a cursor ends |
| time  | messages from a position on came at a time or later |
| batch | a producer's batch is in the queue |
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

#: No cursor: nothing is kept beyond its time in the queue.
NOTHING_KEPT = 2**64 - 1
#: No position is higher: the bits above it are a message's priority.
POSITION_MAX = 2**55 - 1
#: A queue remembers the last batch of so many producers; those longest silent are forgotten.
PRODUCERS_MAX = 4096
#: So many marks of time are kept as they come, and as many again of one in so many ms.
#: None is thinned out: what a position says of its time must never change.
TIMES_MAX, SPARSE_MS = 65536, 60_000

FOLLOW, DRAIN = "follow", "drain"


@dataclass(slots=True)
class Cursor:
    """One reader of a queue."""

    name: str
    mode: str
    #: Whoever reads must have been told this: a checkpoint of another cursor of that name has not.
    token: str
    #: The first position it was ever to read.
    start: int
    #: All before it is trimmed.
    position: int
    #: Positions from here on came after the cursor: none of them may be missing.
    complete_from: int
    #: What stood before this when it was opened may have been delivered to somebody.
    opened_before: int
    #: Unused for so long, it is dropped; 0: never.
    expires_ms: int
    created_ms: int
    #: Who uses it at present, as all replicas know.
    owner: str = ""
    #: The same as who serves it has said last, of which others may not know yet; None: they do.
    #: Until when, unless it is heard of again; and when it was last used. None of it in the log.
    said_owner: str | None = None
    owner_until_ms: int = 0
    used_ms: int = 0

    @property
    def user(self) -> str:
        """Who uses it, for who serves it."""
        return self.owner if self.said_owner is None else self.said_owner


_KEPT = tuple(Cursor.__dataclass_fields__)[:-3]


@dataclass(slots=True)
class Cursors:
    """See the module's text."""

    #: Given with the first cursor; another queue of the same name has another.
    incarnation: str = ""
    by_name: dict[str, Cursor] = field(default_factory=dict)
    #: The last batch of each producer.
    batches: dict[str, int] = field(default_factory=dict)
    #: (wall clock in ms, position), both ascending.
    times: list[tuple[int, int]] = field(default_factory=list)

    @property
    def floor(self) -> int:
        """The lowest position that a cursor still needs."""
        return min((c.position for c in self.by_name.values()), default=NOTHING_KEPT)

    @property
    def drain(self) -> Cursor | None:
        """The cursor that is the queue's consumer."""
        return next((c for c in self.by_name.values() if c.mode == DRAIN), None)

    # -- operations --------------------------------------------------------------------------------

    def apply(self, operation: bytes) -> int:
        """The position up to which messages are acknowledged by it; 0: none.

        Raises ValueError for what is no operation.
        """
        try:
            said = msgspec.json.decode(operation)
            return self._apply(said)
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise ValueError(f"an operation of a cursor that cannot be read: {error}") from error

    def _apply(self, said: dict[str, Any]) -> int:
        kind = said["op"]
        if kind == "open":
            cursor = Cursor(**said["cursor"])
            self.incarnation = self.incarnation or str(said["incarnation"])
            # Of two that were opened before either was agreed on, the first counts.
            self.by_name.setdefault(cursor.name, cursor)
        elif kind == "trim":
            return self._trim(said["name"], said["upto"])
        elif kind == "use":
            self._use(said["name"], said["owner"])
        elif kind == "drop":
            self.by_name.pop(said["name"], None)
            self._forget_times()
        elif kind == "time":
            self._note_time(said["ms"], said["seq"])
        elif kind == "batch":
            self._note_batch(said["producer"], said["id"])
        else:
            raise ValueError(f"no operation of cursors is called '{kind}'")
        return 0

    def _trim(self, name: str, upto: int) -> int:
        cursor = self.by_name.get(name)
        if cursor is None or upto <= cursor.position:
            return 0
        cursor.position = upto
        self._forget_times()
        return upto if cursor.mode == DRAIN else 0

    def _use(self, name: str, owner: str) -> None:
        cursor = self.by_name.get(name)
        if cursor is not None:
            cursor.owner = owner

    def _note_time(self, at_ms: int, position: int) -> None:
        # A clock that was set back does not make positions come out of order.
        if self.times and at_ms < self.times[-1][0]:
            return
        count = len(self.times)
        if count < TIMES_MAX or (count < 2 * TIMES_MAX and at_ms - self.times[-1][0] >= SPARSE_MS):
            self.times.append((at_ms, position))

    def _note_batch(self, producer: str, batch: int) -> None:
        self.batches[producer] = max(batch, self.batches.pop(producer, -1))
        while len(self.batches) > PRODUCERS_MAX:
            del self.batches[next(iter(self.batches))]

    def _forget_times(self) -> None:
        """Those before what is needed, but for the last of them."""
        floor = self.floor
        at = bisect_right(self.times, floor, key=lambda mark: mark[1])
        del self.times[: max(0, at - 1)]

    # -- looking -----------------------------------------------------------------------------------

    def position_at(self, at_ms: int, end: int) -> int:
        """The first position that came at a time or later, as far as is known."""
        for marked_ms, position in self.times:
            if marked_ms >= at_ms:
                return min(position, end)
        return end

    # -- checkpoints -------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """All that a checkpoint has to keep."""
        cursors = [
            {name: value for name, value in asdict(cursor).items() if name in _KEPT}
            for cursor in self.by_name.values()
        ]
        return msgspec.json.encode(
            {
                "incarnation": self.incarnation,
                "cursors": cursors,
                "batches": self.batches,
                "times": self.times,
            }
        )


def decode_cursors(data: bytes) -> Cursors:
    """Raises ValueError for what `encode` has not written."""
    try:
        said = msgspec.json.decode(data)
        cursors = {one["name"]: Cursor(**one) for one in said["cursors"]}
        times = [(int(at_ms), int(position)) for at_ms, position in said["times"]]
        return Cursors(said["incarnation"], cursors, dict(said["batches"]), times)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the cursors of a queue cannot be read: {error}") from error


def open_operation(incarnation: str, cursor: Cursor) -> bytes:
    """That a cursor begins."""
    kept = {name: value for name, value in asdict(cursor).items() if name in _KEPT}
    return msgspec.json.encode({"op": "open", "incarnation": incarnation, "cursor": kept})


def trim_operation(name: str, upto: int) -> bytes:
    return msgspec.json.encode({"op": "trim", "name": name, "upto": upto})


def use_operation(name: str, owner: str) -> bytes:
    return msgspec.json.encode({"op": "use", "name": name, "owner": owner})


def drop_operation(name: str) -> bytes:
    return msgspec.json.encode({"op": "drop", "name": name})


def time_operation(at_ms: int, position: int) -> bytes:
    return msgspec.json.encode({"op": "time", "ms": at_ms, "seq": position})


def batch_operation(producer: str, batch: int) -> bytes:
    return msgspec.json.encode({"op": "batch", "producer": producer, "id": batch})
