"""A mirrored queue into Parquet while its master is killed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

# Clients and rings are those of the tests of clusters.
sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from cluster_clients import Clients, drain, publish
from rings import await_ring, await_that, mirror

from warren.testing import Cluster

#: All of it, on a machine that has other things to do.
PATIENCE_S = 180.0
MESSAGES = 3000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as nodes:
        mirror(nodes, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        yield nodes


def await_rows(query: StreamingQuery, count: int) -> None:
    """Until the query has committed so many rows."""
    until_s = time.monotonic() + PATIENCE_S
    while sum(progress.numInputRows for progress in query.recentProgress) < count:
        error = query.exception()
        assert error is None, error
        assert time.monotonic() < until_s, query.recentProgress[-1:]
        time.sleep(0.1)


@pytest.mark.parametrize("mode", ["follow", "drain"])
def test_the_master_is_killed_under_a_query(
    spark: SparkSession, cluster: Cluster, lake: Path, mode: str
) -> None:
    """Every confirmed message is in the lake once, and in order."""
    queue = f"ha.{mode}"
    with Clients(cluster) as clients:
        clients.channel(1).queue_declare(queue, durable=True)
        await_ring(cluster, queue, master=1, synchronised=(1, 2, 3))
        sender = clients.confirming(2)
        publish(sender, queue, [b"%d" % n for n in range(500)])
        bodies = [b"%d" % n for n in range(500, MESSAGES)]
        # A node that lives on confirms each of them, if only when there is a master again.
        sending = threading.Thread(target=publish, args=(sender, queue, bodies))
        query = (
            spark.readStream.format("warren")
            .option("endpoints", ",".join(cluster.management_url(n) for n in (1, 2, 3)))
            .options(queues=queue, cursor="archive", mode=mode, maxOffsetsPerTrigger="400")
            .load()
            .writeStream.format("parquet")
            .option("path", str(lake / "rows"))
            .option("checkpointLocation", str(lake / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            await_rows(query, 300)
            sending.start()
            await_rows(query, 600)
            cluster.kill(1)
            await_that(cluster, queue, lambda r: r.master in cluster.nodes[1:], "another master")
            sending.join(PATIENCE_S)
            assert not sending.is_alive()
            await_rows(query, MESSAGES)
        finally:
            query.stop()
    rows = spark.read.parquet(str(lake / "rows")).orderBy("seq").select("seq", "body").collect()
    assert [int(row["body"]) for row in rows] == list(range(MESSAGES))
    assert [row["seq"] for row in rows] == list(range(MESSAGES))


def test_the_master_is_killed_under_a_sink(
    spark: SparkSession, cluster: Cluster, lake: Path
) -> None:
    """Every row is published once, into a mirrored queue, whose master dies between two batches or
    in one; the query goes on."""
    queue, files, rows = "ha.sunk", 12, 400
    for first in range(0, files * rows, rows):
        table = spark.range(first, first + rows, numPartitions=1)
        table.selectExpr("cast(id AS STRING) body").write.mode("append").parquet(str(lake / "rows"))
    with Clients(cluster) as clients:
        clients.channel(1).queue_declare(queue, durable=True)
        await_ring(cluster, queue, master=1, synchronised=(1, 2, 3))
        query = (
            spark.readStream.schema("body STRING")
            .option("maxFilesPerTrigger", "1")
            .parquet(str(lake / "rows"))
            .writeStream.format("warren")
            .option("endpoints", ",".join(cluster.management_url(n) for n in (1, 2, 3)))
            .options(exchange="", routingKey=queue)
            .option("checkpointLocation", str(lake / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        await_rows(query, 2 * rows)
        cluster.kill(1)
        assert query.awaitTermination(int(PATIENCE_S))
        channel = clients.channel(2)
        assert sorted(map(int, drain(channel, queue))) == list(range(files * rows))
