"""What a node knows of itself between its lives: its incarnation, and the id of its cluster.

agreement/identity   both, as JSON; written anew and synced at every start
agreement/raft/      Raft's log and snapshot
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from warren.cluster.raft_storage import FileRaftStorage, RaftStorage
from warren.node.errors import StartError
from warren.node.raft_disk import MemoryRaftStorage

DIRECTORY_MODE = 0o750
FILE_MODE = 0o640
IDENTITY_BYTES_MAX = 4096


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who the node is. An incarnation is never used twice."""

    incarnation: int
    cluster_id: str = ""


class AgreementFiles:
    """In a node's data directory, or nowhere."""

    def __init__(self, data_dir: Path | None) -> None:
        self._path = data_dir / "agreement" if data_dir is not None else None
        self.identity = Identity(0)

    def begin_life(self) -> int:
        """A new incarnation, on the disk before anybody hears of it. Raises StartError."""
        if self._path is None:
            self.identity = Identity(time.time_ns() // 1_000_000)
            return self.identity.incarnation
        try:
            (self._path / "raft").mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self.identity = self._load()
            self._store(Identity(self.identity.incarnation + 1, self.identity.cluster_id))
        except OSError as error:
            raise StartError(f"{self._path} cannot be used: {error.strerror}") from error
        return self.identity.incarnation

    def keep_cluster_id(self, cluster_id: str) -> None:
        """The node knows its cluster now. Raises OSError."""
        if cluster_id != self.identity.cluster_id:
            self._store(Identity(self.identity.incarnation, cluster_id))

    def leave_cluster(self) -> None:
        """Forget the cluster, but no incarnation: none is ever used twice. Raises OSError."""
        if self._path is not None and (self._path / "identity").exists():
            self._store(Identity(self._load().incarnation))

    def raft_storage(self) -> RaftStorage:
        if self._path is None:
            return MemoryRaftStorage()
        return FileRaftStorage(str(self._path / "raft"))

    def _load(self) -> Identity:
        assert self._path is not None
        path = self._path / "identity"
        try:
            with path.open("rb") as file:
                data = file.read(IDENTITY_BYTES_MAX)
        except FileNotFoundError:
            if any((self._path / "raft").iterdir()):
                raise StartError(
                    f"{path} is missing, but there is a log of the agreement beside it. "
                    "Restore it, or let the node leave the cluster and join anew"
                ) from None
            return Identity(0)
        try:
            return msgspec.json.decode(data, type=Identity)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StartError(f"{path} cannot be read: {error}. It is left as it is") from error

    def _store(self, identity: Identity) -> None:
        """By way of another name: the file is there with its contents or not at all."""
        if self._path is not None:
            new = self._path / "identity.new"
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            try:
                os.write(fd, msgspec.json.encode(identity))
                os.fsync(fd)
            finally:
                os.close(fd)
            new.rename(self._path / "identity")
            fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        self.identity = identity
