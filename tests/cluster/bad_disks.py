"""Disks that go bad under a node: a flipped bit in its log, and one that is full."""

from __future__ import annotations

import random
import resource

from warren.testing import Cluster

#: What a segment of the log begins with.
SEGMENT_HEADER_BYTES = 32


def flip_bit(cluster: Cluster, node: int, dice: random.Random) -> str:
    """Change one bit in the middle of the log of a node that is down; where that was."""
    assert node not in cluster.running
    segments = sorted((cluster.data_dir(node) / "log").glob("*.wal"))
    # Zeros at the end are room that was set aside.
    sizes = {path: len(path.read_bytes().rstrip(b"\0")) for path in segments}
    path = max(segments, key=lambda it: sizes[it])
    # Not at the very end: what is torn there was never said to be safe.
    place = dice.randrange(SEGMENT_HEADER_BYTES, max(SEGMENT_HEADER_BYTES + 1, sizes[path] // 2))
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return f"{path.name}:{place}"


def fill_disk(cluster: Cluster, node: int) -> None:
    """Let a node write nothing more, as if its disk were full."""
    resource.prlimit(cluster.pid(node), resource.RLIMIT_FSIZE, (1, 1))
