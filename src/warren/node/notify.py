"""Tells systemd how the node is doing, if it asks (`Type=notify`)."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """`READY=1` or `STOPPING=1`; nothing happens where nobody asks."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path or path[0] not in "/@":
        return
    # The name of a socket that is in no directory begins with a zero byte.
    address = f"\0{path[1:]}" if path[0] == "@" else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.connect(address)
        told.sendall(state.encode())
