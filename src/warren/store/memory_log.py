"""A log that keeps its records in memory: persisted at once, or when the test says so."""

from __future__ import annotations

import os

from warren.store.records import PAYLOAD_BYTES_MAX, record_bytes
from warren.store.scanner import Record


class MemoryLog:
    """A `Log` without a disk."""

    def __init__(self, next_sequence: int = 1, *, immediate: bool = True) -> None:
        #: All records appended, oldest first.
        self.records: list[Record] = []
        self.immediate = immediate
        self._appended = self._persisted = next_sequence - 1
        self._batches = self._written_bytes = self._pending_bytes = 0
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
        record = Record(self._appended + 1, kind, payload, flags, queue_id, epoch)
        self.records.append(record)
        self._appended += 1
        self._pending_bytes += record_bytes(record)
        if self.immediate:
            self.persist()
        return self._appended

    @property
    def appended(self) -> int:
        """The newest sequence number given out."""
        return self._appended

    @property
    def persisted(self) -> int:
        """The newest sequence number that counts as being on a disk."""
        return self._persisted

    @property
    def pending_bytes(self) -> int:
        """How much has been appended and not persisted."""
        return self._pending_bytes

    def statistics(self) -> tuple[int, int]:
        """(times persisted, bytes persisted) so far."""
        return self._batches, self._written_bytes

    def check(self) -> None:
        """Raises OSError after `fail`."""
        if self._error:
            raise OSError(self._error, os.strerror(self._error), "memory")

    def close(self) -> None:
        """Persist what has gathered, then take no more."""
        if not self._closed:
            self.persist()
        self._closed = True
        self.check()

    def persist(self) -> None:
        """Move the mark to the newest record, unless the log has failed."""
        if self._error or self._persisted == self._appended:
            return
        self._persisted = self._appended
        self._batches += 1
        self._written_bytes += self._pending_bytes
        self._pending_bytes = 0

    def fail(self, error: int) -> None:
        """From here on the log behaves as after a failed write or sync."""
        self._error = error

    def survivors(self) -> list[Record]:
        """The records that a crash now would certainly leave."""
        lost = self._appended - self._persisted
        return self.records[: len(self.records) - lost]
