"""What nodes note of mirrors: copies, how far they are, who was master; and the lag made of it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from warren.spark.journal_files import segments
from warren.spark.pipelines.lag_job import run_lag_job
from warren.testing import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from cluster_clients import Clients, publish
from rings import api, await_ring, mirror

QUEUE = "ha.orders"
CONFIG = {"journal.enabled": True, "journal.interval": 1}
WAIT_S = 60


def noted(journals: list[Path], scratch: Path) -> list[dict[str, object]]:
    files = [path for place in journals for path in segments(place, scratch)]
    rows: list[dict[str, object]] = pa.concat_tables(
        [pq.read_table(one) for one in files]
    ).to_pylist()
    return rows


def await_events(journals: list[Path], scratch: Path, wanted: set[str]) -> list[dict[str, object]]:
    end_s = time.monotonic() + WAIT_S
    while True:
        rows = noted(journals, scratch)
        seen = {str(one["event"]) for one in rows}
        if wanted <= seen:
            return rows
        assert time.monotonic() < end_s, seen
        time.sleep(0.3)


def test_copies_positions_and_masters_are_noted(
    spark: SparkSession, tmp_path: Path, capsys: object
) -> None:
    with Cluster(2, config=CONFIG, directory=tmp_path / "nodes") as cluster:
        journals = [cluster.data_dir(n) / "events" for n in (1, 2)]
        first, second = cluster.nodes[:2]
        with Clients(cluster) as clients:
            clients.channel(1).queue_declare(QUEUE, durable=True)
            sender = clients.confirming(1)
            publish(sender, QUEUE, [b"x" * 100] * 200)
            mirror(cluster, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
            await_ring(cluster, QUEUE, master=1, synchronised=[1, 2])
            publish(sender, QUEUE, [b"y" * 100] * 200)
            for _ in range(100):
                noted = await_events(journals, tmp_path, {"copy", "sync", "position"})
                places = [one for one in noted if one["event"] == "position" and one["in_sync"]]
                if any(one["seq"] == one["bytes"] for one in places):
                    break
                time.sleep(0.2)
            wanted = {"action": "transfer_leader", "node": second}
            api(cluster, 1, "POST", f"/queues/%2F/{QUEUE}/actions", wanted)
            await_ring(cluster, QUEUE, master=2)
        rows = await_events(journals, tmp_path, {"depose", "promote"})
    by_event: dict[str, list[dict[str, object]]] = {}
    for one in rows:
        by_event.setdefault(str(one["event"]), []).append(one)
    (copy,) = by_event["copy"]
    (sync,) = by_event["sync"]
    assert (copy["node"], copy["peer"]) == (sync["node"], sync["peer"]) == (first, second)
    assert sync["in_sync"]
    assert int(str(sync["bytes"])) > 200 * 100
    assert [one["node"] for one in by_event["depose"]] == [first]
    assert [one["node"] for one in by_event["promote"]] == [second]
    places = [one for one in by_event["position"] if one["node"] == first]
    assert {one["peer"] for one in places} == {second}
    assert any(one["in_sync"] and one["seq"] == one["bytes"] for one in places)
    assert all(int(str(one["seq"])) <= int(str(one["bytes"])) for one in places)

    given = argparse.Namespace(
        journal=[str(one) for one in journals],
        out=str(tmp_path / "report"),
        archive=None,
        where=None,
        show=20,
        fail_over_ms=WAIT_S * 1000,
    )
    assert run_lag_job(spark, given) == 0
    told = capsys.readouterr().out  # type: ignore[attr-defined]
    assert "within the limit" in told
    page = (tmp_path / "report" / "lag.html").read_text()
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    for table in ("lag_mirror", "repl_lag_10s", "copy", "rates_10s", "hot_queue"):
        assert spark.read.parquet(str(tmp_path / "report" / table)).columns
    (moved,) = spark.read.parquet(str(tmp_path / "report" / "copy")).collect()
    assert moved["done"]
    assert moved["took_ms"] is not None
