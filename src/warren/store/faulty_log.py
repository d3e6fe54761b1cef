"""A log on a faulty disk, written step by step: the writer's rules without its thread.

Nothing happens by itself: `step` writes and syncs one batch, so a test or a simulator decides what
comes between an append and its sync. The bytes are those of `writer.LogWriter`.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from warren.store.records import (
    BATCH_RECORDS_MAX,
    PAYLOAD_BYTES_MAX,
    SEGMENT_HEADER_BYTES,
    encode_record,
    encode_segment_header,
    record_bytes,
    segment_name,
)
from warren.store.scanner import Record

if TYPE_CHECKING:
    from warren.store.faulty_disk import FaultyDisk


class FaultyLog:
    """A `Log` on a FaultyDisk."""

    def __init__(
        self, disk: FaultyDisk, next_sequence: int = 1, segment_bytes: int = 67108864
    ) -> None:
        self.disk = disk
        self.segment_bytes = segment_bytes
        self._appended = self._persisted = next_sequence - 1
        self._pending: list[Record] = []
        self._segment = ""
        self._segment_used = 0
        self._batches = self._written_bytes = 0
        self._error = 0
        self._closed = False

    def append(
        self, kind: int, payload: bytes, flags: int = 0, queue_id: int = 0, epoch: int = 0
    ) -> int:
        """Append a record; its sequence number."""
        self.check()
        if self._closed:
            raise RuntimeError("the log is closed")
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"a record of {len(payload)} bytes is longer than the log takes")
        self._appended += 1
        self._pending.append(Record(self._appended, kind, payload, flags, queue_id, epoch))
        return self._appended

    @property
    def appended(self) -> int:
        """The newest sequence number given out."""
        return self._appended

    @property
    def persisted(self) -> int:
        """The newest sequence number that is on the disk with all before it."""
        return self._persisted

    @property
    def pending_bytes(self) -> int:
        """How much waits in memory to be written."""
        return sum(record_bytes(record) for record in self._pending)

    def statistics(self) -> tuple[int, int]:
        """(batches synced, bytes of records written) so far."""
        return self._batches, self._written_bytes

    def check(self) -> None:
        """Raises OSError when a write or sync has failed."""
        if self._error:
            raise OSError(self._error, os.strerror(self._error), "faulty disk")

    def close(self) -> None:
        """Write and sync what has gathered, then take no more. Raises as `check` does."""
        if not self._closed:
            self._closed = True
            self.step()
            self._finish()
        self.check()

    def step(self) -> None:
        """Write and sync what has gathered. An error is kept for `check`; a PowerCut passes."""
        if self._error or not self._pending:
            return
        batch, self._pending = self._pending, []
        try:
            self._write_batch(batch)
        except OSError as error:
            self._error = error.errno or errno.EIO
            return
        self._persisted = batch[-1].sequence
        self._batches += 1
        self._written_bytes += sum(record_bytes(record) for record in batch)

    def _finish(self) -> None:
        if not self._error:
            try:
                self._end_segment()
            except OSError as error:
                self._error = error.errno or errno.EIO

    def _write_batch(self, batch: list[Record]) -> None:
        synced = batch[0].sequence - 1
        gathered = bytearray()
        for record in batch:
            size = record_bytes(record)
            used = self._segment_used + len(gathered)
            full = used > SEGMENT_HEADER_BYTES and used + size > self.segment_bytes
            if not self._segment or full:
                self._write_all(gathered)
                self._open_segment(record.sequence)
                synced = record.sequence - 1
            elif record.sequence - synced > BATCH_RECORDS_MAX:
                self._write_all(gathered)
                self.disk.sync(self._segment)
                synced = record.sequence - 1
            placed = Record(record.sequence, *record.contents(), record.sequence - synced - 1)
            gathered += encode_record(placed)
        self._write_all(gathered)
        self.disk.sync(self._segment)

    def _write_all(self, data: bytearray) -> None:
        while data:
            written = self.disk.append(self._segment, bytes(data))
            self._segment_used += written
            del data[:written]

    def _end_segment(self) -> None:
        if self._segment:
            self.disk.truncate(self._segment, self._segment_used)
            self.disk.sync(self._segment)

    def _open_segment(self, first_sequence: int) -> None:
        self._end_segment()
        self._segment = segment_name(first_sequence)
        self._segment_used = 0
        self.disk.create(self._segment)
        self.disk.reserve(self._segment, self.segment_bytes)
        self.disk.sync_names()
        self._write_all(bytearray(encode_segment_header(first_sequence)))
