"""Raft's disk: one file of records that is only appended to, and one of the last snapshot.

    <generation>.snapshot   the state machine's image, if there is one
    <generation>.log        a header, then a record for every save

Every save is one record, synced before the next one is written, and ends with a mark. So a record
at the very end that lacks its end, or a sector in its middle, is a save that never finished and was
never answered: it is cut off. Anything else that is wrong is damage to what was answered, and then
nothing is loaded: a node that forgot a vote or an entry could undo what others have committed. A
new snapshot begins a new generation, whose log becomes valid by being renamed; docs/adr/0007 says
why this is no database.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import zlib
from typing import TYPE_CHECKING, Protocol

import msgspec

from warren.cluster.raft.types import Entry, HardState, Snapshot, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warren.cluster.raft.effects import Persist

#: The records of format 1 had no mark at their end.
FORMAT = 2
FORMATS = frozenset({1, 2})
FILE_MODE = 0o640
_LOG_MAGIC = b"WRNRAFTL"
_SNAPSHOT_MAGIC = b"WRNRAFTS"
#: magic, format, salt, generation, base index and term, bytes and CRC of the snapshot; then a CRC.
_LOG_HEADER = struct.Struct("<8sHIQQQQI")
#: magic, format, bytes of the snapshot, their CRC.
_SNAPSHOT_HEADER = struct.Struct("<8sHQI")
_CRC = struct.Struct("<I")
_RECORD_MAGIC = b"\xf5REC"
#: magic, bytes of the payload, number of the record; then a CRC of these, the payload and the salt.
_RECORD_HEADER = struct.Struct("<4sIQ")
_RECORD_OVERHEAD = _RECORD_HEADER.size + _CRC.size
#: No bit of it, if it is flipped, leaves a zero.
_END_MARK = b"\xf5END"
#: What a disk writes as a whole.
_SECTOR_BYTES = 512
_LOG_NAME = re.compile(r"([0-9a-f]{16})\.log")


class RaftStorageError(Exception):
    """The disk does not do as it is told. What was being saved must be taken for not saved."""


class RaftStorageDamagedError(RaftStorageError):
    """The disk does not hold what was saved. The node must leave the cluster and join anew."""


class RaftStorage(Protocol):
    """Where a Raft keeps what it must not forget."""

    def load(self) -> Stored | None:
        """What was saved; None when nothing ever was."""

    def create(self, stored: Stored) -> None:
        """Begin, on a disk that has nothing."""

    def save(self, persists: Sequence[Persist]) -> None:
        """Have all of these on the disk, synced, when this returns."""

    def close(self) -> None:
        """Let go of the files."""


class _Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one `Persist` adds to the log."""

    hard_state: HardState
    first_index: int
    entries: tuple[Entry, ...]


_parts_decoder = msgspec.msgpack.Decoder(tuple[_Part, ...])
_snapshot_decoder = msgspec.msgpack.Decoder(Snapshot)


