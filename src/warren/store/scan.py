"""Reads a log back and says what state it is in; docs/internals/wal-format.md has the rules.

`scan` never changes anything and never raises over what the bytes are, except for a format version
it does not know, nor over sectors that the disk has lost; files that may not be read raise OSError.
Iterate it to the end: the records come in order, each number once, and the verdict (`torn_tail`,
`damages`, `missing`, `next_sequence`) is complete when they have all come.
`repair_tail` is the separate step that makes the log fit to be continued.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from warren.store.bad_sectors import is_media_error, read_around
from warren.store.files import Files, RealFiles
from warren.store.records import (
    FORMAT_VERSION,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    segment_first_sequence,
)
from warren.store.scanner import (
    Record,
    find_record,
    proves_synced,
    read_records,
    zeros_from,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Records handed out at once; bounds what a reader that stops early has paid for.
BATCH_RECORDS_MAX = 4096
#: In the newest segment no sound record is searched for that is numbered further ahead than this.
AHEAD_RECORDS_MAX = 1 << 32
SEQUENCE_MAX = (1 << 64) - 1


class UnknownFormatError(Exception):
    """A segment was written by a version of Warren that this one does not know."""


@dataclass(frozen=True, slots=True)
class TornTail:
    """An append that the machine did not finish; nothing in it had been reported persisted."""

    segment: str
    #: Where the sound part ends; 0 when the whole segment goes.
    offset: int
    cut_bytes: int


@dataclass(frozen=True, slots=True)
class SpareTail:
    """Zeros behind the newest record: room that was set aside and not used."""

    segment: str
    offset: int
    spare_bytes: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that should be records and are not."""

    segment: str
    offset: int
    skipped_bytes: int
    #: The number of the first record that is not there.
    expected_sequence: int
    #: The number of the sound record that comes next; 0 when none does.
    resumed_sequence: int
    reason: str

    @property
    def lost_records(self) -> int:
        """How many records are not there; 0 when none is or nobody knows."""
        return max(0, self.resumed_sequence - self.expected_sequence)


@dataclass(frozen=True, slots=True)
class MissingSegment:
    """Records that should stand between two segments."""

    #: The segment before the gap; empty when the log begins with it.
    after: str
    before: str
    expected_sequence: int
    found_sequence: int


