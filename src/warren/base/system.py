"""The real clock and the real dice, and how much memory this process has."""

from __future__ import annotations

import os
import secrets
import time
from ctypes import CDLL
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class SystemClock:
    """The machine's time."""

    def now_ms(self) -> int:
        """Milliseconds that only ever grow."""
        return time.monotonic_ns() // 1_000_000

    def wall_s(self) -> int:
        """Seconds since 1970."""
        return int(time.time())


class SystemDice:
    """The operating system's randomness."""

    def token(self) -> str:
        """A short text that cannot be guessed."""
        return secrets.token_urlsafe(16)


def total_memory_bytes() -> int:
    """What the machine has, or what the control group allows if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = Path("/sys/fs/cgroup", name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def release_memory() -> None:
    """Give freed memory back to the system, where the C library can: else it counts as used."""
    trim = getattr(CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def used_memory_bytes() -> int:
    """The resident size of this process."""
    try:
        # By hand, for it is looked at several times a second in the loop that serves clients: a
        # file object, with its buffer and its decoder, takes that loop ten times as long.
        fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 128).split()[1]) * PAGE_BYTES
        finally:
            os.close(fd)
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
