"""An idle log writes zeros ahead of its records.

The sync of a small batch then waits for the disk only, not for notes of the file system.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from warren.store.records import Kind
from warren.store.writer import LogWriter

LIMIT_S = 10.0
ZEROS_BYTES = 1 << 18
SEGMENT_BYTES = 1 << 19


def written_once(path: Path) -> int:
    """Where the first block is that was only set aside; the end where nobody can tell."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_HOLE)
    finally:
        os.close(fd)


def await_written(path: Path, size: int) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while written_once(path) < size:
        assert time.monotonic() < deadline_s, f"{written_once(path)} of {size} bytes"
        time.sleep(0.005)


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.wal"))


def test_zeros_are_ahead_of_the_records(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path), segment_bytes=SEGMENT_BYTES)
    log.append(Kind.METADATA, b"first")
    while log.persisted < 1:
        time.sleep(0.001)
    (segment,) = segments(tmp_path)
    await_written(segment, ZEROS_BYTES)
    # Fewer are left than there should be. A large batch would take all there are; a small one asks
    # for the next stretch.
    log.append(Kind.METADATA, b"x" * (ZEROS_BYTES - 20_000))
    while log.persisted < 2:
        time.sleep(0.001)
    log.append(Kind.METADATA, b"third")
    await_written(segment, 2 * ZEROS_BYTES)
    log.close()
    assert segment.stat().st_size < ZEROS_BYTES


def test_they_end_where_the_segment_ends(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path), segment_bytes=SEGMENT_BYTES)
    for number in range(1, 250):
        log.append(Kind.METADATA, bytes(3_000))
        while log.persisted < number:
            time.sleep(0.001)
        assert all(path.stat().st_size <= SEGMENT_BYTES for path in segments(tmp_path))
    assert len(segments(tmp_path)) > 1
    log.close()
