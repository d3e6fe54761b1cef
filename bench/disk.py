"""What the disk holds and does: sizes, bytes written, its plain reading speed, a cold cache."""

import os
import secrets
import time
from pathlib import Path

BLOCK_BYTES = 512
CHUNK_BYTES = 1 << 20
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
#: File systems that live in memory: nothing measured there says anything about a disk.
IN_MEMORY = {"tmpfs", "ramfs"}


def files_below(directory: Path) -> list[Path]:
    """Every file; one that goes away meanwhile may still be named."""
    return [Path(root) / name for root, _, names in os.walk(directory) for name in names]


def allocated_bytes(directory: Path) -> int:
    """What the files take on the disk, room allocated ahead included (as `du` says)."""
    total = 0
    for path in files_below(directory):
        try:
            total += path.stat().st_blocks * BLOCK_BYTES
        except FileNotFoundError:
            continue
    return total


def used_bytes(directory: Path) -> int:
    """What has been written into the files: their length without the zeros at the end."""
    return sum(_used_length(path) for path in files_below(directory))


def _used_length(path: Path) -> int:
    """A file allocated ahead reads as zeros behind what was written."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            while end > 0:
                start = max(0, end - CHUNK_BYTES)
                file.seek(start)
                rest = file.read(end - start).rstrip(b"\0")
                if rest:
                    return start + len(rest)
                end = start
    except FileNotFoundError:
        pass
    return 0


def free_bytes(directory: Path) -> int:
    """What is left on the disk for us."""
    state = os.statvfs(directory)
    return state.f_bavail * state.f_frsize


def mount_of(directory: Path, mounts: str) -> tuple[str, str]:
    """The device and the file system that hold a directory, out of the text of /proc/mounts."""
    best = ("", "unknown", "unknown")
    for line in mounts.splitlines():
        device, point, kind = line.split()[:3]
        inside = directory == Path(point) or Path(point) in directory.parents
        # Of two mounts on one point the later one is seen.
        if inside and len(point) >= len(best[0]):
            best = (point, device, kind)
    return best[1], best[2]


def describe(directory: Path) -> str:
    """The disk in words, with a warning where it is none."""
    mounts = Path("/proc/mounts").read_text(encoding="utf-8")
    device, kind = mount_of(directory.resolve(), mounts)
    warning = " (in memory: the numbers of the store mean nothing)" if kind in IN_MEMORY else ""
    return f"{kind} on {device}{warning}"


def drop_cache(directory: Path) -> bool:
    """Makes the next reads come from the disk; False when only these files could be dropped.

    Everything has to be on the disk already: what is still to be written stays in the cache.
    """
    try:
        DROP_CACHES.write_text("1\n")
    except OSError:
        for path in files_below(directory):
            _drop_file(path)
        return False
    return True


def _drop_file(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class ReadProbe:
    """A file of our own, read from one end to the other: the disk's sequential speed."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        # Not zeros, which some disks keep without writing them.
        chunk = secrets.token_bytes(CHUNK_BYTES)
        with path.open("wb", buffering=0) as file:
            for _ in range(size_bytes // CHUNK_BYTES):
                file.write(chunk)
            os.fdatasync(file.fileno())

    def bytes_per_s(self) -> float:
        """Reads it once, from a cold cache."""
        drop_cache(self.path.parent)
        _drop_file(self.path)
        buffer = bytearray(CHUNK_BYTES)
        total, start = 0, time.monotonic()
        with self.path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
        return total / (time.monotonic() - start)

    def remove(self) -> None:
        """Gives the room back."""
        self.path.unlink(missing_ok=True)