class Scan:
    """The records of a log, in order, and the verdict on it."""

    def __init__(
        self, files: Files, first_sequence: int | None = None, skip_older: bool = False
    ) -> None:
        self.files = files
        #: What the records' checksums begin with; known from the first header that checks.
        self.salt = 0
        #: The numbers of the segments by name, as far as their headers could be read.
        self.numbers: dict[str, int] = {}
        #: What the next append is numbered.
        self.next_sequence = first_sequence or 1
        self.torn_tail: TornTail | None = None
        self.spare_tail: SpareTail | None = None
        self.damages: list[Damage] = []
        self.missing: list[MissingSegment] = []
        #: Segments with sectors that cannot be read.
        self.unreadable: set[str] = set()
        #: The names of the segments, oldest first.
        self.segments = [n for n in files.names() if segment_first_sequence(n) is not None]
        if skip_older:
            first = first_sequence or 0
            self.segments = [n for n in self.segments if (segment_first_sequence(n) or 0) >= first]
        #: Where the last batch of the newest segment that has records begins.
        self.last_batch = ("", 0)
        self._first_known = first_sequence is not None

    @property
    def sound(self) -> bool:
        """Whether nothing that had been synced is missing."""
        return not self.damages and not self.missing

    def __iter__(self) -> Iterator[Record]:
        for _, records in self.batches():
            yield from records

    def finish(self) -> Scan:
        """Read to the end for the verdict alone."""
        for _ in self.batches():
            pass
        return self

    def batches(self) -> Iterator[tuple[str, list[Record]]]:
        """(segment, records in it), in order; the fast way to read. To be called once."""
        before = ""
        for number, name in enumerate(self.segments):
            begins = segment_first_sequence(name) or 0
            if number == 0 and not self._first_known:
                self.next_sequence = begins or 1
            elif begins > self.next_sequence:
                self._skip_to(before, name, begins)
            newest = number + 1 == len(self.segments)
            if newest:
                limit = min(self.next_sequence + AHEAD_RECORDS_MAX, SEQUENCE_MAX)
            else:
                limit = (segment_first_sequence(self.segments[number + 1]) or 1) - 1
            yield from self._segment(name, newest, limit)
            before = name

    def _segment(self, name: str, newest: bool, highest: int) -> Iterator[tuple[str, list[Record]]]:
        data, unreadable = self._read(name)
        at = SEGMENT_HEADER_BYTES
        fault = self._header_fault(name, data)
        if fault:
            at = 0
        while True:
            if not fault:
                records, at = read_records(
                    data, at, self.next_sequence, BATCH_RECORDS_MAX, self.salt
                )
                if records:
                    self._resumed(records[0].sequence)
                    self.next_sequence += len(records)
                    self._note_batch(name, records)
                    yield name, records
                    continue
                empty = newest and at == SEGMENT_HEADER_BYTES
                if zeros_from(data, at) and not empty:
                    if newest and at < len(data):
                        self.spare_tail = SpareTail(name, at, len(data) - at)
                    return
            # What cannot be read may well have been synced, so it is nothing to be cut off.
            torn = newest and not unreadable
            if torn and not proves_synced(data, at, self.next_sequence, highest, self.salt):
                cut = at if at > SEGMENT_HEADER_BYTES else 0
                self.torn_tail = TornTail(name, cut, len(data) - cut)
                return
            found = find_record(data, at, self.next_sequence, highest, self.salt)
            reason = unreadable or fault or "a record is cut out, repeated or does not check"
            fault = ""
            if found is None:
                self._damage(name, at, len(data) - at, reason)
                if newest:
                    # The next segment must have a name, and records numbers, of their own.
                    self.next_sequence += (len(data) - at) // RECORD_HEADER_BYTES + 1
                return
            self._damage(name, at, found[0] - at, reason)
            at, self.next_sequence = found

    def _read(self, name: str) -> tuple[bytes, str]:
        """A segment, and what is to be said if a part of it cannot be read."""
        try:
            return self.files.read(name), ""
        except OSError as error:
            if not is_media_error(error):
                raise
        self.unreadable.add(name)
        data, reason = read_around(self.files, name, 0, self.files.size(name))
        return data, f"it cannot be read whole: {reason}"

    def _note_batch(self, name: str, records: list[Record]) -> None:
        place = records[-1].place
        if place < len(records):
            first = records[len(records) - 1 - place].offset
            self.last_batch = (name, first if first > SEGMENT_HEADER_BYTES else 0)

    def _header_fault(self, name: str, data: bytes) -> str:
        header = decode_segment_header(data)
        if header is None:
            return "the segment's header does not check"
        if header.version != FORMAT_VERSION:
            raise UnknownFormatError(
                f"{name} has format version {header.version}; this Warren knows {FORMAT_VERSION}"
            )
        self.salt = header.salt
        self.numbers[name] = header.number
        if header.first_sequence != segment_first_sequence(name):
            return f"the segment's header says it begins with record {header.first_sequence}"
        return ""

    def _damage(self, name: str, at: int, skipped: int, reason: str) -> None:
        self.damages.append(Damage(name, at, skipped, self.next_sequence, 0, reason))

    def _resumed(self, sequence: int) -> None:
        if self.damages and not self.damages[-1].resumed_sequence:
            self.damages[-1] = replace(self.damages[-1], resumed_sequence=sequence)

    def _skip_to(self, before: str, name: str, begins: int) -> None:
        """A segment begins later than the one before it ended: unless damage says why, report."""
        ended_damaged = bool(self.damages) and not self.damages[-1].resumed_sequence
        if not ended_damaged:
            self.missing.append(MissingSegment(before, name, self.next_sequence, begins))
        self.next_sequence = begins


def scan(log: str | Files, first_sequence: int | None = None, skip_older: bool = False) -> Scan:
    """Read a log directory; `first_sequence` is the oldest record that must be there, if known.

    `skip_older` leaves out the segments that begin before it.
    """
    files = RealFiles(log) if isinstance(log, str) else log
    return Scan(files, first_sequence, skip_older)


def repair_tail(finished: Scan) -> None:
    """Cut the torn or spare tail a finished scan has found, and make what was read durable.

    The last matters without a torn tail too. After a process was killed its last batch may be
    readable and yet not be on the disk; after a failed sync the system even believes that it is,
    so it is written once more. The next segment will vouch for all of it.
    """
    files = finished.files
    torn = finished.torn_tail
    kept = list(finished.segments)
    if torn is not None and torn.offset == 0:
        files.remove(torn.segment)
        kept.remove(torn.segment)
    elif torn is not None:
        files.truncate(torn.segment, torn.offset)
    if finished.spare_tail is not None:
        files.truncate(finished.spare_tail.segment, finished.spare_tail.offset)
    if kept:
        name, at = finished.last_batch
        if kept[-1] not in finished.unreadable:
            files.write_back(kept[-1], at if name == kept[-1] else 0)
        files.sync(kept[-1])
    files.sync_names()
