"""The audit of a firehose: from made-up traces, and from a broker's own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import duckdb
import pika
import pytest
from journal_rows import BEGAN
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from warren.spark.errors import WarrenError
from warren.spark.options import read_options
from warren.spark.pipelines import firehose
from warren.spark.pipelines.audit_job import run_audit_job
from warren.spark.pipelines.firehose_job import firehose_verdict
from warren.spark.pipelines.main import make_parser
from warren.spark.schema import source_schema
from warren.testing import Broker

TRACE = "amq.rabbitmq.trace"


def trace(key: str, body: bytes, message_id: str | None = None, **headers: object) -> tuple:  # type: ignore[type-arg]
    properties = {} if message_id is None else {"message_id": message_id}
    told = {"node": "a", "vhost": "/", "user": "guest", "properties": json.dumps(properties)}
    told |= {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in headers.items()
    }
    row = dict.fromkeys(source_schema(read_options({})).fieldNames())
    row |= {
        "queue": "traces",
        "routing_key": key,
        "body": body,
        "enqueued_at": BEGAN,
        "headers": told,
    }
    return tuple(row.values())


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    both = {"routed_queues": ["orders", "mail"]}
    given = [
        trace("publish.shop", b"1", "one", **both),
        trace("deliver.orders", b"1", "one", redelivered="0"),
        trace("deliver.mail", b"1", "one", redelivered="0"),
        # Redelivered, with a flag and without one.
        trace("publish.shop", b"2", "two", routed_queues=["orders"]),
        trace("deliver.orders", b"2", "two", redelivered="0"),
        trace("deliver.orders", b"2", "two", redelivered="1"),
        trace("publish.shop", b"3", "three", routed_queues=["orders"]),
        trace("deliver.orders", b"3", "three", redelivered="0"),
        trace("deliver.orders", b"3", "three", redelivered="0"),
        # Never delivered; and twice the same message without an id, delivered once.
        trace("publish.shop", b"4", "four", routed_queues=["orders"]),
        trace("publish.", b"same", routed_queues=["mail"]),
        trace("publish.", b"same", routed_queues=["mail"]),
        trace("deliver.mail", b"same", redelivered="0"),
        # Published before tracing began; to nobody; and a name with a dot.
        trace("deliver.orders", b"0", "zero", redelivered="0"),
        trace("publish.shop", b"5", "five", routed_queues=[]),
        trace("deliver.a.b", b"6", "six", redelivered="0"),
    ]
    return spark.createDataFrame(given, source_schema(read_options({})))


def test_each_message_is_judged(spark: SparkSession, rows: DataFrame) -> None:
    found = firehose.traces(rows)
    assertSchemaEqual(found.schema, firehose.TRACES)
    judged = firehose.messages(found)
    assertSchemaEqual(judged.schema, firehose.MESSAGES)
    held = spark.createDataFrame([("/", "orders", 0), ("/", "mail", 1)], firehose.HELD)
    queues = firehose.per_queue(judged, held)
    expected = [
        # published, delivered, redelivered, undelivered, unflagged, unannounced, held, missing
        ("/", "a.b", 0, 1, 0, 0, 0, 1, None, None),
        ("/", "mail", 3, 2, 0, 1, 0, 0, 1, 0),
        ("/", "orders", 4, 6, 1, 1, 1, 1, 0, 1),
    ]
    assertDataFrameEqual(queues, spark.createDataFrame(expected, firehose.QUEUES))
    bad = {r["message"] for r in judged.where("queue = 'orders' and undelivered > 0").collect()}
    assert bad == {"four"}
    assert [r["message"] for r in judged.where("unflagged > 0").collect()] == ["three"]


def test_duckdb_comes_to_the_same(rows: DataFrame, tmp_path: Path) -> None:
    found = firehose.traces(rows)
    found.write.parquet(str(tmp_path / "traces"))
    mine = sorted(
        (r["queue"], r["message"], r["published"], r["delivered"], r["redelivered"])
        for r in firehose.messages(found).collect()
    )
    theirs = duckdb.sql(f"""
        select queue, message, count(*) filter (event = 'publish'),
               count(*) filter (event = 'deliver'),
               count(*) filter (event = 'deliver' and redelivered)
        from read_parquet('{tmp_path}/traces/*.parquet') group by 1, 2 order by 1, 2
    """).fetchall()
    assert mine == theirs


def test_the_verdict_says_the_numbers() -> None:
    row = dict.fromkeys(("published", "delivered", "redelivered", "undelivered", "unflagged"), 0)
    assert firehose_verdict([{**row, "missing": 0}])[0]
    assert firehose_verdict([{**row, "missing": 2}]) == (
        False,
        "2 MISSING, neither delivered nor waiting: 0 published, 0 delivered, 0 redelivered",
    )
    assert not firehose_verdict([{**row, "unflagged": 1, "missing": 0}])[0]
    good, text = firehose_verdict([{**row, "undelivered": 3, "missing": None}])
    assert good
    assert text.startswith("3 were not delivered while it was traced")


def asked(broker: Broker, out: Path, queue: str = "traces") -> argparse.Namespace:
    return argparse.Namespace(
        journal=None,
        firehose=queue,
        firehose_archive=None,
        where=None,
        every=False,
        out=str(out),
        endpoints=broker.http_url,
        vhost="/",
        user="guest",
        password_file=None,
    )


def test_a_brokers_own_firehose(spark: SparkSession, tmp_path: Path) -> None:
    """Ten published, one comes again, seven are consumed; one of the rest is purged."""
    with Broker(http=True) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("traces")
        channel.queue_bind("traces", TRACE, "#")
        channel.queue_declare("orders")
        with pytest.raises(WarrenError, match="there are no traces"):
            run_audit_job(spark, asked(broker, tmp_path))
        broker.set_tracing("/")
        channel.confirm_delivery()
        for number in range(10):
            channel.basic_publish("", "orders", b"%d" % number)
        for number in range(8):
            method, _, _ = channel.basic_get("orders")
            channel.basic_reject(method.delivery_tag, requeue=True) if number == 0 else (
                channel.basic_ack(method.delivery_tag)
            )
        assert run_audit_job(spark, asked(broker, tmp_path / "well")) == 0
        (row,) = spark.read.parquet(str(tmp_path / "well" / "firehose_queue")).collect()
        assert (row["published"], row["delivered"], row["redelivered"]) == (10, 8, 1)
        assert (row["undelivered"], row["held"], row["missing"]) == (3, 3, 0)
        assert "<svg" in (tmp_path / "well" / "audit.html").read_text()
        channel.queue_purge("orders")
        assert run_audit_job(spark, asked(broker, tmp_path / "ill")) == 1
        # Nothing was taken out of the queue of traces, and no cursor is left on it.
        assert broker.queue("traces").ready >= 18
        connection.close()


def test_an_audit_has_one_source(capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser()
    assert parser.parse_args(["audit", "--firehose", "traces"]).journal is None
    with pytest.raises(SystemExit):
        parser.parse_args(["audit"])
    assert "--firehose" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parser.parse_args(["audit", "--journal", "a", "--firehose", "traces"])
