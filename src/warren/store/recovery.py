"""Coming back: the newest sound checkpoint, then the log's tail, then a verdict.

Nothing here stops at damage. What is sound is served; every queue that lost something, or may have,
says so; the bytes that could not be understood are put aside. The only refusals are a format that
this version does not know and files that cannot be opened at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from warren.store.bad_sectors import is_media_error, read_around
from warren.store.checkpoint import (
    Checkpoint,
    CheckpointError,
    KnownSegment,
    checkpoint_name,
    checkpoint_sequence,
    decode_checkpoint,
    list_checkpoints,
)
from warren.store.journal import Journal
from warren.store.records import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_first_sequence,
    segment_name,
)
from warren.store.replay import Replay
from warren.store.scan import Scan, repair_tail, scan
from warren.store.start_marks import CUT_MARK, is_marked, set_mark

if TYPE_CHECKING:
    from warren.store.files import WritableFiles
    from warren.store.salvage import Salvage

#: What is put aside of a message that cannot be read, when its length is not to be believed.
UNREADABLE_BYTES = 4096


class Recovery:
    """`run` once; then `journal` is filled and the rest says what happened."""

    def __init__(
        self,
        files: WritableFiles,
        wall_offset_ms: int,
        fresh_salt: int,
        salvage: Salvage | None = None,
    ) -> None:
        self.files = files
        self.salvage = salvage
        #: Worth a line in the log.
        self.notes: list[str] = []
        #: What is lost, or may be.
        self.damages: list[str] = []
        self.records = 0
        #: The log's end could not be read, now or when the node last tried to tell the cluster.
        self.is_cut = False
        #: The newest record that any checkpoint was of.
        self._known_sequence = 0
        self.checkpoint = self._newest_checkpoint()
        self._segments = self._list_segments()
        self.last_segment = max(self._segments, default=0)
        if self.checkpoint is not None:
            self.last_segment = max(self.last_segment, self.checkpoint.last_segment)
        salt = self._salt(fresh_salt)
        self.journal = Journal(wall_offset_ms, min(self._segments, default=1), salt)
        self.journal.read_at = self._read_at
        self.next_sequence = 1

    def _read_at(self, number: int, at: int, size: int) -> bytes:
        # More is read than is asked for: a bad sector takes nothing with it that it does not hold.
        name = segment_name(self.journal.segment_first(number))
        return read_around(self.files, name, at, size)[0]

    # -- what there is -----------------------------------------------------------------------------

    def _newest_checkpoint(self) -> Checkpoint | None:
        """The newest one that is sound; others are named."""
        for name in list_checkpoints(self.files):
            self._known_sequence = max(self._known_sequence, checkpoint_sequence(name))
            try:
                return decode_checkpoint(self.files.read(name))
            except CheckpointError as error:
                self.notes.append(f"checkpoint {name} is left out: {error}")
            except OSError as error:
                if not is_media_error(error):
                    raise
                self.notes.append(f"checkpoint {name} cannot be read: {error.strerror}")
        return None

    def _list_segments(self) -> dict[int, KnownSegment]:
        """By number. Where a header cannot be read, the checkpoint or the order knows it."""
        known = {s.first_sequence: s for s in self.checkpoint.segments} if self.checkpoint else {}
        found: dict[int, KnownSegment] = {}
        before = 0
        for name in self.files.names():
            first = segment_first_sequence(name)
            if first is None:
                continue
            header = self._header(name)
            entry = known.get(first)
            if entry is not None:
                number = entry.number
            elif header is not None and header.number > before:
                number = header.number
            else:
                number = before + 1
            kept, live_bytes = (entry.kept, entry.live_bytes) if entry is not None else (0, 0)
            found[number] = KnownSegment(number, first, self.files.size(name), kept, live_bytes)
            before = number
        return found

    def _header(self, name: str) -> SegmentHeader | None:
        """None when it cannot be read, or does not check."""
        return decode_segment_header(read_around(self.files, name, 0, SEGMENT_HEADER_BYTES)[0])

    def _salt(self, fresh_salt: int) -> int:
        if self.checkpoint is not None:
            return self.checkpoint.salt
        for segment in self._segments.values():
            header = self._header(segment_name(segment.first_sequence))
            if header is not None:
                return header.salt
        return fresh_salt

    # -- coming back -------------------------------------------------------------------------------

    def run(self, load: Callable[[bytes], None], apply: Callable[[bytes], None]) -> None:
        """Fill the queues; `load` and `apply` take the checkpoint's metadata and later changes.

        They make the queues and enter them in `journal.queues`. Both raise ValueError for metadata
        that makes no sense.
        """
        for segment in self._segments.values():
            self.journal.add_segment(*segment)
        self.journal.on_unreadable = self._note_unreadable
        if self.checkpoint is not None:
            self._load_checkpoint(self.checkpoint, load)
        replay = Replay(self.journal, apply)
        found = self._replay_tail(replay)
        for sequence, fault in replay.faults:
            self.damages.append(f"record {sequence} of the log makes no sense: {fault}")
        if replay.orphans:
            self.damages.append(
                f"{replay.orphans} messages are for queues that the log does not know any more; "
                "the segments they stand in are kept"
            )
        self._report_scan(found)
        self._report_queues(found, replay)
        self.journal.on_unreadable = None
        self._report_missing()
        if self.checkpoint is not None:
            # Like the log's end: it may be readable and not on the disk.
            name = checkpoint_name(self.checkpoint.sequence)
            self.files.write_back(name, 0)
            self.files.sync(name)
        if found.torn_tail is not None:
            set_mark(self.files, CUT_MARK)
        self.is_cut = is_marked(self.files, CUT_MARK)
        repair_tail(found)
        self._cut_spare_room()
        self._follow_repair()
        # The next checkpoint must be newer than any there is.
        self.next_sequence = max(found.next_sequence, self._known_sequence + 1)
        self.records = replay.records
        for queue in self.journal.queues.values():
            queue.finish_restore()

    def _follow_repair(self) -> None:
        """The journal knows segments as the repair left them.

        A segment that was cut away whole must be forgotten: the next one takes its file's name, and
        must not be deleted in its place.
        """
        names = set(self.files.names())
        for number, segment in self._segments.items():
            name = segment_name(segment.first_sequence)
            if name not in names:
                self.journal.forget_segment(number)
            elif (size := self.files.size(name)) < segment.size:
                self.journal.cut_segment(number, size)

    def _load_checkpoint(self, checkpoint: Checkpoint, load: Callable[[bytes], None]) -> None:
        load(checkpoint.metadata)
        for known in checkpoint.queues:
            queue = self.journal.find_queue(known.queue_id)
            if queue is None:
                continue
            queue.epoch = known.epoch
            queue.operations = known.operations
            try:
                queue.load_snapshot(known.snapshot)
            except ValueError as error:
                self._blame(queue, f"its checkpoint makes no sense: {error}")

    def _replay_tail(self, replay: Replay) -> Scan:
        if self.checkpoint is not None:
            found = scan(self.files, self.checkpoint.sequence + 1, skip_older=True)
        else:
            found = scan(self.files, 1 if self._segments else None)
        found.salt = self.journal.salt
        numbers = {segment_name(s.first_sequence): s.number for s in self._segments.values()}
        for name, records in found.batches():
            replay.take(records, numbers[name])
        return found

    def _cut_spare_room(self) -> None:
        """The segment that was written when the checkpoint was taken may end with room unused."""
        for known in self.checkpoint.segments if self.checkpoint is not None else ():
            there = self._segments.get(known.number)
            if there is not None and there.size > known.size:
                self.files.truncate(segment_name(known.first_sequence), known.size)

    # -- the verdict -------------------------------------------------------------------------------

    def _report_scan(self, found: Scan) -> None:
        torn = found.torn_tail
        if found.next_sequence <= self._known_sequence:
            # A checkpoint is begun when all that it covers is on the disk, sound or not since.
            self.damages.append(
                f"the log ends before record {found.next_sequence}, and there was a checkpoint of "
                f"record {self._known_sequence}"
            )
            if torn is not None:
                self._put_aside(torn.segment, torn.offset, torn.cut_bytes, "the log's end")
        elif torn is not None:
            self.notes.append(
                f"the last append to the log was not finished: {torn.cut_bytes} bytes of "
                f"{torn.segment} are cut off; nothing in them had been confirmed, unless the disk "
                "has spoiled them since"
            )
        for damage in found.damages:
            self.damages.append(
                f"{damage.segment} is damaged at offset {damage.offset}: {damage.skipped_bytes} "
                f"bytes, {damage.lost_records or 'an unknown number of'} records: {damage.reason}"
            )
            self._put_aside(damage.segment, damage.offset, damage.skipped_bytes, damage.reason)
        for missing in found.missing:
            self.damages.append(
                f"records {missing.expected_sequence} to {missing.found_sequence - 1} of the log "
                f"are missing before {missing.before}"
            )

    def _put_aside(self, name: str, offset: int, size: int, reason: str) -> None:
        if self.salvage is None:
            return
        try:
            self.salvage.keep(name, offset, read_around(self.files, name, offset, size)[0], reason)
        except OSError as error:
            self.notes.append(f"damaged bytes of {name} could not be put aside: {error.strerror}")

    def _report_queues(self, found: Scan, replay: Replay) -> None:
        for queue, (expected, index) in replay.gaps.items():
            self._blame(queue, f"its operations {expected} to {index - 1} are lost")
        lost = [d.expected_sequence for d in found.damages]
        lost += [m.expected_sequence for m in found.missing]
        if found.next_sequence <= self._known_sequence:
            lost.append(self._known_sequence)
        if not lost:
            return
        for queue in self.journal.queues.values():
            silent = replay.last_seen.get(queue.queue_id, 0) < max(lost)
            if silent and queue not in replay.gaps:
                self._blame(queue, "its newest operations may be among the records that are lost")

    def _report_missing(self) -> None:
        """Segments that are needed and not there, or shorter than they were."""
        if self.checkpoint is None:
            return
        for known in self.checkpoint.segments:
            found = self._segments.get(known.number)
            if found is not None and found.size >= known.size:
                continue
            if found is not None and known.first_sequence > self.checkpoint.sequence:
                continue
            name = segment_name(known.first_sequence)
            for queue in self.journal.queues.values():
                lost = queue.drop_segment(known.number) if found is None else 0
                if lost:
                    self._blame(queue, f"{lost} messages stood in {name}, which is missing")
            if found is not None and known.kept:
                self.damages.append(
                    f"{name} has {found.size} bytes and had {known.size}: messages that stood "
                    "there are missed when their turn comes"
                )

    def _note_unreadable(self, queue: Any, _slot: int, place: int, count: int) -> None:
        """A part of a queue that a checkpoint left to the log cannot be read."""
        first = self.journal.segment_first(place >> 32)
        name = segment_name(first) if first else f"segment {place >> 32}, which is missing"
        offset = place & 0xFFFFFFFF
        self._blame(queue, f"{count} messages cannot be read: their index at {name}:{offset}")
        self._put_aside(name, offset, UNREADABLE_BYTES, "the index of messages")

    def _blame(self, queue: object, what: str) -> None:
        blame(queue, what)
        self.damages.append(f"queue '{getattr(queue, 'name', '?')}': {what}")


def blame(queue: object, what: str) -> None:
    """The queue itself says what it lost."""
    before: str = getattr(queue, "damage", "")
    if what not in before:
        queue.damage = f"{before}; {what}" if before else what  # type: ignore[attr-defined]
