"""Where a node keeps its data, and what to do when it cannot be kept there."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from warren.config.settings import Settings
from warren.node.errors import StartError
from warren.store.directory import (
    DataDirectory,
    DataDirectoryError,
    DirectoryInUseError,
    DirectoryVersionError,
)

#: Where services keep what must outlive a restart; only root may write there.
SYSTEM_BASE = Path("/var/lib/warren")
IN_MEMORY = "in memory"
_ELSEWHERE = "or choose another: --data-dir DIR, WARREN_DATA_DIR, or data_dir in the configuration"


def resolve_data_dir(
    settings: Settings, node_name: str, env: Mapping[str, str] = os.environ
) -> Path:
    """The whole path of the node's data directory, which need not exist yet.

    What was configured, else a directory of the node's name below the configured base, else one
    below the usual base of this user. Raises StartError when there is none.
    """
    if settings.node.data_dir:
        return Path(settings.node.data_dir).absolute()
    if node_name in {"", ".", ".."} or "/" in node_name or "\0" in node_name:
        raise StartError(
            f"the node's name {node_name!r} cannot name a directory.\n"
            f"Choose another name (WARREN_NODENAME), {_ELSEWHERE}."
        )
    base = Path(settings.node.data_base) if settings.node.data_base else _usual_base(env)
    return base.absolute() / node_name


def _usual_base(env: Mapping[str, str]) -> Path:
    if os.geteuid() == 0:
        return SYSTEM_BASE
    # A path there that is not absolute is to be ignored: the XDG base directory specification.
    shared = env.get("XDG_DATA_HOME", "")
    if os.path.isabs(shared):
        return Path(shared, "warren")
    try:
        return Path.home() / ".local" / "share" / "warren"
    except RuntimeError as error:
        raise StartError(
            "there is no place for data: this user has no home directory.\n"
            "Choose one: --data-dir DIR, WARREN_DATA_DIR, or data_dir in the configuration; "
            "warren serve --in-memory keeps none."
        ) from error


def open_data_directory(path: Path) -> DataDirectory:
    """The directory, this process's alone. Raises StartError with what to do next."""
    try:
        return DataDirectory(str(path))
    except DataDirectoryError as error:
        raise StartError(f"{error}.\n{_advice(path, error)}") from error


def shown_data_dir(path: Path | None) -> str:
    """The directory for a person to read."""
    return IN_MEMORY if path is None else str(path)


def _advice(path: Path, error: DataDirectoryError) -> str:
    if isinstance(error, DirectoryInUseError):
        return f"Each node needs a directory of its own. Stop that process, {_ELSEWHERE}."
    if isinstance(error, DirectoryVersionError):
        return f"Start the Warren that wrote it, {_ELSEWHERE}."
    number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
    if number in {errno.EACCES, errno.EPERM}:
        command = "chown -R" if path.exists() else "install -d -m 750 -o"
        shown = f"{command} {os.geteuid()} {shlex.quote(str(path))}"
        return (
            f"As root, give it to this user with: {shown}\n{_ELSEWHERE[0].upper()}{_ELSEWHERE[1:]}."
        )
    if number in {errno.ENOTDIR, errno.EEXIST}:
        return f"There is a file where a directory should be. Move it away, {_ELSEWHERE}."
    if number in {errno.ENOSPC, errno.EDQUOT}:
        return f"Make room on its file system, {_ELSEWHERE}."
    if number == errno.EROFS:
        return f"Mount its file system for writing, {_ELSEWHERE}."
    return f"Check its file system, {_ELSEWHERE}."
