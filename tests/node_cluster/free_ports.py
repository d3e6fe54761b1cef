"""Ports for a try-out, whose nodes have theirs one after the other."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

from warren.node.try_out import node_ports

#: Even the highest of the ports that follow from these is below those that clients get.
LOWEST, HIGHEST = 1100, 12_000


def free_first_port(count: int) -> int:
    """A first port all of whose nodes' ports are free."""
    for _ in range(100):
        first = random.randint(LOWEST, HIGHEST)
        with ExitStack() as probes:
            try:
                for number in range(1, count + 1):
                    for port in node_ports(number, first).values():
                        probe = probes.enter_context(socket.socket())
                        probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no ports are free")
