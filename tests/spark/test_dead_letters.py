"""Dead letters are grouped by cause, and those of a cause go back, exactly those."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import duckdb
import pika
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual
from source_rows import source_rows

from warren.spark.errors import WarrenError
from warren.spark.pipelines import dead_letters
from warren.spark.pipelines.archive import Lake, write_batch
from warren.spark.pipelines.dead_letters_job import run_dead_letters_job
from warren.spark.pipelines.jobs import BAD, GOOD
from warren.spark.pipelines.main import main, make_parser
from warren.testing import Broker

DIED_S = 1_794_992_596
DIED = datetime.datetime.fromtimestamp(DIED_S, datetime.UTC)


def dead(seq: int, body: bytes, error: str | None = None, reason: str = "rejected") -> dict:  # type: ignore[type-arg]
    deaths = [
        {"count": 2, "reason": reason, "queue": "retry", "time": DIED_S + seq},
        {"count": 1, "reason": reason, "queue": "work", "time": DIED_S},
    ]
    headers = {
        "x-death": json.dumps(deaths),
        "x-first-death-queue": "work",
        "x-first-death-reason": reason,
    }
    if error is not None:
        headers["x-error"] = error
    return {"queue": "dlq", "seq": seq, "headers": headers, "body": body}


ROWS = [
    dead(0, b'{"id": 1}', "order 4711 is unknown (0x7f3a)"),
    dead(1, b'{"id": 22.5}', "order 12 is  unknown (0x11)"),
    dead(2, b'{"id": 1}', "user 8400d9f2-1b7e-4c0e-9d55-0a1b2c3d4e5f is unknown"),
    dead(3, b"\xff\x00"),
    dead(4, b"", reason="expired"),
    dead(5, b"plain"),
    {"queue": "dlq", "seq": 6, "headers": {"x-death": "no json"}, "body": b"plain"},
    {"queue": "dlq", "seq": 7, "headers": None, "body": b"[1]"},
]


def test_messages_of_one_cause_are_one_group(spark: SparkSession) -> None:
    letters = dead_letters.letters(source_rows(spark, ROWS))
    assertSchemaEqual(letters.schema, dead_letters.LETTERS)
    groups = dead_letters.groups(letters)
    assertSchemaEqual(groups.schema, dead_letters.GROUPS)
    number = "OBJECT<id: NUMBER>"
    second = datetime.timedelta(seconds=1)
    expected = [
        ("work", "rejected", "order <n> is unknown (<hex>)", number, 2, 3, DIED, DIED + second, 0,
         '{"id": 1}'),
        ("work", "rejected", "user <uuid> is unknown", number, 1, 3, DIED, DIED + 2 * second, 2,
         '{"id": 1}'),
        ("work", "rejected", "", "binary", 1, 3, DIED, DIED + 3 * second, 3, "0xff00"),
        ("work", "expired", "", "empty", 1, 3, DIED, DIED + 4 * second, 4, ""),
        ("work", "rejected", "", "text", 1, 3, DIED, DIED + 5 * second, 5, "plain"),
        ("", "never died", "", "text", 1, 0, None, None, 6, "plain"),
        ("", "never died", "", "ARRAY<NUMBER>", 1, 0, None, None, 7, "[1]"),
    ]  # fmt: skip
    columns = [one for one in dead_letters.GROUPS.names if one not in {"cause", "queue"}]
    plain = groups.select(*columns)
    assertDataFrameEqual(plain, spark.createDataFrame(expected, plain.schema))
    assert letters.select("cause").distinct().count() == len(expected)


def test_duckdb_comes_to_the_same(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "archive")
    lake.prepare()
    write_batch(source_rows(spark, ROWS), 0, lake)
    out = tmp_path / "out"
    given = ["dead-letters", "--archive", str(lake.path), "--out", str(out)]
    assert run_dead_letters_job(spark, make_parser().parse_args(given)) == GOOD
    over = make_parser().parse_args([*given, "--fail-over", "7"])
    assert run_dead_letters_job(spark, over) == BAD
    mine = duckdb.sql(f"""
        select died_in, reason, sum(messages)::int from '{out}/dead_letter_group/*.parquet'
        group by all order by all""").fetchall()
    theirs = duckdb.sql(f"""
        select coalesce(headers['x-first-death-queue'], '') as died_in,
               coalesce(headers['x-first-death-reason'], 'never died') as reason, count(*)
        from '{lake.data}/**/*.parquet' group by all order by all""").fetchall()
    assert mine == theirs
    with pytest.raises(SystemExit) as wrong:
        main([*given, "--republish", "x"])
    assert wrong.value.code == 2


@pytest.fixture
def letters_of(broker: Broker):  # type: ignore[no-untyped-def]
    """Makes dead letters, every third of another cause."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()

    def make(name: str, count: int) -> pika.adapters.blocking_connection.BlockingChannel:
        channel.queue_declare(f"{name}.dead", durable=True)
        ends = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
        channel.queue_declare(f"{name}.work", durable=True, arguments=ends)
        channel.queue_declare(f"{name}.other", durable=True)
        channel.confirm_delivery()
        for number in range(count):
            error = f"number {number}" if number % 3 else f"boom {number}"
            kept = pika.BasicProperties(delivery_mode=2, headers={"error": error})
            channel.basic_publish("", f"{name}.work", b"%d" % number, kept)
        for _ in range(count):
            method, _, _ = channel.basic_get(f"{name}.work")
            channel.basic_reject(method.delivery_tag, requeue=False)
        return channel

    yield make
    connection.close()


def bodies(channel: object, queue: str) -> list[int]:
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)  # type: ignore[attr-defined]
        if method is None:
            return found
        found.append(int(body))


def test_a_group_goes_back(
    spark: SparkSession, broker: Broker, letters_of: object, tmp_path: Path
) -> None:
    channel = letters_of("dl", 30)  # type: ignore[operator]
    out = tmp_path / "out"

    def run(*more: str) -> int:
        fixed = ["dead-letters", "--endpoints", broker.http_url, "--queues", "dl.dead"]
        return run_dead_letters_job(
            spark, make_parser().parse_args([*fixed, "--out", str(out), *more])
        )

    assert run() == GOOD
    table = f"{out}/dead_letter_group/*.parquet"
    found = duckdb.sql(f"select error, messages, cause from '{table}' order by all").fetchall()
    assert [one[:2] for one in found] == [("boom <n>", 10), ("number <n>", 20)]
    with pytest.raises(WarrenError, match="nothing was republished"):
        run("--republish", f"{found[0][2]},ffff")
    assert run("--republish", found[0][2]) == GOOD
    assert bodies(channel, "dl.work") == list(range(0, 30, 3))
    # One is with a consumer now: it stays, and that is said.
    method, _, _ = channel.basic_get("dl.dead")
    assert run("--republish", found[1][2], "--to", "dl.other") == BAD
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert bodies(channel, "dl.other") == [n for n in range(2, 30) if n % 3]
    assert bodies(channel, "dl.dead") == [1]
    # No cursor is left to keep messages.
    queue = broker.call(lambda node: node.engine.vhosts["/"].queues["dl.dead"])
    assert not queue.cursors.by_name
    assert run() == GOOD


def test_a_queue_that_is_not_there_is_named(spark: SparkSession, broker: Broker) -> None:
    given = ["dead-letters", "--endpoints", broker.http_url, "--queues", "dl.nowhere"]
    with pytest.raises(WarrenError, match=r"dl\.nowhere"):
        run_dead_letters_job(spark, make_parser().parse_args(given))
