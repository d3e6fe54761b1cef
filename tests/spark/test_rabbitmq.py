"""`compat=true` against Debian's rabbitmq-server: a plain queue, and a stream by offset.

The server is started here, with ports, a home and directories of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.brokers import RabbitMQ

pytestmark = pytest.mark.skipif(RabbitMQ.missing() is not None, reason=str(RabbitMQ.missing()))
KEPT = pika.BasicProperties(delivery_mode=2, headers={"k": "v"}, message_id="m")


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    server = RabbitMQ(tmp_path_factory.mktemp("rabbit"))
    try:
        server.start()
        yield f"amqp://guest:guest@127.0.0.1:{server.port}/%2F"
    finally:
        server.stop()


def publish(url: str, queue: str, first: int, end: int, **arguments: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.confirm_delivery()
    for number in range(first, end):
        channel.basic_publish("", queue, b"%d" % number, KEPT)
    connection.close()


def left(url: str, queue: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    count = connection.channel().queue_declare(queue, passive=True).method.message_count
    connection.close()
    return int(count)


class Runs:
    """Runs of one query, on one checkpoint; a batch that is run again must be the same."""

    def __init__(self, spark: SparkSession, lake: Path, **options: str) -> None:
        self.spark, self.lake, self.options = spark, lake, options
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def run(self, fail_in: int | None = None) -> None:
        def take(rows: DataFrame, number: int) -> None:
            found = [(row["seq"], int(row["body"])) for row in rows.orderBy("seq").collect()]
            assert self.batches.get(number, found) == found
            self.batches[number] = found
            if number == fail_in:
                raise RuntimeError("the sink fails")

        query = (
            self.spark.readStream.format("warren")
            .options(compat="true", stagingDir=str(self.lake / "staged"), **self.options)
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.lake / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def numbers(self) -> list[int]:
        return [number for _, rows in sorted(self.batches.items()) for _, number in rows]


def test_a_plain_queue(spark: SparkSession, rabbit: str, lake: Path) -> None:
    """Staged before it is acknowledged: what a failed run had is there again, and nothing more."""
    publish(rabbit, "plain", 0, 120)
    runs = Runs(spark, lake, amqpUrl=rabbit, queues="plain", maxOffsetsPerTrigger="50")
    for number in (0, 1):
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            runs.run(fail_in=number)
    runs.run()
    assert runs.numbers() == list(range(120))
    assert left(rabbit, "plain") == 0
    publish(rabbit, "plain", 120, 150)
    runs.run()
    assert runs.numbers() == list(range(150))


def test_a_stream_by_offset(spark: SparkSession, rabbit: str, lake: Path) -> None:
    """From its first message on, in order, once; a batch that is run again is the same."""
    stream = {"x-queue-type": "stream"}
    publish(rabbit, "streamed", 0, 300, **stream)
    runs = Runs(
        spark, lake, amqpUrl=rabbit, queues="streamed", queueType="stream",
        maxOffsetsPerTrigger="120", minPartitions="2",
    )  # fmt: skip
    end = 300
    for number in (0, 2):
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            runs.run(fail_in=number)
        # More comes between a batch and its second run.
        publish(rabbit, "streamed", end, end + 25, **stream)
        end += 25
    runs.run()
    assert runs.numbers() == list(range(350))
    seqs = [seq for _, rows in sorted(runs.batches.items()) for seq, _ in rows]
    assert seqs == sorted(set(seqs))
    runs.run()
    assert runs.numbers() == list(range(350))


def test_the_end_of_a_stream_is_decided_once(spark: SparkSession, rabbit: str, lake: Path) -> None:
    """A query that begins at the end, and fails in its first batch, does not begin later."""
    stream = {"x-queue-type": "stream"}
    publish(rabbit, "tail", 0, 40, **stream)
    runs = Runs(
        spark, lake, amqpUrl=rabbit, queues="tail", queueType="stream", startingOffsets="latest"
    )
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        # Spark has an empty batch where a query begins.
        runs.run(fail_in=0)
    publish(rabbit, "tail", 40, 60, **stream)
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        runs.run(fail_in=1)
    publish(rabbit, "tail", 60, 70, **stream)
    runs.run()
    assert runs.numbers() == list(range(40, 70))


def test_a_stream_from_a_time_on(spark: SparkSession, rabbit: str, lake: Path) -> None:
    publish(rabbit, "timed", 0, 10, **{"x-queue-type": "stream"})
    given = {"amqpUrl": rabbit, "queues": "timed", "queueType": "stream"}
    runs = Runs(spark, lake / "past", **given, startingTimestamp="1000000000000")
    runs.run()
    assert runs.numbers() == list(range(10))
    # Nothing is as young as that.
    runs = Runs(spark, lake / "future", **given, startingTimestamp="4000000000000")
    runs.run()
    assert runs.numbers() == []


@pytest.mark.parametrize(
    ("queue", "options", "words"),
    [
        ("nowhere", {}, "option 'queues'"),
        ("nowhere", {"queueType": "stream"}, "option 'queues'"),
        ("is-stream", {}, "'queueType' to 'stream'"),
        ("is-plain", {"queueType": "stream"}, "leave the option 'queueType' out"),
        ("is-plain", {"amqpUrl": "amqp://guest:wrong@127.0.0.1:{port}/%2F"}, "'amqpUrl'"),
        ("is-plain", {"queueType": "quorum"}, "'queueType' must be one of"),
    ],
)
def test_what_cannot_be_read_names_the_option(
    spark: SparkSession, rabbit: str, lake: Path, queue: str, options: dict[str, str], words: str
) -> None:
    publish(rabbit, "is-stream", 0, 3, **{"x-queue-type": "stream"})
    publish(rabbit, "is-plain", 0, 3)
    port = rabbit.rpartition(":")[2].partition("/")[0]
    given = {name: value.replace("{port}", port) for name, value in options.items()}
    runs = Runs(spark, lake, **{"amqpUrl": rabbit, "queues": queue, "retries": "2", **given})
    with pytest.raises(Exception, match=words):
        runs.run()
