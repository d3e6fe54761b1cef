"""Files of stashes in memory, on a disk that can be full."""

from __future__ import annotations

import errno
from collections import deque

from warren.gateway.stash import StashRoom


def tiny_room() -> StashRoom:
    """Nearly everything that cannot be sent goes to the disk, in small chunks."""
    return StashRoom(SmallDisk().open, 1 << 30, window=600, chunk=300)


class SmallDisk:
    """Files in memory, on a disk that can be full."""

    def __init__(self, free: int = 1 << 40) -> None:
        self.free = free
        self.files: list[SmallFile] = []

    def open(self) -> SmallFile:
        self.files.append(SmallFile(self))
        return self.files[-1]


class SmallFile:
    def __init__(self, disk: SmallDisk) -> None:
        self.disk = disk
        self.chunks: deque[bytes] = deque()
        self.is_closed = False

    def append(self, chunk: bytes) -> None:
        if len(chunk) > self.disk.free:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.disk.free -= len(chunk)
        self.chunks.append(chunk)

    def take(self) -> bytes:
        return self.chunks.popleft()

    def close(self) -> None:
        self.is_closed = True