class FileRaftStorage:
    """`RaftStorage` in a directory of its own, which must be there and be locked by the owner."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._salt = 0
        self._end_mark = _END_MARK
        self._generation = 0
        self._records = 0
        self._failed = False

    # -- reading

    def load(self) -> Stored | None:
        """What was saved; None when nothing ever was.

        RaftStorageDamagedError when something is missing or altered; the files stay as they are.
        """
        try:
            names = sorted(os.listdir(self.path))
            logs = [name for name in names if _LOG_NAME.fullmatch(name)]
            if not logs:
                return None
            self._generation = int(logs[-1][:16], 16)
            stored = self._load_log()
            # The log may have got its name just before a crash: that must last before others go.
            self._sync_directory()
            self._remove_others(names)
        except OSError as error:
            raise RaftStorageError(f"{self.path} cannot be read: {error.strerror}") from error
        return stored

    def _load_log(self) -> Stored:
        path = self._file("log")
        data = _read(path)
        size = _LOG_HEADER.size
        if len(data) < size + _CRC.size or _CRC.unpack_from(data, size)[0] != zlib.crc32(
            data[:size]
        ):
            raise RaftStorageDamagedError(f"the head of {path} is damaged")
        magic, version, salt, generation, base_index, base_term, length, checksum = (
            _LOG_HEADER.unpack_from(data)
        )
        if (magic, generation) != (_LOG_MAGIC, self._generation) or version not in FORMATS:
            raise RaftStorageDamagedError(f"{path} is no log of format {FORMAT}")
        self._salt = salt
        self._end_mark = _END_MARK if version > 1 else b""
        snapshot = self._load_snapshot(length, checksum) if length else Snapshot()
        hard_state = HardState()
        entries: list[Entry] = []
        parts, end = self._scan(data, size + _CRC.size)
        for part in parts:
            at = part.first_index - base_index - 1
            if not 0 <= at <= len(entries):
                raise RaftStorageDamagedError(f"{path} has a hole before {part.first_index}")
            hard_state = part.hard_state
            entries[at:] = part.entries
        self._open_at(end, len(data))
        return Stored(hard_state, snapshot, base_index, base_term, tuple(entries))

    def _scan(self, data: bytes, at: int) -> tuple[list[_Part], int]:
        """All parts of all records, and where the last record ends."""
        parts: list[_Part] = []
        self._records = 0
        while at < len(data):
            payload = self._record_at(data, at, self._records + 1)
            if payload is None:
                if self._has_record_after(data, at):
                    raise RaftStorageDamagedError(
                        f"{self._file('log')} is damaged at {at}, and there is more after it"
                    )
                if self._end_mark and not self._is_unfinished(data, at):
                    raise RaftStorageDamagedError(
                        f"the last record of {self._file('log')}, at {at}, is damaged"
                    )
                break
            try:
                parts.extend(_parts_decoder.decode(payload))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise RaftStorageDamagedError(
                    f"{self._file('log')} holds something else at {at}: {error}"
                ) from error
            self._records += 1
            at += _RECORD_OVERHEAD + len(payload) + len(self._end_mark)
        if not self._records:
            # The first record was synced before the log got its name.
            raise RaftStorageDamagedError(f"{self._file('log')} has lost its first record")
        return parts, at

    def _record_at(self, data: bytes, at: int, number: int | None) -> bytes | None:
        """The payload of the record that begins here, if one does; `number` None: any."""
        if at + _RECORD_OVERHEAD > len(data):
            return None
        magic, length, found = _RECORD_HEADER.unpack_from(data, at)
        start = at + _RECORD_OVERHEAD
        end = start + length
        if magic != _RECORD_MAGIC or end + len(self._end_mark) > len(data):
            return None
        if data[end : end + len(self._end_mark)] != self._end_mark:
            return None
        if found != number and number is not None:
            return None
        payload = data[start:end]
        head = data[at : at + _RECORD_HEADER.size]
        crc = zlib.crc32(payload, zlib.crc32(head, self._salt))
        (expected,) = _CRC.unpack_from(data, at + _RECORD_HEADER.size)
        return payload if crc == expected else None

    def _has_record_after(self, data: bytes, at: int) -> bool:
        """The salt keeps bytes that a client chose from passing for a record."""
        found = data.find(_RECORD_MAGIC, at + 1)
        while found >= 0:
            if self._record_at(data, found, None) is not None:
                return True
            found = data.find(_RECORD_MAGIC, found + 1)
        return False

    def _is_unfinished(self, data: bytes, at: int) -> bool:
        """Whether the bytes at the end are a record that was not written to its end.

        What is missing of such a one is not there or zero, and what is there is right.
        """
        tail = data[at:]
        written = tail.rstrip(b"\0")
        if written.endswith(_END_MARK):
            # The disk may have written its last sectors before others.
            first = -(-at // _SECTOR_BYTES) * _SECTOR_BYTES
            sectors = range(first, len(data) - _SECTOR_BYTES + 1, _SECTOR_BYTES)
            return any(not any(data[here : here + _SECTOR_BYTES]) for here in sectors)
        head = written[: _RECORD_HEADER.size]
        length = int.from_bytes(tail[4:8].ljust(4, b"\0"), "little")
        expected = _RECORD_HEADER.pack(_RECORD_MAGIC, length, self._records + 1)
        mark = written[_RECORD_OVERHEAD + length :]
        return expected.startswith(head) and _END_MARK.startswith(mark)

    def _load_snapshot(self, length: int, checksum: int) -> Snapshot:
        path = self._file("snapshot")
        try:
            data = _read(path)
        except FileNotFoundError as error:
            raise RaftStorageDamagedError(f"{path} is missing") from error
        size = _SNAPSHOT_HEADER.size
        body = data[size:]
        heads = [
            _SNAPSHOT_HEADER.pack(_SNAPSHOT_MAGIC, version, length, checksum) for version in FORMATS
        ]
        if data[:size] not in heads or len(body) != length or zlib.crc32(body) != checksum:
            raise RaftStorageDamagedError(f"{path} is damaged")
        try:
            return _snapshot_decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RaftStorageDamagedError(f"{path} holds no snapshot: {error}") from error

    # -- writing

    def create(self, stored: Stored) -> None:
        """Begin, on a disk that has nothing."""
        if self._fd >= 0 or self._generation:
            raise ValueError("there is something on this disk already")
        part = _Part(stored.hard_state, stored.base_index + 1, stored.entries)
        with self._or_fail():
            self._begin(stored.snapshot, stored.base_index, stored.base_term, (part,))

    def save(self, persists: Sequence[Persist]) -> None:
        """Have all of these on the disk, synced, when this returns.

        After an error nothing is known of the disk, and a second try could report success for
        what the system has dropped: the storage takes nothing more, the node must stop.
        """
        if self._failed:
            raise RaftStorageError(f"{self.path} has failed before")
        if self._fd < 0:
            raise ValueError("nothing was loaded or created")
        whole = [at for at, persist in enumerate(persists) if persist.snapshot is not None]
        since = whole[-1] if whole else 0
        parts = tuple(
            _Part(persist.hard_state, persist.first_index, persist.entries)
            for persist in persists[since:]
        )
        with self._or_fail():
            snapshot = persists[since].snapshot if persists else None
            if snapshot is not None:
                first = persists[since]
                self._begin(snapshot, first.base_index, first.base_term, parts)
            elif parts:
                _write(self._fd, self._record(parts))
                os.fdatasync(self._fd)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin(
        self, snapshot: Snapshot, base_index: int, base_term: int, parts: tuple[_Part, ...]
    ) -> None:
        """Begin a generation. Until its log has its name, the one before is the valid one."""
        self._generation += 1
        self._end_mark = _END_MARK
        self._salt = int.from_bytes(os.urandom(4), "little")
        self._records = 0
        body = b""
        checksum = 0
        if snapshot != Snapshot():
            body = msgspec.msgpack.encode(snapshot)
            checksum = zlib.crc32(body)
            head = _SNAPSHOT_HEADER.pack(_SNAPSHOT_MAGIC, FORMAT, len(body), checksum)
            _write_file(self._file("snapshot"), head + body)
        head = _LOG_HEADER.pack(
            _LOG_MAGIC,
            FORMAT,
            self._salt,
            self._generation,
            base_index,
            base_term,
            len(body),
            checksum,
        )
        record = self._record(parts)
        _write_file(self._file("new"), head + _CRC.pack(zlib.crc32(head)) + record)
        os.rename(self._file("new"), self._file("log"))
        self._sync_directory()
        self.close()
        self._fd = os.open(self._file("log"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._remove_others(os.listdir(self.path))

    def _record(self, parts: tuple[_Part, ...]) -> bytes:
        payload = msgspec.msgpack.encode(parts)
        self._records += 1
        head = _RECORD_HEADER.pack(_RECORD_MAGIC, len(payload), self._records)
        crc = zlib.crc32(payload, zlib.crc32(head, self._salt))
        return head + _CRC.pack(crc) + payload + self._end_mark

    def _open_at(self, end: int, size: int) -> None:
        """Go on after the last good record; what is behind it was never finished."""
        self._fd = os.open(self._file("log"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if end < size:
            os.ftruncate(self._fd, end)
            os.fsync(self._fd)

    def _remove_others(self, names: list[str]) -> None:
        """Earlier generations, and one that was never finished."""
        mine = {f"{self._generation:016x}.log", f"{self._generation:016x}.snapshot"}
        for name in names:
            if name not in mine and re.fullmatch(r"[0-9a-f]{16}\.(log|snapshot|new)", name):
                os.unlink(os.path.join(self.path, name))

    def _file(self, ending: str) -> str:
        return os.path.join(self.path, f"{self._generation:016x}.{ending}")

    def _sync_directory(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _or_fail(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = True
            raise RaftStorageError(f"{self.path} cannot be written: {error.strerror}") from error


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _write_file(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        _write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
