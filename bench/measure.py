"""What a broker process costs: CPU time and resident memory, its children included.

Read from the kernel, so the brokers need no cooperation and pay nothing for being watched. CPU time
comes from each process's CPU clock: /proc counts in hundredths of a second, too coarse for a fast
broker's short work.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: A broker that uses less than this share of a core between two looks has come to rest.
REST_CPU_SHARE = 0.03
REST_INTERVAL_S = 0.3
#: RabbitMQ pages a deleted backlog out for a while; longer than this is not waited for.
REST_TIMEOUT_S = 20.0

# Fields of /proc/PID/stat counted from the state, which follows the name in parentheses.
_PARENT, _RSS = 1, 21


@dataclass(frozen=True, slots=True)
class Usage:
    """One look at a process tree."""

    cpu_s: float
    rss_bytes: int


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold spaces and parentheses; the fields start after its last one.
    return text.rpartition(")")[2].split()


def process_tree(root: int) -> dict[int, list[str]]:
    """The stat fields of `root` and of every process below it, by process id."""
    fields_of = {
        int(entry.name): fields
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))) is not None
    }
    children: dict[int, list[int]] = {}
    for pid, fields in fields_of.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    tree, waiting = {}, [root]
    while waiting:
        pid = waiting.pop()
        if pid in fields_of:
            tree[pid] = fields_of[pid]
        waiting.extend(children.get(pid, ()))
    return tree


def _cpu_s(pid: int) -> float:
    """All CPU time of a process, ended threads included; 0 when it is gone."""
    # The number of the clock as clock_getcpuclockid(3) computes it.
    clock = (~pid << 3) | 2
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0


def usage(pid: int) -> Usage:
    """CPU seconds and resident bytes of the process and its descendants."""
    tree = process_tree(pid)
    pages = sum(int(fields[_RSS]) for fields in tree.values())
    return Usage(sum(map(_cpu_s, tree)), pages * PAGE_BYTES)


def usage_of(pids: Iterable[int]) -> Usage:
    """The sum over several of them."""
    seen = [usage(pid) for pid in pids]
    return Usage(sum(one.cpu_s for one in seen), sum(one.rss_bytes for one in seen))


def await_rest(pids: Iterable[int]) -> None:
    """Waits until none of the brokers works, so that no one's tail falls into another's turn."""
    watched = list(pids)
    deadline = time.monotonic() + REST_TIMEOUT_S
    while time.monotonic() < deadline:
        before = [usage(pid).cpu_s for pid in watched]
        time.sleep(REST_INTERVAL_S)
        used = [usage(pid).cpu_s - cpu for pid, cpu in zip(watched, before, strict=True)]
        if all(cpu <= REST_CPU_SHARE * REST_INTERVAL_S for cpu in used):
            return
