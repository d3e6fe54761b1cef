"""Spark in several processes: a cluster of two workers, an executor that is killed, and a driver
that dies with the master of its queue."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivers import Driver
from kills import archived, count_commits
from messages import publish, take_all

# Clients and rings are those of the tests of clusters.
sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from cluster_clients import Clients
from cluster_clients import publish as publish_to
from rings import await_ring, await_that, mirror

from warren.testing import Broker, Cluster

MASTER = "local-cluster[2,1,1024]"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(http=True, data_dir=tmp_path / "data") as running:
        yield running


def test_executors_are_killed_by_themselves(own_broker: Broker, tmp_path: Path) -> None:
    """Two workers, each a process: tasks of one that dies are run by another, the driver goes on.

    Every message is archived once, in order.
    """
    publish(own_broker, "q", 0, 3500)
    driver = Driver(
        "queue_to_parquet", tmp_path, own_broker.http_url, "q", str(tmp_path), "drain", "500",
        master=MASTER,
    )  # fmt: skip
    for commits in (1, 3):
        assert driver.wait_for(lambda least=commits: count_commits(tmp_path) >= least)
        there = driver.processes("CoarseGrainedExecutorBackend")
        assert there, "no executor is a process of its own"
        os.kill(there[0], signal.SIGKILL)
    driver.finish()
    rows = archived(tmp_path)
    assert [number for _, number in rows] == list(range(3500))
    assert own_broker.queue("q").ready == 0


def test_the_sink_of_several_processes(own_broker: Broker, tmp_path: Path) -> None:
    """Parts that were staged by an executor that died count as little as its task does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    publish(own_broker, "q", 0, 0)
    (tmp_path / "rows").mkdir()
    for first in range(0, 2400, 400):
        numbers = range(first, first + 400)
        table = pa.table({"n": list(numbers), "body": [str(n) for n in numbers]})
        pq.write_table(table, tmp_path / "rows" / f"{first:09}.parquet")
    driver = Driver(
        "parquet_to_queue", tmp_path, own_broker.http_url, "q", str(tmp_path), "-", "-",
        master=MASTER,
    )  # fmt: skip
    assert driver.wait_for(lambda: count_commits(tmp_path) >= 2)
    os.kill(driver.processes("CoarseGrainedExecutorBackend")[0], signal.SIGKILL)
    driver.finish()
    assert sorted(take_all(own_broker, "q")) == list(range(2400))


def test_the_driver_and_the_master_die_at_once(tmp_path: Path) -> None:
    """A mirrored queue; both are killed in the middle of a batch, and the driver is started again.

    What was confirmed is archived once, in order.
    """
    with Cluster(3) as cluster, Clients(cluster) as clients:
        mirror(cluster, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        clients.channel(1).queue_declare("ha.q", durable=True)
        await_ring(cluster, "ha.q", master=1, synchronised=(1, 2, 3))
        publish_to(clients.confirming(2), "ha.q", [b"%d" % n for n in range(2400)])
        endpoints = ",".join(cluster.management_url(n) for n in (1, 2, 3))

        def start() -> Driver:
            return Driver(
                "queue_to_parquet", tmp_path, endpoints, "ha.q", str(tmp_path), "drain", "400"
            )

        driver = start()
        assert driver.wait_for(lambda: count_commits(tmp_path) >= 2)
        time.sleep(0.2)
        cluster.kill(1)
        driver.kill()
        await_that(cluster, "ha.q", lambda r: r.master in cluster.nodes[1:], "another master")
        start().finish()
        rows = archived(tmp_path)
    assert [number for _, number in rows] == list(range(2400))
    assert [position for position, _ in rows] == list(range(2400))
