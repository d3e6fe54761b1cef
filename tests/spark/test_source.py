"""Queues into Spark: what is read, how it replays, what is trimmed, what is refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from messages import client_of, publish, take_all
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from warren.spark.options import LATEST
from warren.testing import Broker

Batches = dict[int, list[tuple[str, int, bytes]]]


class Archive:
    """A query whose batches are gathered; `fail_in` makes one of them fail, as a crash would."""

    def __init__(self, spark: SparkSession, broker: Broker, base: Path, **options: str) -> None:
        self.spark = spark
        self.base = base
        self.options = {"endpoints": broker.http_url, "cursor": "c", **options}
        self.batches: Batches = {}
        self.attempts: list[int] = []

    def run(self, fail_in: int | None = None) -> Batches:
        def take(rows: DataFrame, number: int) -> None:
            found = [(r["queue"], r["seq"], bytes(r["body"])) for r in rows.collect()]
            self.attempts.append(number)
            before = self.batches.get(number)
            assert before in (None, found), f"batch {number} was replayed otherwise"
            self.batches[number] = found
            if number == fail_in:
                raise RuntimeError("the sink fails")

        query = (
            self.spark.readStream.format("warren")
            .options(**self.options)
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.base / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.batches

    @property
    def rows(self) -> list[tuple[str, int, bytes]]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]


@pytest.fixture
def archive(spark: SparkSession, broker: Broker, lake: Path) -> Callable[..., Archive]:
    return lambda **options: Archive(spark, broker, lake, **options)


def numbers(rows: list[tuple[str, int, bytes]]) -> list[int]:
    return [int(body) for _, _, body in rows]


def test_a_queue_is_drained_batch_by_batch(archive: Callable[..., Archive], broker: Broker) -> None:
    publish(broker, "drained", 0, 1000)
    query = archive(queues="drained", mode="drain", maxOffsetsPerTrigger="300")
    query.run()
    assert [len(rows) for rows in query.batches.values()] == [300, 300, 300, 100]
    assert numbers(query.rows) == list(range(1000))
    # The last batch is acknowledged too, although Spark never says that it was committed.
    assert broker.queue("drained").ready == 0
    publish(broker, "drained", 1000, 1200)
    # Four bytes each.
    query.options["maxBytesPerTrigger"] = "480"
    query.run()
    assert [len(rows) for rows in query.batches.values()][4:] == [120, 80]
    assert numbers(query.rows) == list(range(1200))


def test_following_leaves_the_queue_to_its_consumers(
    archive: Callable[..., Archive], broker: Broker
) -> None:
    publish(broker, "followed", 0, 100)
    query = archive(queues="followed")
    query.run()
    assert take_all(broker, "followed") == list(range(100))
    publish(broker, "followed", 100, 200)
    assert take_all(broker, "followed") == list(range(100, 200))
    query.run()
    assert numbers(query.rows) == list(range(200))


def test_a_batch_that_failed_is_replayed_as_it_was(
    archive: Callable[..., Archive], broker: Broker
) -> None:
    """Also the very first one, whose start Spark does not remember, though more has come since."""
    publish(broker, "replayed", 0, 10)
    query = archive(queues="replayed", startingOffsets=LATEST, maxOffsetsPerTrigger="50")
    # Batch 0 is empty: it begins and ends where the queue ended when the cursor was opened.
    for number in (0, 1, 2):
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            query.run(fail_in=number)
        publish(broker, "replayed", 10 + 60 * number, 70 + 60 * number)
        take_all(broker, "replayed")
    query.run()
    assert query.attempts[:6] == [0, 0, 1, 1, 2, 2]
    assert numbers(query.rows) == list(range(10, 190))


def test_queues_by_pattern_join_a_query(archive: Callable[..., Archive], broker: Broker) -> None:
    publish(broker, "shop.a", 0, 60)
    query = archive(queuePattern=r"shop\..*", maxOffsetsPerTrigger="40", discoverIntervalMs="0")
    query.run()
    publish(broker, "shop.b", 0, 30)
    publish(broker, "shop.a", 60, 70)
    query.run()
    for queue, count in (("shop.a", 70), ("shop.b", 30)):
        found = [row for row in query.rows if row[0] == queue]
        assert numbers(found) == list(range(count))


def test_a_second_query_on_a_cursor_is_refused(
    archive: Callable[..., Archive], broker: Broker, spark: SparkSession, lake: Path
) -> None:
    publish(broker, "fenced", 0, 10)
    archive(queues="fenced").run()
    other = Archive(spark, broker, lake / "other", queues="fenced")
    with pytest.raises(StreamingQueryException, match="another query"):
        other.run()
    assert not other.batches


def test_data_loss_is_told_or_allowed(archive: Callable[..., Archive], broker: Broker) -> None:
    publish(broker, "lossy", 0, 100)
    query = archive(queues="lossy", maxOffsetsPerTrigger="50")
    query.run()
    client = client_of(broker)
    checkpoint = sorted((query.base / "checkpoint" / "offsets").glob("[0-9]*"))[-1]
    point = json.loads(checkpoint.read_text().splitlines()[-1])["lossy"]
    publish(broker, "lossy", 100, 200)
    client.trim("lossy", "c", {"token": point["token"], "upto": 150})
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert numbers(query.rows) == [*range(100), *range(150, 200)]


def test_the_broker_may_restart_under_a_query(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    with Broker(http=True, data_dir=tmp_path / "data") as broker:
        publish(broker, "q", 0, 200)
        query = Archive(spark, broker, lake, queues="q", maxOffsetsPerTrigger="50", retries="60")
        assert query.run()
        publish(broker, "q", 200, 300)
        broker.restart()
        # It comes back on another port; a query that was started with both would find it.
        query.options["endpoints"] += f",{broker.http_url}"
        query.run()
        assert numbers(query.rows) == list(range(300))


def test_a_batch_read_between_positions_and_times(spark: SparkSession, broker: Broker) -> None:
    publish(broker, "table", 0, 50)

    def read(**options: str) -> list[int]:
        rows = (
            spark.read.format("warren")
            .options(endpoints=broker.http_url, queues="table", **options)
            .load()
            .orderBy("seq")
            .collect()
        )
        return [int(row["body"]) for row in rows]

    assert read() == list(range(50))
    between = {"startingOffsets": '{"table": 10}', "endingOffsets": '{"table": {"seq": 20}}'}
    assert read(**between, minPartitions="3") == list(range(10, 20))
    time.sleep(0.3)
    now_ms = str(int(time.time() * 1000))
    time.sleep(0.2)
    publish(broker, "table", 50, 60)
    assert read(startingTimestamp=now_ms) == list(range(50, 60))
    assert read(endingTimestamp=now_ms) == list(range(50))


def test_an_empty_queue_has_no_rows(spark: SparkSession, broker: Broker) -> None:
    publish(broker, "s.empty", 0, 0)
    read = spark.read.format("warren").options(endpoints=broker.http_url, queues="s.empty")
    assert read.load().collect() == []


def test_the_first_example_of_the_page_runs(
    spark: SparkSession, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(broker, "orders", 0, 3)
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    exec(example.replace("http://127.0.0.1:15672", broker.http_url), {})
    assert "|orders|  2|   2|" in capsys.readouterr().out


def test_the_stream_of_the_page_runs(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    publish(broker, "orders", 0, 3)
    publish(broker, "invoices", 0, 2)
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    example = page.split("```python\n")[2].split("```")[0]
    password = tmp_path / "password"
    password.write_text("guest")
    for shown, meant in {
        "http://node-1:15672,http://node-2:15672": broker.http_url,
        '"archiver"': '"guest"',
        "/etc/warren/archiver": str(password),
        "/lake": str(tmp_path / "lake"),
    }.items():
        assert shown in example
        example = example.replace(shown, meant)
    names: dict[str, Any] = {"spark": spark}
    exec(example, names)
    query = names["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "lake" / "orders")).groupBy("queue").count().collect()
    assert {row["queue"]: row["count"] for row in rows}["invoices"] == 2


def test_columns(spark: SparkSession, broker: Broker) -> None:
    publish(broker, "columns", 0, 1)
    table = spark.read.format("warren").options(endpoints=broker.http_url, queues="columns").load()
    row = table.collect()[0].asDict()
    assert (row["queue"], row["seq"], row["routing_key"], row["exchange"]) == (
        "columns", 0, "columns", "",
    )  # fmt: skip
    assert (row["headers"], row["content_type"], row["delivery_mode"], bytes(row["body"])) == (
        {"from": "test"}, "text/plain", 2, b"0",
    )  # fmt: skip
    assert (row["message_id"], row["priority"], row["redelivered_hint"]) == (None, None, False)
    fewer = (
        spark.read.format("warren")
        .options(endpoints=broker.http_url, queues="columns", includeBody="false")
        .option("includeHeaders", "false")
        .load()
    )
    assert set(table.columns) - set(fewer.columns) == {"body", "headers"}
    assert fewer.count() == 1


def refusals() -> Iterator[tuple[dict[str, str], str]]:
    yield {"user": "guest", "password": "wrong"}, "passwordFile"
    yield {"queues": "nowhere"}, "'queues'"
    yield {"queues": ""}, "queuePattern"
    yield {"queueName": "q"}, "no option 'queuename'"
    yield {"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"
    yield {"startingOffsets": "yesterday"}, "startingOffsets"
    yield {"endpoints": "localhost"}, "http://host:15672"
    yield {"endpoints": "http://127.0.0.1:1", "retries": "1"}, "'endpoints'"
    yield {"readFrom": "somewhere"}, "'readFrom' must be one of"
    yield {"vhost": "nowhere"}, "'vhost'"


@pytest.mark.parametrize(("options", "words"), list(refusals()))
def test_bad_input_names_the_option(
    archive: Callable[..., Archive], broker: Broker, options: dict[str, str], words: str
) -> None:
    publish(broker, "bad", 0, 1)
    given: dict[str, Any] = {"queues": "bad", "retries": "2", "retryIntervalMs": "10", **options}
    with pytest.raises(Exception, match=words):
        archive(**given).run()
    assert broker.queue("bad").ready >= 1


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, broker: Broker) -> None:
    publish(broker, "bad", 0, 1)
    read = spark.read.format("warren").options(endpoints=broker.http_url, queues="bad")
    with pytest.raises(Exception, match="'includeHeaders' and 'includeBody'"):
        read.schema("body STRING").load().collect()


class NoBroker(BaseHTTPRequestHandler):
    """Answers as Warren does, but for what it is asked for: that is cut short."""

    upstream = ""

    def do_PUT(self) -> None:
        self.pass_on()

    def do_GET(self) -> None:
        self.pass_on()

    def pass_on(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else None
        asked = Request(self.upstream + self.path, body, method=self.command)
        asked.add_header("Authorization", self.headers["Authorization"])
        with urlopen(asked) as answer:
            data = answer.read()
        if "/range?" in self.path:
            data = data[: len(data) - 40]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


def test_a_corrupt_block_names_where_it_came_from(spark: SparkSession, broker: Broker) -> None:
    """Something between Spark and the broker spoils bodies: no row is made of them."""
    publish(broker, "spoilt", 0, 20)
    NoBroker.upstream = broker.http_url
    with ThreadingHTTPServer(("127.0.0.1", 0), NoBroker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        table = spark.read.format("warren").options(endpoints=url, queues="spoilt").load()
        with pytest.raises(Exception, match="'endpoints'"):
            table.collect()
        server.shutdown()
    assert broker.queue("spoilt").ready == 20
