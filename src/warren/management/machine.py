"""What the operating system says of this process: memory, files, sockets, disk."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from warren.base.system import used_memory_bytes

if TYPE_CHECKING:
    from warren.engine.engine import Engine


def open_files() -> int:
    """Descriptors this process holds."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def disk_free_bytes(directory: str | None) -> int:
    """Room on the disk that holds the data, or would hold it."""
    try:
        return shutil.disk_usage(directory or Path.cwd()).free
    except OSError:
        return 0


def processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def node_row(engine: Engine) -> tuple[int, ...]:
    """Memory, disk, files, sockets and tasks in use, for the samples."""
    return (
        used_memory_bytes(),
        disk_free_bytes(None),
        open_files(),
        len(engine.connections),
        1,
    )
