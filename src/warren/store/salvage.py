"""What could not be understood is put aside, never thrown away.

Each piece is a file of the raw bytes, named after where they stood, and a line in `salvage.jsonl`
beside it that says when and why.
"""

from __future__ import annotations

import json
import os
import time
from typing import Protocol

#: More than this of one damage is not copied: the segment itself is still there.
PIECE_BYTES_MAX = 64 * 1024 * 1024


class Salvage(Protocol):
    """Where such pieces go."""

    def keep(self, name: str, offset: int, data: bytes, reason: str) -> None:
        """Put bytes aside; the same piece a second time changes nothing."""
        ...


class SalvageDirectory:
    """Pieces as files."""

    def __init__(self, path: str) -> None:
        self.path = path

    def keep(self, name: str, offset: int, data: bytes, reason: str) -> None:
        """Put bytes aside. What fails here must not stop the start of a broker: it is raised."""
        os.makedirs(self.path, mode=0o750, exist_ok=True)
        piece = f"{name}-{offset}.bin"
        target = os.path.join(self.path, piece)
        if os.path.exists(target):
            return
        with open(target, "wb") as file:
            file.write(data[:PIECE_BYTES_MAX])
            file.flush()
            os.fsync(file.fileno())
        note = {
            "file": piece,
            "segment": name,
            "offset": offset,
            "bytes": len(data),
            "reason": reason,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with open(os.path.join(self.path, "salvage.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(note) + "\n")
            file.flush()
            os.fsync(file.fileno())
