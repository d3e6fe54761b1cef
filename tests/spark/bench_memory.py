"""How much memory the processes of a benchmark take, looked at all the time."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

LOOK_S = 0.5
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        # One that ends meanwhile is none.
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0


class Memory:
    """The most that was ever resident: of the JVM, and of the Python processes that serve it."""

    def __init__(self, broker_pid: int) -> None:
        self._broker_pid = broker_pid
        self.jvm = self.workers = self.broker = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            children = _children()
            jvm = workers = 0
            left = [pid for pid in children.get(os.getpid(), []) if pid != self._broker_pid]
            while left:
                pid = left.pop()
                left += children.get(pid, [])
                with contextlib.suppress(OSError):
                    is_java = Path(f"/proc/{pid}/exe").readlink().name == "java"
                    jvm, workers = (
                        (jvm + _resident(pid), workers)
                        if is_java
                        else (jvm, workers + _resident(pid))
                    )
            self.jvm, self.workers = max(self.jvm, jvm), max(self.workers, workers)
            self.broker = max(self.broker, _resident(self._broker_pid))

    def told(self) -> str:
        """In megabytes, and from here on anew."""
        mb = [round(n / 1e6) for n in (self.jvm, self.workers, self.broker)]
        self.jvm = self.workers = self.broker = 0
        return f"most memory: JVM {mb[0]} MB, its Python workers {mb[1]} MB, broker {mb[2]} MB"

    def stop(self) -> None:
        self._is_over.set()
