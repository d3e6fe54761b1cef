"""Events on the disk, so that what happened is known after a restart as well.

Lines of JSON in two files, each of which has a most: when the newer one is full it takes the place
of the older. What was told in the last moments before a crash may be missing, and a line that was
cut in the middle is passed over: this is for people who look back, nothing depends on it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

#: Of each of the two files; some thousand events together.
FILE_BYTES_MAX = 256 * 1024


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened; numbers grow by one, and by more with a restart."""

    number: int
    timestamp: int
    name: str
    details: dict[str, Any]

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.number,
            "timestamp": self.timestamp,
            "event": self.name,
            "details": self.details,
        }


_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder(enc_hook=str)


class EventFile:
    """`name.jsonl` and the older `name.1.jsonl` in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._newer = folder / f"{name}.jsonl"
        self._older = folder / f"{name}.1.jsonl"
        #: Lines are written by threads, and at the end by the node.
        self._lock = threading.Lock()

    def read(self) -> list[Event]:
        """What is kept, the oldest first; nothing where nothing can be read."""
        found: list[Event] = []
        for path in (self._older, self._newer):
            try:
                lines = path.read_bytes().splitlines()
            except OSError:
                continue
            for line in lines:
                try:
                    found.append(_decoder.decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
        return sorted(found, key=lambda event: event.number)

    def append(self, events: Sequence[Event]) -> None:
        """Raises OSError."""
        data = b"".join(_encoder.encode(event) + b"\n" for event in events)
        with self._lock:
            with open(self._newer, "ab", opener=_private) as file:
                if file.tell() and not _ends_with_a_line(self._newer):
                    data = b"\n" + data
                file.write(data)
                size = file.tell()
            if size > FILE_BYTES_MAX:
                os.replace(self._newer, self._older)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o640)


def _ends_with_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
