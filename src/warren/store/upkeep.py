"""The log's upkeep: checkpoints, deleting segments that nobody needs, compaction.

`tick` is called now and then and does a little each time, so that messages never wait for it. A
checkpoint goes through these steps: indexes of long backlogs are written to the log; the state is
taken, all at once; when the log is on the disk up to there, the checkpoint is written aside; then
what it makes superfluous is deleted. A segment is deleted only when nothing in it was needed at the
moment the state was taken: the checkpoint does not speak of it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.store.checkpoint import (
    Checkpoint,
    KnownQueue,
    KnownSegment,
    checkpoint_name,
    list_checkpoints,
    write_checkpoint,
)
from warren.store.compaction import Compaction
from warren.store.records import MESSAGE_BYTES_MIN, Kind, segment_name

if TYPE_CHECKING:
    from warren.store.files import WritableFiles
    from warren.store.journal import Journal

#: There is no room: nothing is wrong with the disk, and there may be some later.
FULL_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT))

Done = Callable[[Exception | None], None]
#: Does something where it holds nobody up, then calls back.
Aside = Callable[[Callable[[], None], Done], None]


def at_once(work: Callable[[], None], done: Done) -> None:
    """The `Aside` of tests and of a node that is stopping."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - told to the caller
        done(error)
    else:
        done(None)


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """When what is due."""

    #: A checkpoint after so much of the log; bounds what a start must read.
    checkpoint_bytes: int = 256 * 1024 * 1024
    #: ... or when segments of so much could go. Not fewer: a checkpoint begins a new segment, so
    #: that it would bring forth the next one, and deleting files slows the syncs of the log.
    dead_bytes: int = 96 * 1024 * 1024
    #: Fewer go when nothing was written for this many ticks.
    patience_ticks: int = 20
    #: A segment with less than this share needed is compacted ...
    compact_below: float = 0.25
    #: ... once so much of the log is of no use.
    waste_bytes: int = 256 * 1024 * 1024
    #: ... or so much, when nothing was written for as long as `patience_ticks` says.
    rest_waste_bytes: int = 32 * 1024 * 1024
    #: So many chunks of a queue may stand in the checkpoint itself.
    inline_chunks: int = 32
    #: Indexes of others written in one tick: some 3 KB each.
    indexes_a_tick: int = 256
    #: A checkpoint that there was no room for is tried again after so many ticks.
    retry_ticks: int = 100


