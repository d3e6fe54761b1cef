"""A master that is killed under load, and what the journals of all nodes say of it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from warren.node.showcase.load import Consumer, Ledger, Publisher
from warren.spark.journal_files import segments
from warren.spark.pipelines.audit import audit
from warren.spark.pipelines.events import read_events
from warren.testing import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from rings import api, await_ring, mirror

QUEUE = "ha.orders"
CONFIG = {"journal.enabled": True, "journal.interval": 1}
WAIT_S = 60


async def until(is_so: object, what: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < end_s, what
        await asyncio.sleep(0.05)


async def work(cluster: Cluster, ledger: Ledger) -> None:
    """Load on the second and third node; the first, which has the master, is killed."""
    urls = [f"{cluster.url(n)}" for n in (2, 3)]
    publisher = Publisher(urls, "shop", 500, ledger)
    tasks = [
        asyncio.ensure_future(publisher.run()),
        asyncio.ensure_future(Consumer(urls, QUEUE, ledger).run()),
    ]
    try:
        await until(lambda: ledger.received > 500, "no load before the kill")
        cluster.kill(1)
        before = ledger.confirmed
        await until(lambda: ledger.confirmed > before + 500, "no confirms after the kill")
        publisher.stop.set()
        await until(tasks[0].done, "not everything is confirmed")
        await until(lambda: not ledger.missing, "not everything that was confirmed came")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def await_snapshot(journals: list[Path], scratch: Path) -> None:
    """Until the nodes have noted what the queue holds after the last confirm."""
    end_s = time.monotonic() + WAIT_S
    while True:
        confirmed = noted = 0
        for place in journals:
            for path in segments(place, scratch):
                for one in pq.read_table(path).to_pylist():
                    if one["event"] == "confirm":
                        confirmed = max(confirmed, one["seq"] + one["count"])
                    elif one["event"] == "snapshot":
                        noted = max(noted, one["seq"])
        if noted >= confirmed > 0:
            return
        assert time.monotonic() < end_s, f"confirmed up to {confirmed}, noted up to {noted}"
        time.sleep(0.5)


def test_nothing_confirmed_is_lost_with_a_master(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger()
    with Cluster(3, config=CONFIG, directory=tmp_path / "nodes") as cluster:
        mirror(cluster, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        api(cluster, 1, "PUT", "/exchanges/%2F/shop", {"type": "topic", "durable": True})
        api(cluster, 1, "PUT", f"/queues/%2F/{QUEUE}", {"durable": True})
        api(cluster, 1, "POST", f"/bindings/%2F/e/shop/q/{QUEUE}", {"routing_key": "#"})
        await_ring(cluster, QUEUE, master=1, synchronised=[1, 2, 3])
        asyncio.run(work(cluster, ledger))
        journals = [cluster.data_dir(n) / "events" for n in (1, 2, 3)]
        await_snapshot(journals, tmp_path)
        with read_events(spark, journals) as events:
            nodes = {row["node"] for row in events.where("event = 'publish'").collect()}
            result = audit(events)
            (queue,) = result.queues.collect()
    assert len(nodes) == 2
    assert queue["lost"] == queue["unflagged"] == ledger.unflagged == 0
    assert queue["unjudged"] == 0
    # What clients were told of is confirmed in the journals too.
    assert queue["confirmed"] >= ledger.confirmed
