"""Nodes that do not belong: another secret, another cluster. They are refused, and do no harm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_clients import Clients, counts, eventually

from warren.node.local_nodes import LocalNode, Starting, start_node, write_configuration
from warren.node.secret import make_secret_file
from warren.testing import Cluster
from warren.testing.ports import reserve_ports


@contextlib.contextmanager
def intruder(
    cluster: Cluster, directory: Path, number: int, founders: list[int], own_secret: bool
) -> Iterator[LocalNode]:
    """A node that calls the cluster's, with another list of nodes or another secret."""
    with contextlib.ExitStack() as ends:
        ports = reserve_ports(4, ends)
        name = f"node{number}@localhost"
        node = LocalNode(number, name, directory / name, *ports)
        others = [cluster._node(n) for n in founders]
        secret = cluster._directory / "cookie"
        if own_secret:
            secret = directory / "cookie"
            make_secret_file(secret)
        configuration = write_configuration([*others, node], node, secret, {})
        sockets = directory / "sockets"
        sockets.mkdir()
        env = {"WARREN_RUNTIME_DIR": str(sockets)}
        one: Starting = start_node(node, configuration, env, cluster._watch_fd)
        try:
            yield node
        finally:
            one.process.kill()
            one.process.wait()


@pytest.mark.parametrize(
    ("own_secret", "said"), [(True, "another secret"), (False, "another cluster")]
)
def test_a_stranger(
    cluster: Cluster, clients: Clients, name: str, tmp_path: Path, own_secret: bool, said: str
) -> None:
    clients.channel(1).queue_declare(name)
    before = len(cluster.log(1))
    with intruder(cluster, tmp_path, 4, [1, 2, 3], own_secret) as node:
        eventually(lambda: said in cluster.log(1)[before:])
        eventually(lambda: said in node.last_lines(200))
        assert "ready in" not in node.last_lines(200)
    ours = [line for line in cluster.log(1)[before:].splitlines() if said in line]
    assert "node4@localhost" in ours[0]
    for n in (1, 2, 3):
        clients.channel(n).queue_declare(f"{name}.{n}")
        assert counts(clients.channel(n), name) == (0, 0)
    assert "node4" not in cluster.ctl(2, "cluster_status")
