"""The file of a stash (`gateway/stash.pyx`): written once, read once, both from front to back.

It has no name any more as soon as it is open, so it ends with the process, however that ends:
nobody was told that what is in it is safe.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

from warren.telemetry.log import logger


class DamagedStashError(Exception):
    """What was read is not what was written."""


class DiskStashFile:
    """`on_damage` is called when chunks cannot be read again: they cannot be answered either."""

    def __init__(self, directory: Path, on_damage: Callable[[Exception], None]) -> None:
        self._fd = -1
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix="stash.", dir=directory)
        os.unlink(name)
        self._fd = fd
        self._on_damage = on_damage
        self._start = self._end = 0
        #: Length and checksum of the chunks that have not been taken.
        self._chunks: deque[tuple[int, int]] = deque()

    def fileno(self) -> int:
        """What the process knows it by."""
        return self._fd

    def append(self, chunk: bytes) -> None:
        left, at = memoryview(chunk), self._end
        while left:
            written = os.pwrite(self._fd, left, at)
            left, at = left[written:], at + written
        self._end = at
        self._chunks.append((len(chunk), zlib.crc32(chunk)))

    def take(self) -> bytes:
        length, checksum = self._chunks[0]
        try:
            chunk = os.pread(self._fd, length, self._start)
            if len(chunk) < length or zlib.crc32(chunk) != checksum:
                raise DamagedStashError(f"stash: {length} bytes read back are not what was written")
        except (OSError, DamagedStashError) as error:
            self._on_damage(error)
            raise
        self._chunks.popleft()
        self._start += length
        return chunk

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        self.close()


class StashFiles:
    """Makes the files in one directory, and says in the log when the disk has no room for one."""

    def __init__(self, directory: Path, on_damage: Callable[[Exception], None]) -> None:
        self._directory = directory
        self._on_damage = on_damage
        self.log = logger("cluster")

    def open(self) -> DiskStashFile:
        file = DiskStashFile(self._directory, self._on_damage)
        self.log.warning("publishes for nodes that cannot be reached are put aside on the disk")
        return file
