"""Disks and clocks that go bad under a node: a library in its process, and damage while it is down.

disks = BadDisks(directory, 3)
with Cluster(3, node_env=disks.env) as cluster:
    disks.fill(1)
"""

from __future__ import annotations

import errno
import os
import random
import struct
import subprocess
from pathlib import Path

from warren.testing import Cluster

#: What a segment of the log begins with.
SEGMENT_HEADER_BYTES = 32
#: `struct control` of node_shim.c.
_CONTROL = struct.Struct("=6i")
_FIELDS = (
    "sync_error",
    "sync_delay_ms",
    "write_error",
    "write_bytes",
    "is_full",
    "clock_offset_ms",
)


class BadDisks:
    """What the nodes find when they write, sync, or ask for the time: all is well at first."""

    def __init__(self, directory: Path, nodes: int) -> None:
        library, source = directory / "node_shim.so", Path(__file__).with_name("node_shim.c")
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self._files = {node: directory / f"control{node}" for node in range(1, nodes + 1)}
        for node in self._files:
            self.mend(node)
        #: For `Cluster(node_env=...)`.
        self.env = {
            node: {"LD_PRELOAD": str(library), "NODE_SHIM_CONTROL": str(path)}
            for node, path in self._files.items()
        }

    def _set(self, node: int, **fields: int) -> None:
        path = self._files[node]
        # The file is mapped by the node: it is written in place, not anew.
        with path.open("r+b" if path.exists() else "w+b") as file:
            held = file.read()
            values = dict(zip(_FIELDS, _CONTROL.unpack(held) if held else [0] * 6, strict=True))
            values |= fields
            file.seek(0)
            file.write(_CONTROL.pack(*values.values()))

    def mend(self, node: int) -> None:
        """All is well again."""
        self._set(node, **dict.fromkeys(_FIELDS, 0))

    def fill(self, node: int, left_bytes: int = 0) -> None:
        """No room: what is left is taken by a part of a write, and then every one fails."""
        self._set(node, write_error=errno.ENOSPC, write_bytes=left_bytes, is_full=1)

    def report_full(self, node: int) -> None:
        """The file system says that it has no room, though writes still fit in."""
        self._set(node, is_full=1)

    def fail_syncs(self, node: int) -> None:
        """Every fsync and fdatasync ends with EIO."""
        self._set(node, sync_error=errno.EIO)

    def slow_syncs(self, node: int, delay_ms: int) -> None:
        """Every sync takes so much longer."""
        self._set(node, sync_delay_ms=delay_ms)

    def move_clock(self, node: int, offset_ms: int) -> None:
        """The wall clock is so much ahead of the true time, or behind it."""
        self._set(node, clock_offset_ms=offset_ms)


def flip_bit(cluster: Cluster, node: int, dice: random.Random) -> str:
    """Change one bit in the middle of the log of a node that is down; where that was."""
    path, used = _fullest_segment(cluster, node)
    # Not at the very end: what is torn there was never said to be safe.
    place = dice.randrange(SEGMENT_HEADER_BYTES, max(SEGMENT_HEADER_BYTES + 1, used // 2))
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return f"{path.name}:{place}"


def cut_log(cluster: Cluster, node: int, dice: random.Random) -> str:
    """Take the end of the log from a node that is down, synced records and all; where that was."""
    path, used = _fullest_segment(cluster, node)
    place = dice.randrange(max(SEGMENT_HEADER_BYTES, used // 2), used + 1)
    os.truncate(path, place)
    return f"{path.name}:{place} of {used}"


def _fullest_segment(cluster: Cluster, node: int) -> tuple[Path, int]:
    assert node not in cluster.running
    segments = sorted((cluster.data_dir(node) / "log").glob("*.wal"))
    # Zeros at the end are room that was set aside.
    sizes = {path: len(path.read_bytes().rstrip(b"\0")) for path in segments}
    path = max(segments, key=lambda it: sizes[it])
    return path, sizes[path]
