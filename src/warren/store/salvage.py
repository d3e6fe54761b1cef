"""What is given up is put aside, never thrown away.

A piece of a log that could not be understood is a file of the raw bytes, named after where they
stood. Messages that the cluster has gone on without are a file with a line for each. A line in
`salvage.jsonl` beside them says when and why.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

#: More than this of one damage is not copied: the segment itself is still there.
PIECE_BYTES_MAX = 64 * 1024 * 1024
#: Notes that are read; there are a few in the life of a broken disk.
NOTES_BYTES_MAX = 1024 * 1024
NOTES = "salvage.jsonl"


class Salvage(Protocol):
    """Where such pieces go."""

    def keep(self, name: str, offset: int, data: bytes, reason: str) -> None:
        """Put bytes aside; the same piece a second time changes nothing."""
        ...


class SalvageDirectory:
    """Pieces as files."""

    def __init__(self, path: str) -> None:
        self.path = path
        #: Notes are written by the node, and taken away by a thread of its own.
        self._lock = threading.Lock()

    def keep(self, name: str, offset: int, data: bytes, reason: str) -> None:
        """Put bytes aside. What fails here must not stop the start of a broker: it is raised."""
        os.makedirs(self.path, mode=0o750, exist_ok=True)
        piece = f"{name}-{offset}.bin"
        target = os.path.join(self.path, piece)
        if os.path.exists(target):
            return
        with open(target, "wb") as file:
            file.write(data[:PIECE_BYTES_MAX])
            _sync(file)
        note = {"segment": name, "offset": offset, "bytes": len(data), "reason": reason}
        self._note(piece, note)

    def keep_messages(self, name: str, lines: Iterable[bytes], note: Mapping[str, Any]) -> str:
        """Put messages aside, a line each; the name of the file. They are on the disk by then.

        Raises OSError: nobody may let go of them.
        """
        os.makedirs(self.path, mode=0o750, exist_ok=True)
        with self._lock:
            piece, number = f"{name}.messages", 1
            while os.path.exists(os.path.join(self.path, piece)):
                number += 1
                piece = f"{name}-{number}.messages"
            target = os.path.join(self.path, piece)
            size = 0
            with open(f"{target}.part", "wb") as file:
                for line in lines:
                    file.write(line + b"\n")
                    size += len(line) + 1
                _sync(file)
            os.rename(f"{target}.part", target)
        self._note(piece, {**note, "bytes": size})
        return piece

    def _note(self, piece: str, note: Mapping[str, Any]) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"file": piece, **note, "time": when})
        with self._lock, open(os.path.join(self.path, NOTES), "a", encoding="utf-8") as file:
            file.write(line + "\n")
            _sync(file)

    def notes(self) -> list[dict[str, Any]]:
        """What is kept, the oldest first."""
        try:
            with self._lock, open(os.path.join(self.path, NOTES), "rb") as file:
                lines = file.read(NOTES_BYTES_MAX).splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("file"), str):
                found.append(row)
        return found

    def find(self, piece: str) -> dict[str, Any] | None:
        """The note on a piece; only what has one can be read or dropped."""
        return next((row for row in self.notes() if row["file"] == piece), None)

    def read_lines(self, piece: str, first: int, count: int) -> list[bytes]:
        """Some lines of a file of messages, from the first wanted on. Raises OSError."""
        found: list[bytes] = []
        with open(os.path.join(self.path, piece), "rb") as file:
            for number, line in enumerate(file):
                if number >= first + count:
                    break
                if number >= first:
                    found.append(line.rstrip(b"\n"))
        return found

    def drop(self, piece: str) -> None:
        """Throw a piece away for good. Raises OSError."""
        place = os.path.join(self.path, NOTES)
        with self._lock:
            with open(place, "rb") as file:
                lines = file.read().splitlines()
            kept = [line for line in lines if not _is_about(line, piece)]
            with open(f"{place}.part", "wb") as file:
                file.write(b"".join(line + b"\n" for line in kept))
                _sync(file)
            os.rename(f"{place}.part", place)
            os.unlink(os.path.join(self.path, piece))


def _is_about(line: bytes, piece: str) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and row.get("file") == piece


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