class Upkeep:
    """See the module's text."""

    def __init__(
        self,
        journal: Journal,
        files: WritableFiles,
        metadata: Callable[[], bytes],
        settings: UpkeepSettings | None = None,
        aside: Aside = at_once,
    ) -> None:
        self.journal = journal
        self.files = files
        self.metadata = metadata
        self.settings = settings or UpkeepSettings()
        self.aside = aside
        #: The first error of a checkpoint's writing; the node must end.
        self.error: Exception | None = None
        #: Why the last checkpoint could not be written, and will be tried again; None: it was.
        self.put_off: OSError | None = None
        self._ticks_put_off = 0
        #: Segments that a checkpoint would have let go, had there been room for it.
        self._spared: list[tuple[int, int]] = []
        self.checkpoints = 0
        self.compacted_segments = 0
        # The checkpoint that this start came from may be of the newest record.
        self.last_sequence = journal.appended
        self._last_bytes = 0
        self._seen_bytes = 0
        self._idle_ticks = 0
        self._compaction: Compaction | None = None
        #: Segments that compaction has been through, and how often they were still needed then:
        #: what could not be read or moved of them stays, and so does all if that was much.
        self._passed: dict[int, int] = {}
        self._steps: Iterator[None] | None = None

    # -- when --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do the next little piece of what is due."""
        if self.error is not None:
            return
        if self._steps is not None:
            self._go_on()
        elif self._compaction is not None:
            self._compact()
        elif self._is_due():
            self.begin()
        else:
            self._choose_victim()

    @property
    def is_busy(self) -> bool:
        """Whether something is under way."""
        return self._steps is not None or self._compaction is not None

    def _is_due(self) -> bool:
        appended = self.journal.appended_bytes
        if self.put_off is not None:
            self._ticks_put_off += 1
            return self._ticks_put_off >= self.settings.retry_ticks
        if appended - self._last_bytes >= self.settings.checkpoint_bytes:
            return True
        self._idle_ticks = self._idle_ticks + 1 if appended == self._seen_bytes else 0
        self._seen_bytes = appended
        dead = self._dead()
        return bool(dead) and (
            self._is_at_rest or sum(size for _, _, size in dead) >= self.settings.dead_bytes
        )

    @property
    def _is_at_rest(self) -> bool:
        return self._idle_ticks >= self.settings.patience_ticks

    def _dead(self) -> list[tuple[int, int, int]]:
        """(number, first sequence, size) of segments that nobody needs; never the newest."""
        newest = self.journal.log.segment
        return [
            (number, first, size)
            for number, first, size, live, _kept, _bytes in self.journal.list_segments()
            if live == 0 and number != newest
        ]

    # -- checkpoints -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a checkpoint, unless one is under way."""
        if self._steps is None:
            self._idle_ticks = 0
            self._steps = self._checkpoint()
            self._go_on()

    def _go_on(self) -> None:
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
        except OSError as error:
            self._steps = None
            self.error = error

    def _checkpoint(self) -> Iterator[None]:
        settings = self.settings
        for queue in list(self.journal.queues.values()):
            while (
                queue.queue_id  # a queue may be deleted meanwhile
                and queue.chunk_count > settings.inline_chunks
                and queue.write_indexes(settings.indexes_a_tick)
            ):
                self.journal.finish_turn()
                yield
        checkpoint, doomed = self.take_state(clean=False)
        while self.journal.persisted < checkpoint.sequence:
            yield
        outcome: list[Exception | None] = []
        self.aside(lambda: self._write(checkpoint, doomed), outcome.append)
        while not outcome:
            yield
        error = outcome[0]
        if error is None:
            self._written(doomed)
        elif isinstance(error, OSError) and error.errno in FULL_ERRORS:
            # The log has all that would stand in it. To end would make no room, and acks do.
            self.put_off, self._ticks_put_off = error, 0
            self._spared = doomed
        else:
            self.error = error

    def take_state(self, clean: bool) -> tuple[Checkpoint, list[tuple[int, int]]]:
        """All that the log has said so far, and the segments that are not needed for it."""
        journal = self.journal
        journal.finish_turn()
        if journal.appended == self.last_sequence:
            # Two checkpoints must not share a name.
            journal.put(Kind.MARK, b"")
        sequence = journal.appended
        queues = [
            KnownQueue(queue_id, queue.epoch, queue.operations, queue.snapshot(clean))
            for queue_id, queue in sorted(journal.queues.items())
            if queue.operations
        ]
        doomed = [(number, first) for number, first, _size in self._dead()]
        for number, _ in doomed:
            journal.forget_segment(number)
        doomed = self._spared + doomed
        segments = [
            KnownSegment(number, first, size, kept, live_bytes)
            for number, first, size, _live, kept, live_bytes in journal.list_segments()
        ]
        self.last_sequence = sequence
        self._last_bytes = journal.appended_bytes
        journal.log.roll()
        last = journal.last_segment
        state = Checkpoint(sequence, last, journal.salt, clean, self.metadata(), segments, queues)
        return state, doomed

    def _write(self, checkpoint: Checkpoint, doomed: list[tuple[int, int]]) -> None:
        """Runs aside: touches files only."""
        mine = checkpoint_name(checkpoint.sequence)
        try:
            write_checkpoint(self.files, checkpoint.sequence, checkpoint.encode())
        except OSError as error:
            if error.errno in FULL_ERRORS:
                with suppress(OSError):
                    self.files.remove(mine)
            raise
        # The one before stays, in case a disk spoils the newest.
        for name in [n for n in list_checkpoints(self.files) if n < mine][1:]:
            self.files.remove(name)
        for _, first_sequence in doomed:
            self.files.remove(segment_name(first_sequence))
        self.files.sync_names()

    def _written(self, doomed: list[tuple[int, int]]) -> None:
        self.checkpoints += 1
        self.put_off = None
        self._spared = []
        for number, _ in doomed:
            self._passed.pop(number, None)

    def write_now(self, clean: bool) -> None:
        """The last checkpoint of a node that stops: its log is closed already, all in order."""
        checkpoint, doomed = self.take_state(clean)
        self.journal.log.close()
        self._write(checkpoint, doomed)

    # -- compaction --------------------------------------------------------------------------------

    def _choose_victim(self) -> None:
        segments = self.journal.list_segments()
        # Only what is on the disk can be read back.
        unwritten = self.journal.persisted_end >> 32
        newest = self.journal.log.segment
        waste = sum(
            size - min(size, used + live * MESSAGE_BYTES_MIN)
            for _, _, size, live, _, used in segments
        )
        settings = self.settings
        if waste < (settings.rest_waste_bytes if self._is_at_rest else settings.waste_bytes):
            return
        for number, first, size, live, kept, used in segments:
            if (
                number == newest
                or number >= unwritten
                or live != kept
                or not live
                or live * 2 > self._passed.get(number, live * 2)
            ):
                continue
            needed_max = size * settings.compact_below
            if used + live * MESSAGE_BYTES_MIN < needed_max:
                self._compaction = Compaction(self.journal, number, first, size, needed_max)
                return

    def _compact(self) -> None:
        assert self._compaction is not None
        if self._compaction.step():
            self.journal.finish_turn()
            return
        compaction, self._compaction = self._compaction, None
        live_of = {number: live for number, _, _, live, _, _ in self.journal.list_segments()}
        self._passed[compaction.number] = live_of.get(compaction.number, 0)
        self.compacted_segments += not compaction.fault and compaction.is_worth_while
