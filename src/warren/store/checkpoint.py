"""Checkpoints: all that the log said up to a record, so that a start need not read it again.

A checkpoint is one file, `%016x.checkpoint`, named after the newest record it covers. It is
written and synced before anything it makes superfluous is deleted, so there is always one to start
from. The layout is in docs/internals/wal-format.md.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from warren.store.crc32c import checksum
from warren.store.files import Files, WritableFiles

MAGIC = b"WARRENCP"
FORMAT_VERSION = 3
#: Those that can be read: in version 2 nothing says when messages came.
KNOWN_VERSIONS = frozenset({2, 3})
_HEAD = struct.Struct("<8sII")
_BODY = struct.Struct("<QIIB3xQII")
_SEGMENT = struct.Struct("<IQQQQ")
_QUEUE = struct.Struct("<IQQQ")
_NAME = re.compile(r"[0-9a-f]{16}\.checkpoint")


class CheckpointError(Exception):
    """The file is no sound checkpoint."""


class UnknownCheckpointError(Exception):
    """The checkpoint was written by a version of Warren that this one does not know."""


class KnownSegment(NamedTuple):
    """What a checkpoint knows of a segment."""

    number: int
    first_sequence: int
    size: int
    #: How often something in it is needed, and the body bytes of that.
    kept: int
    live_bytes: int


class KnownQueue(NamedTuple):
    """A queue in a checkpoint."""

    queue_id: int
    epoch: int
    operations: int
    snapshot: bytes


@dataclass
class Checkpoint:
    """See the module's text."""

    sequence: int
    last_segment: int
    salt: int
    #: The node stopped in good order right after it.
    clean: bool
    metadata: bytes
    segments: list[KnownSegment] = field(default_factory=list)
    queues: list[KnownQueue] = field(default_factory=list)

    def encode(self) -> bytes:
        """The file's bytes."""
        parts = [
            _BODY.pack(
                self.sequence,
                self.last_segment,
                self.salt,
                self.clean,
                len(self.metadata),
                len(self.segments),
                len(self.queues),
            ),
            self.metadata,
        ]
        parts += [_SEGMENT.pack(*segment) for segment in self.segments]
        for queue in self.queues:
            parts.append(_QUEUE.pack(*queue[:3], len(queue.snapshot)))
            parts.append(queue.snapshot)
        body = b"".join(parts)
        return _HEAD.pack(MAGIC, FORMAT_VERSION, _checksum(FORMAT_VERSION, body)) + body


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Raises CheckpointError for bytes that are none, UnknownCheckpointError for a newer format."""
    if len(data) < _HEAD.size + _BODY.size:
        raise CheckpointError("it is cut short")
    magic, version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != MAGIC or _checksum(version, body) != crc:
        raise CheckpointError("its checksum does not agree")
    if version not in KNOWN_VERSIONS:
        raise UnknownCheckpointError(
            f"the checkpoint has format version {version}; this Warren knows {FORMAT_VERSION}"
        )
    sequence, last_segment, salt, clean, length, segments, queues = _BODY.unpack_from(body)
    at = _BODY.size
    checkpoint = Checkpoint(sequence, last_segment, salt, bool(clean), body[at : at + length])
    at += length
    try:
        for _ in range(segments):
            checkpoint.segments.append(KnownSegment(*_SEGMENT.unpack_from(body, at)))
            at += _SEGMENT.size
        for _ in range(queues):
            queue_id, epoch, operations, size = _QUEUE.unpack_from(body, at)
            at += _QUEUE.size
            snapshot = body[at : at + size]
            checkpoint.queues.append(KnownQueue(queue_id, epoch, operations, snapshot))
            at += size
    except struct.error as error:
        raise CheckpointError("it is cut short") from error
    return checkpoint


def _checksum(version: int, body: bytes) -> int:
    """Over the version too: a flipped bit must not make a checkpoint one of tomorrow's."""
    return checksum(body, checksum(version.to_bytes(4, "little")))


def checkpoint_name(sequence: int) -> str:
    """The file name of the checkpoint that covers the log up to a record."""
    return f"{sequence:016x}.checkpoint"


def checkpoint_sequence(name: str) -> int:
    """The newest record that a checkpoint of that name covers."""
    return int(name.partition(".")[0], 16)


def list_checkpoints(files: Files) -> list[str]:
    """The names of all checkpoint files, newest first."""
    return [name for name in reversed(files.names()) if _NAME.fullmatch(name)]


def write_checkpoint(files: WritableFiles, sequence: int, data: bytes) -> None:
    """Write a checkpoint and make it durable, name and all. Raises OSError."""
    name = checkpoint_name(sequence)
    if name in files.names():
        files.remove(name)
    files.create(name)
    view = memoryview(data)
    while view:
        view = view[files.append(name, bytes(view[: 1 << 22])) :]
    files.sync(name)
    files.sync_names()
