"""Tells one process from a later one with the same number, so that no stranger is ever ended.

A number alone says little: when a node is gone, the system gives its number to somebody else. With
the moment at which the process began, and the boot it belongs to, it is one process for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """One process of one boot of this machine."""

    pid: int
    #: In clock ticks since the boot.
    began: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessMark | None:
        """The process that has the number now; None when there is none, or only its remains."""
        fields = _stat(pid)
        return None if fields is None else cls(pid, int(fields[19]), _boot())

    @classmethod
    def read(cls, path: Path) -> ProcessMark | None:
        """What `write` wrote; None for anything else."""
        try:
            pid, began, boot = path.read_text().split()
            return cls(int(pid), int(began), boot)
        except (OSError, ValueError):
            return None

    def write(self, path: Path) -> None:
        path.write_text(f"{self.pid} {self.began} {self.boot}\n")

    @property
    def is_alive(self) -> bool:
        return ProcessMark.of(self.pid) == self

    @property
    def is_paused(self) -> bool:
        """Whether it was stopped as with Ctrl-Z, with all its threads.

        A thread in the middle of a sync stops when that is over, and only then does the system
        count the process as stopped: it wakes no others when their session ends.
        """
        states = _thread_states(self.pid)
        return bool(states) and states <= {"T", "t"} and self.is_alive

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; False when it is gone. Nobody else gets it, whatever happens."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The handle stays with the process it was opened for: looked at now, it is the right
            # one or none.
            if not self.is_alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def wait(self, timeout_s: float) -> bool:
        """Until it is gone; False when it is not by then."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.is_alive:
                return True
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(timeout_s * 1000))
        finally:
            os.close(handle)


def _stat(pid: int) -> list[str] | None:
    """What the system tells of a process, from its state on; None when it is over."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name before it may hold blanks and brackets.
    fields = text.rpartition(")")[2].split()
    return None if not fields or fields[0] in {"Z", "X"} else fields


def _thread_states(pid: int) -> set[str]:
    """What its threads are doing; empty when it is over."""
    states = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            states.add(thread.read_text().rpartition(")")[2].split()[0])
    return states


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"
