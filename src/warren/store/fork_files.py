"""What is to be known of forks of mirrored queues after a crash, a file each.

The messages of a fork are in the node's log. Its file says which queue it is a fork of and what it
was opened with: the slot and a digest of each message. A fork without its file never served
anybody. The file is there before the first client is served, and goes when all of it is merged.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import Protocol

import msgspec

#: Numbers of forks in the log are those of queues with this bit; no queue ever has such a number.
FORK_BIT = 1 << 31
#: Numbers that are set aside at once: one sync for many forks.
RESERVED = 256


#: Slots that a fork has lost, since its disk could not give them back: the first one, the one
#: behind the last, and how many of the messages were published to the fork.
Lost = tuple[int, int, int]


class ForkNote(msgspec.Struct, frozen=True):
    """One fork."""

    #: What it is called in the node's log; never given again.
    number: int
    #: The queue, as all nodes number it.
    queue: int
    vhost: str
    name: str
    node: str
    #: Level -> the first position that was not in the replica: what stands there is new.
    bases: dict[int, int]
    #: The wall clock's time, in seconds.
    opened_s: int

    @property
    def tag(self) -> str:
        """What the fork is called for everybody: the value of the header `x-autoheal`."""
        return f"{self.node}/{self.number & ~FORK_BIT}"

    def is_new(self, slot: int, level_shift: int) -> bool:
        """Whether a message was published to the fork."""
        level = slot >> level_shift
        return slot - (level << level_shift) >= self.bases.get(level, 0)


class ForkFiles(Protocol):
    """Where notes on forks are kept. All raise OSError."""

    def reserve(self) -> int:
        """A number that no fork of this node has had, nor will have."""
        ...

    def keep(self, note: ForkNote, rows: bytes) -> None:
        """On the disk when it returns."""
        ...

    def notes(self) -> list[ForkNote]:
        """Of all forks that are not merged yet."""
        ...

    def unreadable(self) -> set[int]:
        """The numbers of those whose notes make no sense."""
        ...

    def rows(self, number: int) -> bytes | None:
        """What a fork was opened with; None: it cannot be read."""
        ...

    def lose(self, number: int, lost: list[Lost]) -> None:
        """All that an open fork has lost until now; on the disk when it returns."""
        ...

    def lost(self, number: int) -> list[Lost] | None:
        """What a fork has lost; None: it has lost something, and nobody knows what."""
        ...

    def drop(self, number: int) -> None:
        """The fork is merged."""
        ...


class ForkDirectory:
    """Forks as files of a directory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next = self._end = 0
        self._unreadable: set[int] = set()

    def reserve(self) -> int:
        if self._next == self._end:
            os.makedirs(self._path, mode=0o750, exist_ok=True)
            place = os.path.join(self._path, "last")
            try:
                with open(place, encoding="ascii") as file:
                    self._next = int(file.read())
            except FileNotFoundError:
                self._next = 1
            self._end = self._next + RESERVED
            self._write("last", str(self._end).encode())
        self._next += 1
        return FORK_BIT | (self._next - 1)

    def keep(self, note: ForkNote, rows: bytes) -> None:
        head = msgspec.json.encode(note)
        check = zlib.crc32(rows)
        self._write(_name(note.number), b"%s\n%d\n" % (head, check) + rows)

    def notes(self) -> list[ForkNote]:
        found = []
        try:
            names = sorted(os.listdir(self._path))
        except FileNotFoundError:
            return []
        for name in names:
            if name.endswith(".fork"):
                try:
                    with open(os.path.join(self._path, name), "rb") as file:
                        found.append(msgspec.json.decode(file.readline(), type=ForkNote))
                except (OSError, msgspec.DecodeError):
                    self._unreadable.add(FORK_BIT | int(name.partition(".")[0]))
        return found

    def unreadable(self) -> set[int]:
        return self._unreadable

    def rows(self, number: int) -> bytes | None:
        try:
            with open(os.path.join(self._path, _name(number)), "rb") as file:
                file.readline()
                check, rows = file.readline(), file.read()
        except OSError:
            return None
        return rows if check.strip() == b"%d" % zlib.crc32(rows) else None

    def lose(self, number: int, lost: list[Lost]) -> None:
        self._write(_name(number, "lost"), msgspec.json.encode(lost))

    def lost(self, number: int) -> list[Lost] | None:
        try:
            with open(os.path.join(self._path, _name(number, "lost")), "rb") as file:
                return msgspec.json.decode(file.read(), type=list[Lost])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError):
            return None

    def drop(self, number: int) -> None:
        os.unlink(os.path.join(self._path, _name(number)))
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._path, _name(number, "lost")))
        self._sync_directory()

    def _write(self, name: str, data: bytes) -> None:
        place = os.path.join(self._path, name)
        with open(f"{place}.part", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{place}.part", place)
        self._sync_directory()

    def _sync_directory(self) -> None:
        directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _name(number: int, what: str = "fork") -> str:
    return f"{number & ~FORK_BIT}.{what}"
