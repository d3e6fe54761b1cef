"""The scrub finds exactly what a replica lacks or has otherwise, and nothing in equal ones."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual
from source_rows import source_rows

from warren.spark.pipelines import scrub
from warren.spark.pipelines.bucket_sums import BUCKET, CONTENT, BucketSums
from warren.spark.pipelines.jobs import BAD, GOOD
from warren.spark.pipelines.main import make_parser
from warren.spark.pipelines.scrub_job import run_scrub_job
from warren.testing import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from cluster_clients import Clients, publish
from rings import await_ring, mirror

NODES = ("a", "b", "c")


def rows_of(spark: SparkSession, copies: dict[str, list[dict[str, Any]]]) -> DataFrame:
    tables = [
        source_rows(spark, rows).selectExpr(f"'{node}' replica", "*")
        for node, rows in copies.items()
    ]
    return tables[0].unionByName(tables[1]).unionByName(tables[2])


def compared(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("q", node, node == "a") for node in NODES], scrub.COMPARED)


def messages(count: int) -> list[dict[str, Any]]:
    return [{"seq": n, "body": b"%d" % n, "headers": {"x": "1", "y": "2"}} for n in range(count)]


def test_what_differs_is_found_exactly(spark: SparkSession, tmp_path: Path) -> None:
    copies = {node: messages(9000) for node in NODES}
    copies["b"][5000] = {**copies["b"][5000], "body": b"rot"}
    del copies["c"][8999]
    copies["a"][1] = {**copies["a"][1], "headers": {"x": "1"}}
    # Positions that the master alone has, and the order of headers, which says nothing.
    copies["a"].append({"seq": 9000, "body": b"more"})
    copies["b"][0] = {**copies["b"][0], "headers": {"y": "2", "x": "1"}}
    rows = rows_of(spark, copies)
    checks = scrub.checksums(sums_of(spark, rows), compared(spark))
    assertSchemaEqual(checks.schema, scrub.CHECKSUMS)
    bad = {(one["bucket"]) for one in checks.where("not agrees").collect()}
    assert bad == {0, 1, 2}
    found = scrub.differences(rows, compared(spark))
    agreed = scrub.settled(checks, found)
    assertSchemaEqual(agreed.schema, scrub.CHECKSUMS)
    assertDataFrameEqual(agreed, checks)
    expected = [
        ("q", 1, "a", scrub.OTHER),
        ("q", 5000, "b", scrub.OTHER),
        ("q", 8999, "c", scrub.MISSING),
        ("q", 9000, "a", scrub.EXTRA),
    ]
    assertDataFrameEqual(found, spark.createDataFrame(expected, scrub.DIFFERENCES))
    rows.write.parquet(str(tmp_path / "rows"))
    theirs = duckdb.sql(f"""
        select bucket from (
            select seq // {BUCKET} as bucket, replica,
                   list((seq, body, cardinality(headers)) order by seq) as held
            from '{tmp_path}/rows/*.parquet' group by all)
        group by bucket having count(distinct held) > 1 order by bucket""").fetchall()
    assert [one for (one,) in theirs] == sorted(bad)


def test_equal_replicas_agree(spark: SparkSession) -> None:
    rows = rows_of(spark, {node: messages(50) for node in NODES})
    checks = scrub.checksums(sums_of(spark, rows), compared(spark)).collect()
    assert [(one["messages"], one["agrees"]) for one in checks] == [(50, True)] * 3
    assert scrub.differences(rows, compared(spark)).collect() == []


def test_the_order_of_headers_is_no_difference(spark: SparkSession) -> None:
    copies = {node: messages(50) for node in NODES}
    copies["b"][7] = {**copies["b"][7], "headers": {"y": "2", "x": "1"}}
    rows = rows_of(spark, copies)
    checks = scrub.checksums(sums_of(spark, rows), compared(spark))
    found = scrub.differences(rows, compared(spark))
    assert found.collect() == []
    assert [row["agrees"] for row in scrub.settled(checks, found).collect()] == [True] * 3


def sum_of(batches: list[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    sums = BucketSums()
    for batch in batches:
        sums.add(batch)
    sums.finish()
    return sums.found


def sums_of(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """As tasks make them, a replica at a time."""
    found = [
        ("q", node, *one)
        for node in NODES
        for one in sum_of(
            rows.where(f"replica = '{node}'").orderBy("seq").toArrow().combine_chunks().to_batches()
        )
    ]
    return spark.createDataFrame(found, scrub.SUMS)


def test_a_sum_depends_on_the_messages_alone(spark: SparkSession) -> None:
    table = source_rows(spark, messages(5000)).coalesce(1).toArrow()
    whole = sum_of(table.combine_chunks().to_batches())
    assert [(bucket, count) for bucket, count, _ in whole] == [(0, 4096), (1, 904)]
    assert sum_of(table.to_batches(max_chunksize=7)) == whole
    assert sum_of(table.to_batches(max_chunksize=4096)) == whole
    # A value goes to its neighbour, an empty text is none, a header goes to another message.
    assert len({checksum for [(_, _, checksum)] in map(sum_of, _alike())}) == len(_alike())


def _alike() -> list[list[pa.RecordBatch]]:
    kind = pa.map_(pa.string(), pa.string())
    fixed = {name: pa.nulls(2, pa.string()) for name in CONTENT}
    fixed["seq"] = pa.array([1, 2])
    plain = {**fixed, "headers": pa.array([[("a", "b")], []], kind)}
    rows = [
        plain,
        {**plain, "headers": pa.array([[], [("a", "b")]], kind)},
        {**plain, "headers": pa.array([[("a", None)], []], kind)},
        {**plain, "headers": pa.array([[("ab", "")], []], kind)},
        {**plain, "seq": pa.array([1, 3])},
        {**plain, "body": pa.array([b"ab", b""])},
        {**plain, "body": pa.array([b"a", b"b"])},
        {**plain, "body": pa.array([b"ab", None])},
        {**plain, "message_id": pa.array(["ab", None])},
        {**plain, "priority": pa.array([0, None], pa.int8())},
        {**plain, "priority": pa.array([None, 0], pa.int8())},
    ]
    return [[pa.RecordBatch.from_pydict(one)] for one in rows]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, directory=tmp_path / "nodes") as nodes:
        mirror(nodes, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        yield nodes


def spoil(directory: Path, old: bytes, new: bytes) -> int:
    """Change what stands in the files of a node; how often it stood there."""
    count = 0
    for path in directory.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        at = data.find(old)
        while at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(new)
            count += 1
            at = data.find(old, at + 1)
    return count


def keep_busy(cluster: Cluster, queue: str, is_over: threading.Event, moved: list[int]) -> None:
    """Messages come and go, from the head and from the middle, until it is over."""
    with Clients(cluster) as clients:
        channel = clients.confirming(2)
        while not is_over.is_set():
            publish(channel, queue, [b"more-%d" % n for n in range(20)])
            tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(21)]
            for tag in tags[::-2]:
                channel.basic_ack(tag)
            for tag in tags[1::2]:
                channel.basic_nack(tag, requeue=tag % 4 > 0)
            moved.append(len(tags))


def test_a_busy_queue_is_compared_as_it_was(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = "ha.busy"
    with Clients(cluster) as clients:
        clients.channel(1).queue_declare(queue, durable=True)
        await_ring(cluster, queue, master=1, synchronised=(1, 2, 3))
        publish(clients.confirming(1), queue, [b"message-%04d" % n for n in range(6_000)])
    is_over, moved = threading.Event(), list[int]()
    busy = threading.Thread(target=keep_busy, args=(cluster, queue, is_over, moved))
    busy.start()
    try:
        urls = ",".join(cluster.management_url(n) for n in (1, 2, 3))
        given = make_parser().parse_args(["scrub", "--endpoints", urls, "--queues", queue])
        for _ in range(2):
            before = sum(moved)
            assert run_scrub_job(spark, given) == GOOD, capsys.readouterr().out
            assert sum(moved) > before
    finally:
        is_over.set()
        busy.join()
    assert "all replicas are equal" in capsys.readouterr().out


def test_a_replica_whose_disk_rots_is_found(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = "ha.scrubbed"

    def run(*more: str) -> int:
        urls = ",".join(cluster.management_url(n) for n in (1, 2, 3))
        given = ["scrub", "--endpoints", urls, "--queues", queue, *more]
        return run_scrub_job(spark, make_parser().parse_args(given))

    with Clients(cluster) as clients:
        channel = clients.channel(1)
        channel.queue_declare(queue, durable=True)
        await_ring(cluster, queue, master=1, synchronised=(1, 2, 3))
        publish(clients.confirming(1), queue, [b"message-%04d-body" % n for n in range(600)])
        # Some are gone, some are with a consumer: all replicas are equal all the same.
        for _ in range(20):
            method, _, _ = channel.basic_get(queue)
        channel.basic_ack(method.delivery_tag)
        assert run() == GOOD
        assert "all replicas are equal" in capsys.readouterr().out
    # What a node has read back from its disk is there only.
    cluster.stop(3)
    cluster.start(3)
    await_ring(cluster, queue, master=1, synchronised=(1, 2, 3))
    assert spoil(cluster.data_dir(3), b"message-0333-body", b"message-0333-rust") > 0
    assert run("--out", str(tmp_path / "out")) == BAD
    found = duckdb.sql(f"select * from '{tmp_path}/out/scrub_difference/*.parquet'").fetchall()
    assert found == [(queue, 333, cluster.nodes[2], scrub.MISSING)]
