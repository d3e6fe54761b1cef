"""Ports that are ours until we give them back, also while nobody listens on them."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from warren.node.local_nodes import LOOPBACK


def reserve_ports(count: int, ends: ExitStack) -> list[int]:
    """Free ports, held until `ends` is closed.

    Each is held by a socket that is bound to it and does not listen: that lets a node listen there,
    since both are marked for reuse, and keeps everybody else away. Without it a client that tries
    again and again to reach a node that is down could get its port as its own, and reach itself.
    """
    ports = []
    for _ in range(count):
        held = socket.socket()
        ends.callback(held.close)
        held.bind((LOOPBACK, 0))
        # Only now: a free port that was chosen for a socket so marked may be another such one's.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ports.append(int(held.getsockname()[1]))
    return ports
