"""Scrubbing: what the log has of mirrored queues is read over before anybody needs it.

A start reads the checkpoint and the log's tail, no bodies before that. So a mirror would find a bit
that was turned round in there only as the master, when the others may be gone. Here all of it is
read once after a start, in slices beside service, and again when a day has passed. What cannot be
read is brought from another replica at once (`healing.py`).

A replica that has to join what is in sync is not counted there before it is through. One that is in
sync already when it comes back stays so: where all nodes were down there is nobody else to serve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from warren.queue.examining import Stretch, examine, stretches

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.mirror import Mirror

#: Read at once: less than a millisecond of work.
SLICE_BYTES = 256 * 1024
#: After a start, as long as nobody publishes; and if somebody does. Bytes a millisecond.
START_PACE = 200_000
BUSY_PACE = 50_000
#: ... and later, when nothing waits for it.
LATER_PACE = 4_000
IDLE_MS = 200
#: So long after one time it is all read again.
PAUSE_MS = 24 * 3600 * 1000
#: Whether what was asked for has come is looked at so often.
LOOK_MS = 50
#: So many messages of a queue are asked for at once.
ASKED_MAX = 32

Aside = Callable[[list[tuple[int, int]], Callable[[list[bytes]], None]], None]


class _Round:
    """One queue, gone through once."""

    __slots__ = ("bad", "below", "number", "slot")

    def __init__(self, number: int, below: int) -> None:
        self.number = number
        #: What stands in the log from there on is of this life of the node.
        self.below = below
        #: Where to go on; None: all is read.
        self.slot: int | None = 0
        #: Slot -> place of what cannot be read and has not come.
        self.bad: dict[int, int] = {}


class Scrub:
    """Of all replicas of a node."""

    def __init__(self, engine: Engine, by_number: dict[int, Mirror]) -> None:
        self._engine = engine
        self._by_number = by_number
        #: Reads (place, size) of the log where it holds nobody up; None: at once.
        self.aside: Aside | None = None
        self.pace = START_PACE
        self._left: deque[_Round] = deque()
        self._waiting: list[_Round] = []
        self._is_reading = self._is_due = False
        self._newest = self._busy_ms = 0

    @property
    def is_busy(self) -> bool:
        """Whether anything is still to be read, or to come."""
        return bool(self._left or self._waiting or self._is_reading)

    def begin(self) -> None:
        """All that was on the disk is here, and nobody has read it: `go_through` is next."""
        for mirror in self._by_number.values():
            mirror.log.is_verified = False

    def go_through(self) -> None:
        """Read over all that is on the disk by now, unless that is under way."""
        journal = self._engine.journal
        if journal is None or self.is_busy:
            return
        self._left.extend(_Round(it, journal.persisted_end) for it in self._by_number)
        self._arm(1)

    def _arm(self, pause_ms: int) -> None:
        if not self._is_due:
            self._is_due = True
            self._engine.timers.at(self._engine.clock.now_ms() + pause_ms, self._go_on)

    def _go_on(self, now_ms: int) -> None:
        self._is_due = False
        self._waiting = [it for it in self._waiting if not self._is_through(it)]
        if self._is_reading:
            return
        while self._left:
            mirror = self._by_number.get(self._left[0].number)
            if mirror is not None and self._left[0].slot is not None:
                self._read(self._left[0], mirror, now_ms)
                return
            read = self._left.popleft()
            if not self._is_through(read):
                self._waiting.append(read)
        if self._waiting:
            self._arm(LOOK_MS)
            return
        self.pace = LATER_PACE
        self._engine.timers.at(now_ms + PAUSE_MS, lambda _now_ms: self.go_through())

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, here: _Round, mirror: Mirror, now_ms: int) -> None:
        assert here.slot is not None
        found, here.slot = stretches(mirror.queue, here.slot, here.below, SLICE_BYTES)
        pieces = [(it.place, it.size) for it in found]
        self._is_reading = True
        done = partial(self._was_read, here, found, self._due_ms(pieces, now_ms))
        if self.aside is None or not pieces:
            done([self._read_at(*piece) for piece in pieces])
        else:
            self.aside(pieces, done)

    def _read_at(self, place: int, size: int) -> bytes:
        journal = self._engine.journal
        assert journal is not None
        assert journal.read_at is not None
        try:
            return journal.read_at(place >> 32, place & 0xFFFFFFFF, size)
        except OSError:
            return b""

    def _due_ms(self, pieces: list[tuple[int, int]], now_ms: int) -> int:
        """When to go on after this."""
        assert self._engine.journal is not None
        newest = self._engine.journal.commit_mark
        if newest != self._newest:
            self._newest, self._busy_ms = newest, now_ms
        is_busy = now_ms < self._busy_ms + IDLE_MS
        pace = min(self.pace, BUSY_PACE) if is_busy else self.pace
        return now_ms + max(1, sum(size for _, size in pieces) // pace)

    def _was_read(self, here: _Round, found: list[Stretch], due_ms: int, data: list[bytes]) -> None:
        self._is_reading = False
        mirror = self._by_number.get(here.number)
        if mirror is not None:
            for stretch, piece in zip(found, data, strict=True):
                bad = examine(mirror.queue, stretch, piece)
                if bad:
                    self._tell(mirror, len(bad), stretch.place)
                    here.bad |= bad
        self._arm(max(1, due_ms - self._engine.clock.now_ms()))

    def _tell(self, mirror: Mirror, count: int, place: int) -> None:
        self._engine.log.warning(
            "queue '%s' in vhost '%s': %d messages near offset %d of the log's segment %d cannot "
            "be read; the other replicas are asked for them",
            mirror.queue.name,
            mirror.queue.vhost.name,
            count,
            place & 0xFFFFFFFF,
            place >> 32,
        )

    # -- what cannot be read -----------------------------------------------------------------------

    def _is_through(self, here: _Round) -> bool:
        """Whether all is here; else the others are asked for it, as far as they can be."""
        mirror = self._by_number.get(here.number)
        if mirror is None:
            return True
        log, healing = mirror.log, mirror.healing
        for slot, place in list(here.bad.items()):
            if log.missing_at(slot) != place or healing.is_given_up(slot):
                del here.bad[slot]
        for slot in list(here.bad)[:ASKED_MAX]:
            healing.ask(slot)
        if here.bad:
            return False
        journal = self._engine.journal
        assert journal is not None
        if not log.is_verified:
            # What has come must be on the disk, too.
            done = partial(self._verified, mirror)
            if journal.appended <= journal.persisted:
                done()
            else:
                journal.when_persisted(journal.appended, done)
        return True

    def _verified(self, mirror: Mirror) -> None:
        mirror.log.is_verified = True
        if mirror.replica is not None:
            mirror.replica.verified()
            mirror.carry_out()
