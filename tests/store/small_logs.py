"""Small logs to try the store with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from warren.store.files import Files
from warren.store.records import encode_record, encode_segment_header, segment_name
from warren.store.scan import Scan, scan
from warren.store.scanner import Record


class Bytes:
    """`Files` made of a dictionary."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)

    def names(self) -> list[str]:
        return sorted(self.files)

    def size(self, name: str) -> int:
        return len(self.files[name])

    def read(self, name: str) -> bytes:
        return self.files[name]

    def truncate(self, name: str, size: int) -> None:
        self.files[name] = self.files[name][:size]

    def remove(self, name: str) -> None:
        del self.files[name]

    def write_back(self, name: str, at: int) -> None:
        assert at <= len(self.files[name])

    def sync(self, name: str) -> None:
        assert name in self.files

    def sync_names(self) -> None:
        pass


def payload(sequence: int) -> bytes:
    return b"body %d " % sequence + bytes([sequence % 251]) * (sequence % 23)


def segment(first: int, count: int, batch: int = 1) -> bytes:
    """A segment of `count` records synced `batch` at a time."""
    records = (
        Record(n, 1, payload(n), queue_id=n % 5, place=(n - first) % batch)
        for n in range(first, first + count)
    )
    return encode_segment_header(first) + b"".join(encode_record(r) for r in records)


def small_log(*counts: int, batch: int = 1) -> dict[str, bytes]:
    files, first = {}, 1
    for count in counts:
        files[segment_name(first)] = segment(first, count, batch)
        first += count
    return files


@dataclass
class Outcome:
    records: list[Record]
    scan: Scan

    @property
    def sequences(self) -> list[int]:
        return [record.sequence for record in self.records]


def read(files: dict[str, bytes] | Files | Path, first_sequence: int | None = None) -> Outcome:
    if isinstance(files, Path):
        found = scan(str(files), first_sequence)
    else:
        source = Bytes(files) if isinstance(files, dict) else files
        found = scan(source, first_sequence)
    return Outcome(list(found), found)


def check_records(records: Iterable[Record]) -> None:
    """The records are true ones, in order, none twice."""
    last = 0
    for record in records:
        assert record.payload == payload(record.sequence)
        assert record.sequence > last
        last = record.sequence


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)
