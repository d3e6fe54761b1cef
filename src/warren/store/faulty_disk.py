"""A disk in memory that fails as disks do, by a seed: the same seed, the same faults.

Every file has what the system shows (`data`) and what is on the platter (`durable`); a sync carries
the sectors written since the last one from the first to the second. A power cut leaves any subset
of the sectors that were not yet synced, in any order, the last of them perhaps in part; what was
never written reads as zeros or as old garbage. A sync that fails carries some sectors over, forgets
about the rest, and the next sync succeeds without them: as Linux does it.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SECTOR_BYTES = 512


class PowerCut(BaseException):
    """The machine has lost its power; no handler of ordinary errors is to catch it."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How probable each fault is at each operation that it can strike."""

    write_error: float = 0.0
    short_write: float = 0.0
    sync_error: float = 0.0
    #: The longest an operation takes, in seconds; told to `on_delay`, never slept.
    delay_seconds_max: float = 0.0


@dataclass(slots=True)
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    #: Where the next append goes; behind it there may be room that was set aside.
    position: int = 0


class FaultyDisk:
    """`Files` with faults, and the appending that a log needs."""

    def __init__(
        self,
        seed: int = 0,
        faults: Faults | None = None,
        on_delay: Callable[[float], None] | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.on_delay = on_delay
        #: Operations that change something, so far; `cut_at` is counted in them.
        self.operations = 0
        self.syncs = 0
        #: The operation in the middle of which the power goes; None: never.
        self.cut_at: int | None = None
        self._files: dict[str, _File] = {}
        #: The directory as it is on the platter.
        self._durable_names: dict[str, _File] = {}

    # -- reading ----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All file names, sorted."""
        return sorted(self._files)

    def size(self, name: str) -> int:
        """How many bytes a file has."""
        return len(self._file(name).data)

    def read(self, name: str) -> bytes:
        """The whole file as the system shows it."""
        return bytes(self._file(name).data)

    def read_at(self, name: str, at: int, size: int) -> bytes:
        """Up to `size` bytes of a file from an offset on."""
        return bytes(self._file(name).data[at : at + size])

    # -- changing ---------------------------------------------------------------------------------

    def create(self, name: str) -> None:
        """Create an empty file; durable after `sync_names`."""
        if name in self._files:
            raise OSError(errno.EEXIST, "File exists", name)
        self._begin_operation(lambda: None)
        self._files[name] = _File()

    def reserve(self, name: str, size: int) -> None:
        """Set room aside behind what a file holds; it reads as zeros."""
        file = self._file(name)
        self._begin_operation(lambda: None)
        file.data.extend(bytes(max(0, size - len(file.data))))

    def append(self, name: str, data: bytes) -> int:
        """Write behind what was written last; how many bytes were taken."""
        file = self._file(name)
        self._begin_operation(lambda: self._extend(file, data[: self._below(len(data) + 1)]))
        if self._strikes(self.faults.write_error):
            self._extend(file, data[: self._below(len(data))])
            raise OSError(self.random.choice([errno.EIO, errno.ENOSPC]), "write failed", name)
        if len(data) > 1 and self._strikes(self.faults.short_write):
            data = data[: 1 + self._below(len(data) - 1)]
        self._extend(file, data)
        return len(data)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file; durable after `sync`."""
        file = self._file(name)
        self._begin_operation(lambda: None)
        del file.data[size:]
        file.position = min(file.position, size)
        file.dirty = {sector for sector in file.dirty if sector * SECTOR_BYTES < size}

    def write_back(self, name: str, at: int) -> None:
        """Write what a file holds from an offset on once more, so that the next sync carries it."""
        file = self._file(name)
        self._begin_operation(lambda: None)
        file.dirty.update(range(at // SECTOR_BYTES, -(-len(file.data) // SECTOR_BYTES)))

    def remove(self, name: str) -> None:
        """Remove a file; durable after `sync_names`."""
        self._file(name)
        self._begin_operation(lambda: None)
        del self._files[name]

    def sync(self, name: str) -> None:
        """Make the contents of a file durable."""
        file = self._file(name)
        self._begin_operation(lambda: self._carry(file, self._some(file.dirty)))
        if self._strikes(self.faults.sync_error):
            self._carry(file, self._some(file.dirty))
            file.dirty.clear()
            raise OSError(errno.EIO, "sync failed", name)
        self._carry(file, file.dirty)
        file.dirty = set()
        # A cut is carried over too; a size grown by sectors that a failed sync forgot is kept.
        del file.durable[len(file.data) :]
        file.durable.extend(bytes(len(file.data) - len(file.durable)))
        self.syncs += 1

    def sync_names(self) -> None:
        """Make durable which files there are."""
        self._begin_operation(lambda: None)
        if self._strikes(self.faults.sync_error):
            raise OSError(errno.EIO, "sync failed", "directory")
        self._durable_names = dict(self._files)

    # -- faults from outside ----------------------------------------------------------------------

    def cut_power(self) -> None:
        """Leave what a power cut would: all that was synced, and anything of the rest."""
        names = dict(self._durable_names)
        for name in sorted(self._files.keys() | self._durable_names.keys()):
            here, there = self._files.get(name), self._durable_names.get(name)
            if here is not there and self._strikes(0.5):
                if here is None:
                    del names[name]
                else:
                    names[name] = here
        for name in sorted(names):
            self._lose_unsynced(names[name])
        self._files = names
        self._durable_names = dict(names)
        self.cut_at = None

    def flip_bit(self, name: str, bit: int) -> None:
        """Turn one bit of a file round, on the platter too."""
        file = self._file(name)
        for copy in (file.data, file.durable):
            if bit // 8 < len(copy):
                copy[bit // 8] ^= 1 << (bit % 8)

    def lose_end(self, name: str, size: int) -> None:
        """Cut a file behind the system's back."""
        file = self._file(name)
        del file.data[size:]
        del file.durable[size:]
        file.dirty = {sector for sector in file.dirty if sector * SECTOR_BYTES < size}

    # -- inside -----------------------------------------------------------------------------------

    def _file(self, name: str) -> _File:
        try:
            return self._files[name]
        except KeyError:
            raise OSError(errno.ENOENT, "No such file or directory", name) from None

    def _begin_operation(self, half_done: Callable[[], None]) -> None:
        self.operations += 1
        if self.faults.delay_seconds_max and self.on_delay is not None:
            self.on_delay(self.random.random() * self.faults.delay_seconds_max)
        if self.operations == self.cut_at:
            half_done()
            raise PowerCut

    def _strikes(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def _below(self, limit: int) -> int:
        return self.random.randrange(limit)

    def _extend(self, file: _File, data: bytes) -> None:
        if data:
            first = file.position // SECTOR_BYTES
            file.data[file.position : file.position + len(data)] = data
            file.position += len(data)
            file.dirty.update(range(first, (file.position - 1) // SECTOR_BYTES + 1))

    def _some(self, sectors: set[int]) -> set[int]:
        """All of them, none, the first few, or any."""
        ordered = sorted(sectors)
        manner = self._below(4)
        if manner == 0:
            return set(sectors)
        if manner == 1:
            return set()
        if manner == 2:
            return set(ordered[: self._below(len(ordered) + 1)])
        return {sector for sector in ordered if self.random.random() < 0.5}

    def _carry(self, file: _File, sectors: set[int]) -> None:
        for sector in sorted(sectors):
            at = sector * SECTOR_BYTES
            piece = file.data[at : at + SECTOR_BYTES]
            if len(file.durable) < at:
                file.durable.extend(bytes(at - len(file.durable)))
            file.durable[at : at + len(piece)] = piece

    def _lose_unsynced(self, file: _File) -> None:
        kept = self._some(file.dirty)
        torn = max(kept) if kept and self._strikes(0.3) else None
        self._carry(file, kept - {torn})
        if torn is not None:
            at = torn * SECTOR_BYTES
            piece = file.data[at : at + self._below(SECTOR_BYTES)]
            file.durable.extend(bytes(max(0, at - len(file.durable))))
            file.durable[at : at + len(piece)] = piece
        if len(file.durable) < len(file.data) and self._strikes(0.5):
            # The size was written and the data was not.
            missing = len(file.data) - len(file.durable)
            old = self._strikes(0.3)
            file.durable.extend(self.random.randbytes(missing) if old else bytes(missing))
        file.data = bytearray(file.durable)
        file.dirty = set()
