"""The simulated disk means the same as the real one: nodes that restart find the same in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import node as node_module
from sim.disk import FaultyDisk
from sim.run import run_seed
from sim.world import World
from warren.cluster import raft_storage
from warren.cluster.raft.effects import Persist
from warren.cluster.raft.types import Stored
from warren.cluster.raft_storage import FileRaftStorage


class MirroredDisk(FaultyDisk):
    """Keeps in files, too, what is synced, and reads them whenever the node restarts."""

    folder: Path
    disks = 0
    reloads = 0

    def __init__(self, world: World, stored: Stored) -> None:
        super().__init__(world, stored)
        type(self).disks += 1
        self.path = self.folder / str(self.disks)
        self.path.mkdir()
        self.storage = FileRaftStorage(str(self.path))
        self.storage.create(stored)

    def arrived(self, persists: list[Persist]) -> None:
        super().arrived(persists)
        self.storage.save(persists)

    def crash(self) -> None:
        super().crash()
        self.storage.close()
        self.storage = FileRaftStorage(str(self.path))
        assert self.storage.load() == self.stored
        type(self).reloads += 1


def test_files_hold_what_the_simulated_disk_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MirroredDisk.folder = tmp_path
    monkeypatch.setattr(node_module, "FaultyDisk", MirroredDisk)
    # The simulator is about what is written; that a sync is called is tested elsewhere.
    monkeypatch.setattr(raft_storage.os, "fsync", lambda _: None)
    monkeypatch.setattr(raft_storage.os, "fdatasync", lambda _: None)
    for seed in range(8):
        run_seed(seed, trouble_ms=4_000)
    assert MirroredDisk.reloads > 30
