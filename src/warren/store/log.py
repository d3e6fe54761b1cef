"""What the engine asks of a log.

Three things implement it: `writer.LogWriter` on real files with a thread of its own,
`memory_log.MemoryLog`, and `stepped_log.SteppedLog`, which writes when it is told to, on a disk
that may misbehave by a seed. They share their appending half, `appender.Appender`.

The contract: sequence numbers are given out without gaps, in the order of the appends. `persisted`
only grows, never beyond `appended`, and a record it has reached survives whatever the process or
the machine does next. After a failed write or sync it never moves again, and `check`, `append` and
`close` raise OSError. After `close`, `append` raises RuntimeError.
"""

from __future__ import annotations

from typing import Protocol


class Log(Protocol):
    """A log that is appended to."""

    def append(
        self, kind: int, payload: bytes, flags: int = 0, queue_id: int = 0, epoch: int = 0
    ) -> int:
        """Append a record; its sequence number."""
        ...

    @property
    def appended(self) -> int:
        """The newest sequence number given out."""
        ...

    @property
    def persisted(self) -> int:
        """The newest sequence number that is on the disk with all before it."""
        ...

    @property
    def pending_bytes(self) -> int:
        """How much waits in memory to be written."""
        ...

    def statistics(self) -> tuple[int, int]:
        """(batches synced, bytes of records written) so far."""
        ...

    def check(self) -> None:
        """Raises OSError when a write or sync has failed."""
        ...

    def close(self) -> None:
        """Write and sync what has gathered, then end. Raises as `check` does."""
        ...
