"""How much memory and processor the processes of a benchmark take, looked at all the time."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, fields
from pathlib import Path

LOOK_S = 0.5
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        # One that ends meanwhile is none.
        with contextlib.suppress(OSError, ValueError):
            told = (entry / "stat").read_text().rpartition(")")[2].split()
            found.setdefault(int(told[1]), []).append(int(entry.name))
    return found


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0


def _cpu_s(pid: int) -> tuple[float, float]:
    """Of a process, and of those of its children that have ended."""
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own, ended = sum(map(int, told[11:13])), sum(map(int, told[13:15]))
        return own / _TICKS, ended / _TICKS
    return 0.0, 0.0


@dataclass
class Spent:
    """Seconds of the processor."""

    jvm: float = 0.0
    python: float = 0.0
    broker: float = 0.0

    def since(self, before: Spent, rows: int) -> str:
        """Of each row, in microseconds."""
        told = []
        for one in fields(self):
            spent_s = getattr(self, one.name) - getattr(before, one.name)
            told.append(f"{one.name} {1e6 * spent_s / rows:.2f}")
        return f"{', '.join(told)} µs of a core a row"


class Memory:
    """The most that was ever resident: of the JVM, and of the Python processes that serve it."""

    def __init__(self, broker_pid: int) -> None:
        self._broker_pid = broker_pid
        self.jvm = self.workers = self.broker = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _spark(self) -> tuple[list[int], list[int]]:
        """The processes of the JVM and those of Python."""
        children = _children()
        jvm: list[int] = []
        workers: list[int] = []
        left = [pid for pid in children.get(os.getpid(), []) if pid != self._broker_pid]
        while left:
            pid = left.pop()
            left += children.get(pid, [])
            with contextlib.suppress(OSError):
                is_java = Path(f"/proc/{pid}/exe").readlink().name == "java"
                (jvm if is_java else workers).append(pid)
        return jvm, workers

    def spent(self) -> Spent:
        jvm, workers = ([_cpu_s(pid) for pid in pids] for pids in self._spark())
        # Whoever has ended was Python: the JVM is one process.
        ended_s = sum(ended for _, ended in jvm)
        return Spent(
            jvm=sum(own for own, _ in jvm),
            python=ended_s + sum(own + ended for own, ended in workers),
            broker=_cpu_s(self._broker_pid)[0],
        )

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            jvm, workers = (sum(map(_resident, pids)) for pids in self._spark())
            self.jvm, self.workers = max(self.jvm, jvm), max(self.workers, workers)
            self.broker = max(self.broker, _resident(self._broker_pid))

    def told(self) -> str:
        """In megabytes, and from here on anew."""
        mb = [round(n / 1e6) for n in (self.jvm, self.workers, self.broker)]
        self.jvm = self.workers = self.broker = 0
        return f"most memory: JVM {mb[0]} MB, its Python workers {mb[1]} MB, broker {mb[2]} MB"

    def stop(self) -> None:
        self._is_over.set()
