"""Where a running node can be found by tools on the same machine."""

from __future__ import annotations

import os
import re
from pathlib import Path


def runtime_directory() -> Path:
    """The place for sockets of this user: what the system gives, or one of our own."""
    given = os.environ.get("WARREN_RUNTIME_DIR")
    if given:
        return Path(given)
    of_session = os.environ.get("XDG_RUNTIME_DIR")
    if of_session and Path(of_session).is_dir():
        return Path(of_session) / "warren"
    return Path(f"/tmp/warren-{os.getuid()}")


def is_private(directory: Path) -> bool:
    """Whether nobody else could put a socket of theirs in the place of ours."""
    try:
        found = directory.stat()
    except OSError:
        return False
    return found.st_uid in {os.getuid(), 0} and not found.st_mode & 0o022


def control_socket(node_name: str) -> Path:
    """The socket of a node, by its name."""
    return runtime_directory() / (re.sub(r"[^\w.@-]", "_", node_name) + ".sock")
