"""The files of a log directory as the store uses them, so that a test can put its own beneath.

Names are plain file names in one directory. Everything that fails raises OSError.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Files kept open for reading.
OPEN_FILES_MAX = 32
#: How far the system is asked to read ahead.
AHEAD_BYTES = 4 * 1024 * 1024
#: A read that begins so near to where the last one ended goes on where that was.
NEAR_BYTES = 256 * 1024


class Files(Protocol):
    """A directory of files."""

    def names(self) -> list[str]:
        """All file names, sorted."""
        ...

    def size(self, name: str) -> int:
        """How many bytes a file has."""
        ...

    def read(self, name: str) -> bytes:
        """The whole file."""
        ...

    def read_at(self, name: str, at: int, size: int) -> bytes:
        """Up to `size` bytes of a file from an offset on."""
        ...

    def truncate(self, name: str, size: int) -> None:
        """Cut a file; durable after `sync`."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; durable after `sync_names`."""
        ...

    def write_back(self, name: str, at: int) -> None:
        """Write what a file holds from an offset on once more, so that the next sync carries it."""
        ...

    def sync(self, name: str) -> None:
        """Make the contents of a file durable."""
        ...

    def sync_names(self) -> None:
        """Make durable which files there are."""
        ...


class WritableFiles(Files, Protocol):
    """A directory of files that can be written to."""

    def create(self, name: str) -> None:
        """Create an empty file; durable after `sync_names`."""
        ...

    def reserve(self, name: str, size: int) -> None:
        """Set room aside behind what a file holds."""
        ...

    def append(self, name: str, data: bytes) -> int:
        """Write behind what was written last; how many bytes were taken."""
        ...


class RealFiles:
    """The files of a directory on this machine."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        #: Files that are read from, opened: oldest first.
        self._reading: dict[str, int] = {}
        #: The file read last, where that ended, and how far the system was asked to read ahead.
        self._last_read = (-1, 0, 0)

    def close(self) -> None:
        """Close what was opened for reading."""
        for fd in self._reading.values():
            os.close(fd)
        self._reading.clear()

    def names(self) -> list[str]:
        """All file names, sorted."""
        return sorted(os.listdir(self.directory))

    def size(self, name: str) -> int:
        """How many bytes a file has."""
        return os.stat(os.path.join(self.directory, name)).st_size

    def read(self, name: str) -> bytes:
        """The whole file. Not mapped: a bad sector is to be an OSError, not a SIGBUS."""
        with open(os.path.join(self.directory, name), "rb", buffering=0) as file:
            return file.readall()

    def read_at(self, name: str, at: int, size: int) -> bytes:
        """Up to `size` bytes of a file from an offset on."""
        fd = self._reading.get(name)
        if fd is None:
            if len(self._reading) >= OPEN_FILES_MAX:
                os.close(self._reading.pop(next(iter(self._reading))))
            fd = os.open(os.path.join(self.directory, name), os.O_RDONLY | os.O_CLOEXEC)
            self._reading[name] = fd
        self._read_ahead(fd, at, at + size)
        return os.pread(fd, size, at)

    def _read_ahead(self, fd: int, at: int, end: int) -> None:
        """Whoever reads on should not have to wait for the disk: it is told in good time."""
        last_fd, last_end, ahead = self._last_read
        if fd != last_fd or not last_end - NEAR_BYTES <= at <= last_end + NEAR_BYTES:
            ahead = end
        elif ahead - end < AHEAD_BYTES // 2:
            os.posix_fadvise(fd, max(ahead, end), AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            ahead = max(ahead, end) + AHEAD_BYTES
        self._last_read = (fd, end, ahead)

    def create(self, name: str) -> None:
        """Create an empty file; durable after `sync_names`."""
        path = os.path.join(self.directory, name)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o640))

    def reserve(self, name: str, size: int) -> None:
        """Set room aside behind what a file holds."""
        with _opened(os.path.join(self.directory, name), os.O_WRONLY) as fd:
            os.posix_fallocate(fd, 0, size)

    def append(self, name: str, data: bytes) -> int:
        """Write behind what was written last; how many bytes were taken."""
        path = os.path.join(self.directory, name)
        with _opened(path, os.O_WRONLY | os.O_APPEND) as fd:
            return os.write(fd, data)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file; durable after `sync`."""
        os.truncate(os.path.join(self.directory, name), size)

    def remove(self, name: str) -> None:
        """Remove a file; durable after `sync_names`."""
        fd = self._reading.pop(name, None)
        if fd is not None:
            os.close(fd)
        os.unlink(os.path.join(self.directory, name))

    def write_back(self, name: str, at: int) -> None:
        """Write what a file holds from an offset on once more, so that the next sync carries it."""
        with open(os.path.join(self.directory, name), "r+b") as file:
            file.seek(at)
            held = file.read()
            file.seek(at)
            file.write(held)

    def sync(self, name: str) -> None:
        """Make the contents of a file durable."""
        with _opened(os.path.join(self.directory, name), os.O_RDONLY) as fd:
            os.fsync(fd)

    def sync_names(self) -> None:
        """Make durable which files there are."""
        with _opened(self.directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
