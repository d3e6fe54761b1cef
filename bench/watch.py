"""Follows a broker while a load runs: resident memory and the room its data takes, and the peaks.

The kernel's own peak (VmHWM) sees what falls between two looks; the samples say when it was.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.disk import allocated_bytes
from bench.measure import process_tree, usage

INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Look:
    """One sample."""

    rss_bytes: int
    disk_bytes: int


def status_bytes(text: str, field: str) -> int:
    """A size out of the text of /proc/PID/status; 0 when it is not there."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return 0


def peak_rss_bytes(pid: int) -> int:
    """The most that the process ever had resident; 0 when it is gone."""
    try:
        return status_bytes(Path(f"/proc/{pid}/status").read_text(), "VmHWM")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def written_bytes(pid: int) -> int:
    """What the process and its descendants have sent towards the disk, in whole pages."""
    return sum(map(_written_bytes, process_tree(pid)))


def _written_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    counts = dict(line.split(": ") for line in lines)
    return int(counts["write_bytes"])


class Watch:
    """A context in which a thread of its own looks every tenth of a second."""

    def __init__(self, pid: int, directory: Path) -> None:
        self._look: Callable[[], Look] = lambda: Look(
            usage(pid).rss_bytes, allocated_bytes(directory)
        )
        self.looks: list[Look] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.looks.append(self._look())

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self.looks.append(self._look())

    @property
    def most_rss_bytes(self) -> int:
        """The largest resident memory seen."""
        return max(look.rss_bytes for look in self.looks)

    @property
    def most_disk_bytes(self) -> int:
        """The most room seen."""
        return max(look.disk_bytes for look in self.looks)
