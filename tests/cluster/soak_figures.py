"""What a soak measures, minute by minute, and whether it is flat."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from warren.testing import Cluster

MIB = 1 << 20
#: The last third of a run may exceed the first by this factor and this much: what fills up once,
#: as caches and a log that is compacted only now and then, is no growth.
MEMORY_GROWTH, MEMORY_SPARE_MIB = 1.2, 32.0
DISK_GROWTH, DISK_SPARE_MIB = 1.5, 256.0
LATENCY_GROWTH, LATENCY_SPARE_MS = 1.5, 5.0
#: With fewer minutes than this there is no first and last third to compare.
MINUTES_MIN = 6


class Numbers:
    """A growing set of whole numbers from 1 on, small as long as few are missing."""

    def __init__(self) -> None:
        #: All up to this one are in it.
        self.upto = 0
        self._beyond: set[int] = set()

    @property
    def count(self) -> int:
        return self.upto + len(self._beyond)

    def __contains__(self, number: int) -> bool:
        return 0 < number <= self.upto or number in self._beyond

    def add(self, number: int) -> bool:
        """False when it was in it already."""
        if number in self:
            return False
        self._beyond.add(number)
        while self.upto + 1 in self._beyond:
            self.upto += 1
            self._beyond.remove(self.upto)
        return True

    def missing_in(self, other: Numbers) -> list[int]:
        """Those that the other has not."""
        wanted = [*range(other.upto + 1, self.upto + 1), *sorted(self._beyond)]
        return [number for number in wanted if number not in other]


@dataclass(frozen=True)
class Sample:
    """One look at the nodes."""

    at_s: float
    memory_mib: dict[int, float]
    disk_mib: dict[int, float]

    @classmethod
    def of(cls, cluster: Cluster, nodes: list[int]) -> Sample:
        memory, disk = {}, {}
        for node in nodes:
            try:
                memory[node] = _resident_bytes(cluster.pid(node)) / MIB
            except (RuntimeError, OSError):
                continue
            disk[node] = _disk_bytes(cluster.data_dir(node)) / MIB
        return cls(time.monotonic(), memory, disk)


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _disk_bytes(directory: Path) -> int:
    total = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


@dataclass
class Minute:
    """What happened in a minute."""

    latencies_s: list[float] = field(default_factory=list)
    #: The longest time without a confirm.
    silence_s: float = 0.0
    samples: list[Sample] = field(default_factory=list)

    def quantile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 if ordered else 0.0

    def memory_mib(self) -> float:
        """The most that any node took."""
        return max((most for s in self.samples for most in s.memory_mib.values()), default=0.0)

    def disk_mib(self) -> float:
        return max((most for s in self.samples for most in s.disk_mib.values()), default=0.0)


class Figures:
    """All minutes of a run."""

    def __init__(self) -> None:
        self.rate = 0.0
        self.minutes: list[Minute] = []
        self._began_s: float | None = None
        self._last_s = 0.0

    def begin(self) -> None:
        """The load is as it is to be: what came before does not count."""
        self._began_s = self._last_s = time.monotonic()

    def _now(self, at_s: float) -> Minute | None:
        if self._began_s is None:
            return None
        number = int((at_s - self._began_s) // 60)
        while len(self.minutes) <= number:
            self.minutes.append(Minute())
        return self.minutes[number]

    def confirmed(self, latency_s: float) -> None:
        now_s = time.monotonic()
        minute = self._now(now_s)
        if minute is not None:
            minute.latencies_s.append(latency_s)
            minute.silence_s = max(minute.silence_s, now_s - self._last_s)
            self._last_s = now_s

    def add(self, sample: Sample) -> None:
        minute = self._now(sample.at_s)
        if minute is not None:
            minute.samples.append(sample)

    def last(self) -> str:
        """The last minute in a few words."""
        return self._row(len(self.minutes) - 1) if self.minutes else "nothing yet"

    def _row(self, number: int) -> str:
        minute = self.minutes[number]
        return (
            f"| {number + 1} | {len(minute.latencies_s) / 60:.0f} "
            f"| {minute.quantile_ms(0.5):.1f} | {minute.quantile_ms(0.99):.1f} "
            f"| {minute.silence_s:.2f} | {minute.memory_mib():.0f} | {minute.disk_mib():.0f} |"
        )

    def table(self) -> str:
        head = (
            "| minute | confirms a second | p50 ms | p99 ms | longest silence, s "
            "| most memory of a node, MiB | most disk of a node, MiB |"
        )
        rows = [self._row(number) for number in range(len(self.minutes))]
        return "\n".join([head, "|--:|--:|--:|--:|--:|--:|--:|", *rows])

    def verdict(self) -> list[str]:
        """What is not flat. A run that is too short to tell says nothing."""
        whole = self.minutes[:-1] if len(self.minutes) > MINUTES_MIN else []
        if not whole:
            return []
        third = max(1, len(whole) // 3)
        first, last = whole[:third], whole[-third:]
        found = []
        for what, of, growth, spare in (
            ("memory, MiB", Minute.memory_mib, MEMORY_GROWTH, MEMORY_SPARE_MIB),
            ("disk, MiB", Minute.disk_mib, DISK_GROWTH, DISK_SPARE_MIB),
            ("p50, ms", lambda m: m.quantile_ms(0.5), LATENCY_GROWTH, LATENCY_SPARE_MS),
        ):
            before = statistics.median(of(minute) for minute in first)
            after = statistics.median(of(minute) for minute in last)
            if after > before * growth + spare:
                found.append(f"{what} is not flat: {before:.1f} first, {after:.1f} in the end")
        return found


def document(
    figures: Figures, minutes: float, every_s: float, confirmed: int, faults: list[str]
) -> str:
    """The page in docs."""
    outcome = "Nothing was lost, and all is flat." if not faults else "Found:"
    lines = [
        "# Soak",
        "",
        f"Made by `make soak`: {minutes:g} minutes at {figures.rate:.0f} messages of 200 bytes a "
        f"second on three nodes, queues mirrored on all, a node restarted every {every_s:g} s; "
        "producers, consumers and all nodes share one machine. Latencies are from the moment a "
        "message was due to its confirm.",
        "",
        figures.table(),
        "",
        f"{confirmed} messages were confirmed. {outcome}",
        *(f"- {fault}" for fault in faults[:20]),
    ]
    return "\n".join(lines) + "\n"
