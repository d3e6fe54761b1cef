"""Nodes that do not belong: another secret, another cluster. They are refused, and do no harm."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cluster_clients import Clients, counts, eventually

from warren.node.local_nodes import (
    LocalNode,
    Starting,
    do_not_await,
    start_node,
    write_configuration,
)
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
        sockets = ends.enter_context(tempfile.TemporaryDirectory(prefix="warren-"))
        env = {"WARREN_RUNTIME_DIR": sockets}
        one: Starting = start_node(node, configuration, env, cluster._watch_fd)
        try:
            do_not_await([one])
            yield node
        finally:
            one.process.kill()
            one.process.wait()


def check_refused(cluster: Cluster, node: LocalNode, said: str) -> None:
    """Both sides say why, and who it is; the stranger serves nobody."""
    line = eventually(lambda: next((x for x in cluster.log(1).splitlines() if said in x), ""))
    assert f"(calls itself '{node.name}'): refused by us: {said}" in line
    answer = f"{cluster.nodes[0]} at 127.0.0.1:{cluster._node(1).link_port}: refuses us: {said}"
    eventually(lambda: answer in node.log.read_text())
    assert "ready in" not in node.log.read_text()


def check_unharmed(clients: Clients, name: str) -> None:
    for n in (1, 2):
        clients.channel(n).queue_declare(f"{name}.{n}")
    assert counts(clients.channel(1), f"{name}.2") == (0, 0)


def test_a_node_of_another_cluster(
    cluster: Cluster, clients: Clients, name: str, tmp_path: Path
) -> None:
    with intruder(cluster, tmp_path, 4, [1, 2, 3], own_secret=False) as node:
        check_refused(cluster, node, "it belongs to another cluster")
        check_unharmed(clients, name)
        assert "node4" not in cluster.ctl(2, "cluster_status")


def test_a_node_with_another_secret(
    cluster: Cluster, clients: Clients, name: str, tmp_path: Path
) -> None:
    """It has the name of one that is down, and nothing else of it."""
    cluster.stop(3)
    with intruder(cluster, tmp_path, 3, [1, 2], own_secret=True) as node:
        check_refused(cluster, node, "the secrets of the two nodes differ")
        check_unharmed(clients, name)
    cluster.start(3)
    cluster.wait_until_ready()
    assert counts(clients.channel(3), f"{name}.1") == (0, 0)
