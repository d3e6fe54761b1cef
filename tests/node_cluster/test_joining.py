"""Nodes that join by command: who is let in, over which links, and where it finds the others."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aio_pika
import pika
import pytest
import trustme
from node_cluster_processes import Processes

from warren.node.secret import make_secret_file
from warren.testing.cluster import CtlFailed

SOON_S = 30.0


def members(nodes: Processes, n: int) -> list[str]:
    shown = json.loads(nodes.ctl(n, "cluster_status", "--formatter=json"))
    running: list[str] = shown["running_nodes"]
    return running


def await_members(nodes: Processes, n: int, names: list[str]) -> None:
    until_s = time.monotonic() + SOON_S
    while members(nodes, n) != names:
        assert time.monotonic() < until_s, f"{nodes.name(n)} sees {members(nodes, n)}"
        time.sleep(0.1)


def join(nodes: Processes, n: int, to: int) -> None:
    nodes.ctl(n, "stop_app")
    nodes.ctl(n, "join_cluster", nodes.name(to))
    nodes.ctl(n, "start_app", "-t", "30")
    nodes.ctl(n, "await_startup", "-t", "30")


def publish(url: str, queue: str, body: bytes) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def take(url: str, queue: str) -> bytes | None:
    """The next message, by aio-pika."""

    async def main() -> bytes | None:
        async with await aio_pika.connect(url) as connection:
            found = await (await connection.channel()).get_queue(queue)
            message = await found.get(no_ack=True, fail=False)
            return None if message is None else message.body

    return asyncio.run(main())


def certificates(folder: Path, ca: trustme.CA, name: str) -> dict[str, object]:
    """The keys of a node's configuration for links with TLS."""
    made = ca.issue_cert("localhost", "127.0.0.1")
    paths = {kind: folder / f"{name}.{kind}" for kind in ("ca", "cert", "key")}
    ca.cert_pem.write_to_path(str(paths["ca"]))
    made.cert_chain_pems[0].write_to_path(str(paths["cert"]))
    made.private_key_pem.write_to_path(str(paths["key"]))
    return {
        "cluster.tls.cacertfile": paths["ca"],
        "cluster.tls.certfile": paths["cert"],
        "cluster.tls.keyfile": paths["key"],
    }


def test_a_node_with_another_secret_does_not_join(tmp_path: Path) -> None:
    with Processes(tmp_path, 2) as nodes:
        nodes.start(1)
        publish(nodes.url(1), "q", b"before")
        other = tmp_path / "another cookie"
        make_secret_file(other)
        nodes.start(2, more={"cluster.secret_file": other})
        nodes.ctl(2, "stop_app")
        with pytest.raises(CtlFailed, match="secrets of the two nodes differ") as failed:
            nodes.ctl(2, "join_cluster", nodes.name(1))
        assert failed.value.status == 69
        assert "Copy the other's file to this node: cluster.secret_file" in failed.value.output
        with pytest.raises(CtlFailed, match="A node's name has a host, as in rabbit@host1"):
            nodes.ctl(2, "join_cluster", "rabbit")
        # The host of this name is this machine, and the port our own: it calls itself.
        with pytest.raises(CtlFailed, match=r"cluster\.nodes\.stranger@localhost = HOST:PORT"):
            nodes.ctl(2, "join_cluster", "stranger@localhost")
        said = (
            f"(calls itself '{nodes.name(2)}'): refused by us: the secrets of the two nodes differ"
        )
        assert said in nodes.log(1)
        # Both are as they were.
        nodes.ctl(2, "start_app", "-t", "30")
        assert members(nodes, 1) == [nodes.name(1)]
        assert members(nodes, 2) == [nodes.name(2)]
        assert take(nodes.url(1), "q") == b"before"


def test_links_with_certificates(tmp_path: Path) -> None:
    """Both ends show one of the same authority; a node without one, or of another, is refused."""
    ca = trustme.CA()
    with Processes(tmp_path, 4) as nodes:
        for n in (1, 2):
            nodes.start(n, more=certificates(tmp_path, ca, f"n{n}"))
        nodes.start(3)
        nodes.start(4, more=certificates(tmp_path, trustme.CA(), "n4"))
        join(nodes, 2, 1)
        publish(nodes.url(1), "of-one", b"1")
        publish(nodes.url(2), "of-two", b"2")
        assert take(nodes.url(2), "of-one") == b"1"
        assert take(nodes.url(1), "of-two") == b"2"
        for stranger in (3, 4):
            nodes.ctl(stranger, "stop_app")
            with pytest.raises(CtlFailed, match="cannot be reached") as failed:
                nodes.ctl(stranger, "join_cluster", nodes.name(1))
            assert failed.value.status == 69
        assert members(nodes, 1) == [nodes.name(1), nodes.name(2)]
        # And again after a restart.
        nodes.stop(2)
        nodes.start(2, more=certificates(tmp_path, ca, "n2"))
        await_members(nodes, 1, [nodes.name(1), nodes.name(2)])
        publish(nodes.url(1), "of-two", b"3")
        assert take(nodes.url(2), "of-two") == b"3"


def test_nodes_tell_each_other_where_the_others_are(tmp_path: Path) -> None:
    """Who joins is told of one node; it finds the others, and finds them again by itself."""
    with Processes(tmp_path, 3) as nodes:
        names = [nodes.name(n) for n in (1, 2, 3)]
        nodes.start(1, knows=())
        nodes.start(2, knows=(1,))
        nodes.start(3, knows=(2,))
        join(nodes, 2, 1)
        join(nodes, 3, 2)
        for n in (1, 2, 3):
            await_members(nodes, n, names)
        publish(nodes.url(3), "of-three", b"3")
        assert take(nodes.url(1), "of-three") == b"3"
        # The one that introduced them is away, and nobody's configuration says anything.
        nodes.kill(2)
        publish(nodes.url(1), "of-one", b"1")
        assert take(nodes.url(3), "of-one") == b"1"
        nodes.stop(3)
        nodes.stop(1)
        for n in (1, 2, 3):
            nodes.start(n, knows=(), wait=False)
        for n in (1, 2, 3):
            nodes.ctl(n, "await_startup", "-t", "30")
            await_members(nodes, n, names)
        publish(nodes.url(2), "of-three", b"again")
        assert take(nodes.url(1), "of-three") == b"again"


def test_a_node_whose_cluster_is_gone_is_reset_by_force(tmp_path: Path) -> None:
    with Processes(tmp_path, 2) as nodes:
        nodes.start(1)
        nodes.start(2)
        join(nodes, 2, 1)
        publish(nodes.url(2), "lost", b"x")
        nodes.kill(1)
        nodes.ctl(2, "stop_app")
        with pytest.raises(CtlFailed) as failed:
            nodes.ctl(2, "reset")
        assert failed.value.status == 69
        nodes.ctl(2, "force_reset")
        nodes.ctl(2, "start_app", "-t", "30")
        nodes.ctl(2, "await_startup", "-t", "30")
        assert members(nodes, 2) == [nodes.name(2)]
        publish(nodes.url(2), "new", b"y")
        assert take(nodes.url(2), "new") == b"y"
        assert "lost" not in nodes.ctl(2, "list_queues")
