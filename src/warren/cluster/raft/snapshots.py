"""Gathering a snapshot that comes in chunks. The sender's numbers are checked, never trusted."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from warren.cluster.raft.types import ProtocolError, Snapshot

if TYPE_CHECKING:
    from warren.cluster.raft.messages import InstallSnapshot


class SnapshotReceiver:
    """At most one snapshot under way; a chunk of another one begins that one."""

    def __init__(self) -> None:
        self._head: tuple[object, ...] = ()
        self._data = bytearray()

    @property
    def received_bytes(self) -> int:
        return len(self._data)

    def clear(self) -> None:
        self._head = ()
        self._data = bytearray()

    def take(self, chunk: InstallSnapshot) -> Snapshot | None:
        """Add a chunk; the snapshot if it was the last one.

        A chunk that does not follow on is left out: the reply says which one is wanted.
        """
        if chunk.offset + len(chunk.data) > chunk.total_bytes:
            raise ProtocolError("a chunk reaches beyond its snapshot")
        if not chunk.data and chunk.total_bytes:
            raise ProtocolError("an empty chunk of a snapshot")
        if self._key(chunk) != self._head:
            self.clear()
            self._head = self._key(chunk)
        if chunk.offset != len(self._data):
            return None
        self._data += chunk.data
        if len(self._data) < chunk.total_bytes:
            return None
        data = bytes(self._data)
        self.clear()
        if zlib.crc32(data) != chunk.checksum:
            raise ProtocolError("a snapshot was damaged on its way")
        return Snapshot(chunk.index, chunk.index_term, chunk.membership, data)

    def _key(self, chunk: InstallSnapshot) -> tuple[object, ...]:
        """What all chunks of one snapshot share, whoever sends them."""
        return (chunk.index, chunk.index_term, chunk.total_bytes, chunk.checksum, chunk.membership)
