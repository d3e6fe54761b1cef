"""A bit is flipped in the agreement's own log: the node says what to do, and that helps."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pika
import pytest

from warren.node.local_nodes import LocalNodeError
from warren.testing import Cluster
from warren.testing.cluster import CtlFailed

UNAVAILABLE = 69
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x04
    path.write_bytes(content)


def stop_app(cluster: Cluster, node: int) -> None:
    """As soon as it answers."""
    until_s = time.monotonic() + 30
    while True:
        try:
            cluster.ctl(node, "stop_app")
        except CtlFailed as failed:
            if failed.status != UNAVAILABLE or time.monotonic() > until_s:
                raise
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("where", ["in the middle", "in what was written last"])
def test_a_flipped_bit(where: str) -> None:
    with Cluster(3) as cluster:
        one = pika.BlockingConnection(pika.URLParameters(cluster.url(1)))
        channel = one.channel()
        channel.confirm_delivery()
        cluster.ctl(1, "set_policy", "all", "^mirrored$", '{"ha-mode":"all"}')
        channel.queue_declare("mirrored", durable=True)
        channel.basic_publish("", "mirrored", b"kept", PERSISTENT)
        cluster.kill(3)
        (log,) = (cluster.data_dir(3) / "agreement" / "raft").glob("*.log")
        size = log.stat().st_size
        flip(log, size // 2 if where == "in the middle" else size - 20)
        damaged = log.read_bytes()

        with pytest.raises(LocalNodeError) as failed:
            cluster.start(3)
        said = str(failed.value)
        assert "the log of the agreement: " in said
        assert "is damaged" in said
        assert "warrenctl forget_cluster_node node3@localhost" in said
        assert "Traceback" not in said
        assert log.read_bytes() == damaged, "it is left as it is"
        # The others go on.
        channel.basic_publish("", "mirrored", b"meanwhile", PERSISTENT)

        cluster.ctl(1, "forget_cluster_node", cluster.nodes[2])
        shutil.move(cluster.data_dir(3), cluster.data_dir(3).with_name("moved away"))
        cluster.start(3, wait=False)
        stop_app(cluster, 3)
        cluster.ctl(3, "force_reset")
        cluster.ctl(3, "join_cluster", cluster.nodes[0])
        cluster.ctl(3, "start_app", "-t", "30")
        cluster.wait_until_ready()
        with pika.BlockingConnection(pika.URLParameters(cluster.url(3))) as three:
            got = [three.channel().basic_get("mirrored", auto_ack=True)[2] for _ in range(2)]
        assert got == [b"kept", b"meanwhile"]
        one.close()
