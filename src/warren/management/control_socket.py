"""The control socket's file: made before there is anybody to answer, so that who comes early waits.

It imports nothing of the server, which is there only when the node serves clients already.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from warren.base.runtime import is_private

#: Clients that may wait for the server.
BACKLOG = 128


def listen_at(path: Path) -> socket.socket:
    """A socket of this user alone. Raises OSError: another node may have it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(path.parent):
        raise OSError(errno.EPERM, "others may write to its directory")
    if _is_alive(path):
        raise OSError(errno.EADDRINUSE, "another node of this name is running")
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
        # Nobody can connect before it listens.
        path.chmod(0o600)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        # Where the queue of a node is full it would wait.
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True
