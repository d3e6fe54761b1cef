"""The data directory: one process at a time, and only one whose format this Warren knows.

VERSION   the format of the directory, a decimal number and a line feed
LOCK      locked with flock while a process uses the directory; holds its process id
log/      the segments of the write-ahead log
"""

from __future__ import annotations

import errno
import fcntl
import os

DIRECTORY_VERSION = 1
DIRECTORY_MODE = 0o750
FILE_MODE = 0o640
#: A VERSION or LOCK file longer than this is not one of ours.
SMALL_FILE_BYTES_MAX = 64


class DataDirectoryError(Exception):
    """The data directory cannot be used; the message says why and names it."""


class DirectoryInUseError(DataDirectoryError):
    """Another process has it."""


class DirectoryVersionError(DataDirectoryError):
    """Its format is not known; it has not been touched."""


class DataDirectory:
    """An opened data directory, this process's alone until `close`."""

    def __init__(self, path: str) -> None:
        """Create the directory where there is none, and lock it.

        Raises DataDirectoryError when another process has it or its version is not known; nothing
        in it has been changed then.
        """
        self.path = os.path.abspath(path)
        self.log_path = os.path.join(self.path, "log")
        self._lock_fd = -1
        try:
            self._refuse_unknown_version()
            _make_directory(self.path)
            self._lock_fd = self._locked()
            self._refuse_unknown_version()
            if self._version() is None:
                self._write_version()
            _make_directory(self.log_path)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise DataDirectoryError(
                    f"the data directory {self.path} cannot be used: {error.strerror}"
                ) from error
            raise

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the directory."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _version(self) -> str | None:
        try:
            return _read_small(os.path.join(self.path, "VERSION")).strip()
        except FileNotFoundError:
            return None

    def _refuse_unknown_version(self) -> None:
        version = self._version()
        if version is None:
            if os.path.isdir(self.log_path) and os.listdir(self.log_path):
                raise DirectoryVersionError(
                    f"the data directory {self.path} holds a log but no VERSION file; "
                    "it is left as it is"
                )
        elif version != str(DIRECTORY_VERSION):
            raise DirectoryVersionError(
                f"the data directory {self.path} has version {version!r}; this Warren knows "
                f"{DIRECTORY_VERSION}. It is left as it is"
            )

    def _write_version(self) -> None:
        """By way of another name: a VERSION file is there with its contents or not at all."""
        new = os.path.join(self.path, "VERSION.new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            os.write(fd, b"%d\n" % DIRECTORY_VERSION)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(new, os.path.join(self.path, "VERSION"))
        _sync_directory(self.path)

    def _locked(self) -> int:
        path = os.path.join(self.path, "LOCK")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            os.close(fd)
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
            raise DirectoryInUseError(
                f"the data directory {self.path} is in use by {_holder(path)}"
            ) from error
        return fd


def _holder(path: str) -> str:
    try:
        return f"process {int(_read_small(path))}"
    except (OSError, ValueError):
        return "another process"


def _read_small(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(SMALL_FILE_BYTES_MAX).decode("ascii", "replace")


def _make_directory(path: str) -> None:
    """Make a directory and those above it; the mode holds whatever the process's mask is."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    os.makedirs(above, exist_ok=True)
    os.mkdir(path, DIRECTORY_MODE)
    os.chmod(path, DIRECTORY_MODE)
    _sync_directory(path)
    _sync_directory(above)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
