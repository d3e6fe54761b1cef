"""A log that keeps its segments in memory: persisted at once, or when the test says so."""

from __future__ import annotations

from warren.store.faulty_disk import FaultyDisk
from warren.store.scan import scan
from warren.store.scanner import Record
from warren.store.stepped_log import SteppedLog


class MemoryLog(SteppedLog):
    """A `Log` without a disk."""

    def __init__(self, next_sequence: int = 1, *, immediate: bool = True) -> None:
        super().__init__(FaultyDisk(), next_sequence, segment_bytes=1 << 16)
        self.immediate = immediate

    def kick(self) -> None:
        """Something was appended."""
        if self.immediate:
            self.step()

    def survivors(self) -> list[Record]:
        """The records that a crash now would certainly leave."""
        return list(scan(self.disk))
