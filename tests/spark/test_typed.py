"""Typed tables: what can be decoded is, what cannot is kept with the reason, and nothing fails."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pika
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual
from source_rows import CAME, source_rows

from warren.spark.errors import WarrenError
from warren.spark.pipelines import typed
from warren.spark.pipelines.archive import Lake, write_batch
from warren.spark.pipelines.jobs import BAD, GOOD
from warren.spark.pipelines.main import make_parser
from warren.spark.pipelines.registry import load_registry
from warren.spark.pipelines.typed_job import run_typed_job
from warren.spark.pipelines.typed_tables import open_tables
from warren.testing import Broker

ORDERS = {
    "name": "order",
    "queue": r"orders\..*",
    "schema": "id bigint not null, total decimal(10,2), tags array<string>",
}
CLICK = {
    "type": "record",
    "name": "Click",
    "namespace": "shop",
    "fields": [
        {"name": "user", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "page", "type": ["null", "string"], "default": None},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "kind",
            "type": {"type": "enum", "name": "Kind", "symbols": ["LEFT", "RIGHT"]},
        },
        {"name": "other", "type": "Kind"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
    ],
}
CLICKS = {"name": "click", "queue": "clicks", "format": "avro", "id": 17, "schema": CLICK}


def registry_file(base: Path, *types: dict[str, Any]) -> Path:
    path = base / "registry.json"
    path.write_text(json.dumps({"types": list(types)}))
    return path


def click(user: int, **more: Any) -> bytes:
    value = {
        "user": user,
        "at": CAME,
        "page": "/",
        "counts": {"a": 1},
        "kind": "LEFT",
        "other": "RIGHT",
        "price": Decimal("1.25"),
        **more,
    }
    stream = io.BytesIO(b"\0\0\0\0\x11")
    stream.seek(5)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(CLICK)), value)
    return stream.getvalue()


#: Bodies of orders, and why they are not decoded; None: they are.
BODIES: list[tuple[bytes, str | None]] = [
    (b'{"id": 1, "total": 2.5, "tags": ["a"]}', None),
    (b'{"id": 2, "colour": "red"}', None),
    (b"", typed.NOT_JSON),
    (b"\xff\xfe{}", typed.NOT_TEXT),
    (b'{"id": 1} and more', typed.NOT_JSON),
    (b'{"id": 1}, "v2": 3', typed.NOT_JSON),
    (b"{'id': 1}", typed.NOT_JSON),
    (b'[{"id": 1}]', typed.NOT_JSON),
    (b'{"id": "one"}', typed.NOT_JSON),
    (b'{"id": 99999999999999999999}', typed.NOT_JSON),
    (b'{"total": 3}', typed.MISSING),
    (b'{"id": null}', typed.MISSING),
    (b"null", typed.NOT_JSON),
    (b'{"id": 3, "tags": "a"}', typed.NOT_JSON),
    (b'{"id":' * 2000, typed.NOT_JSON),
]


def test_json_is_decoded_or_kept_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    registry = load_registry(registry_file(tmp_path, ORDERS))
    rows = source_rows(
        spark, [{"queue": "orders.eu", "seq": n, "body": b} for n, (b, _) in enumerate(BODIES)]
    )
    decoded = typed.decode(rows, registry)
    table = typed.table_of(decoded, registry, "order", registry.table_columns("order"))
    origin = ("orders.eu", 0, "i", CAME, "k", None, 1)
    expected = [
        (*origin, 1, Decimal("2.50"), ["a"]),
        ("orders.eu", 1, *origin[2:], 2, None, None),
    ]
    assertDataFrameEqual(table, spark.createDataFrame(expected, table.schema))
    assertSchemaEqual(table.select(*typed.ORIGIN.names).schema, typed.ORIGIN, ignoreNullable=True)
    quarantine = typed.quarantine_of(decoded)
    assertSchemaEqual(quarantine.schema, typed.QUARANTINE)
    found = {row["seq"]: (bytes(row["body"]), row["reason"]) for row in quarantine.collect()}
    assert found == {n: one for n, one in enumerate(BODIES) if one[1] is not None}
    counts = typed.counts_of(decoded)
    expected_counts = [
        ("order", 1, None, 2, 1, 0),
        ("order", 1, typed.MISSING, 2, 0, 10),
        ("order", 1, typed.NOT_JSON, 10, 0, 2),
        ("order", 1, typed.NOT_TEXT, 1, 0, 3),
    ]
    assertDataFrameEqual(counts, spark.createDataFrame(expected_counts, typed.COUNTS))


def test_avro_is_decoded_or_kept_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    registry = load_registry(registry_file(tmp_path, ORDERS, CLICKS))
    good = click(7, page=None)
    # Cut short, something behind it, another schema's number, a time that no column holds.
    bodies = [good, good[:-1], good + b"x", b"\0\0\0\0\x12" + good[5:], b"\0\0\0\0\x11"]
    far = bytearray(click(7))
    far[6:12] = b"\xff\xff\xff\xff\xff\xff"
    bodies.append(bytes(far))
    rows = source_rows(
        spark, [{"queue": "clicks", "seq": n, "body": body} for n, body in enumerate(bodies)]
    )
    decoded = typed.decode(rows, registry)
    columns = registry.table_columns("click")
    (row,) = typed.table_of(decoded, registry, "click", columns).collect()
    assert (row["user"], row["page"], row["counts"]) == (7, None, {"a": 1})
    assert (row["kind"], row["other"], row["price"]) == ("LEFT", "RIGHT", Decimal("1.25"))
    assert row["at"].replace(tzinfo=datetime.UTC) == CAME
    reasons = {one["seq"]: one["reason"] for one in typed.quarantine_of(decoded).collect()}
    not_avro = typed.NOT_AVRO
    assert reasons == {1: not_avro, 2: not_avro, 3: typed.NO_SCHEMA, 4: not_avro, 5: not_avro}


def test_versions_of_a_type_share_a_table_that_grows(spark: SparkSession, tmp_path: Path) -> None:
    second = {
        **ORDERS,
        "version": 2,
        "headers": {"schema": "2"},
        "schema": "id bigint not null, note string",
    }
    rows = source_rows(
        spark,
        [
            {"queue": "orders.a", "seq": 0, "body": b'{"id": 5}'},
            {
                "queue": "orders.a",
                "seq": 1,
                "headers": {"schema": "2"},
                "body": b'{"id": 6, "note": "x"}',
            },
        ],
    )
    place = tmp_path / "tables"
    open_tables(place, load_registry(registry_file(tmp_path, ORDERS))).write(rows, 0)
    both = load_registry(registry_file(tmp_path, second, ORDERS))
    tables = open_tables(place, both)
    tables.write(rows, 1)
    tables.write(rows, 1)
    found = duckdb.sql(f"""
        select batch, _seq, _version, id, note
        from read_parquet('{place}/tables/order/**/*.parquet', union_by_name=true) order by all
    """).fetchall()
    assert found == [(0, 0, 1, 5, None), (0, 1, 1, 6, None), (1, 0, 1, 5, None), (1, 1, 2, 6, "x")]
    changed = {**ORDERS, "schema": "id string"}
    with pytest.raises(WarrenError, match=r"column 'id' is string now, and was bigint"):
        open_tables(place, load_registry(registry_file(tmp_path, changed)))


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"name": "a b", "schema": "id int"}, "the name must be letters"),
        ({"name": "a", "schema": "id nothing"}, "the schema cannot be read"),
        ({"name": "a", "schema": "dt date"}, "the table's own"),
        ({"name": "a", "schema": "id int", "queue": "("}, "must be a regular expression"),
        ({"name": "a", "format": "xml", "schema": "id int"}, "must be json or avro"),
        ({"name": "a", "schemas": "id int"}, "there is no key 'schemas'"),
        ({"name": "a", "format": "avro", "schema": "long"}, "cannot be read"),
        ({"name": "a", "format": "avro", "schema": {"type": "array", "items": "int"}}, "a record"),
        (
            {
                "name": "a",
                "format": "avro",
                "schema": {
                    "type": "record",
                    "name": "R",
                    "fields": [{"name": "x", "type": ["int", "string"]}],
                },
            },
            "of unions only",
        ),
        (
            {
                "name": "a",
                "format": "avro",
                "schema": {
                    "type": "record",
                    "name": "R",
                    "fields": [{"name": "next", "type": ["null", "R"]}],
                },
            },
            "uses itself",
        ),
    ],
)
def test_what_is_wrong_with_a_registry_is_told(
    spark: SparkSession, tmp_path: Path, entry: dict[str, Any], told: str
) -> None:
    with pytest.raises(WarrenError, match=told):
        load_registry(registry_file(tmp_path, entry))


def test_an_archive_is_decoded_and_judged(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path / "archive")
    lake.prepare()
    bodies = [{"queue": "orders.x", "seq": n, "body": b'{"id": %d}' % n} for n in range(99)]
    bodies.append({"queue": "orders.x", "seq": 99, "body": b"oops"})
    write_batch(source_rows(spark, bodies), 0, lake)
    path = registry_file(tmp_path, ORDERS)

    def run(*more: str) -> int:
        fixed = ["typed", "--archive", str(lake.path), "--registry", str(path)]
        return run_typed_job(spark, make_parser().parse_args([*fixed, *more]))

    assert run("--to", str(tmp_path / "a"), "--max-quarantined", "1") == GOOD
    assert "99 rows decoded" in capsys.readouterr().out
    assert run("--to", str(tmp_path / "b"), "--max-quarantined", "0.5") == BAD
    with pytest.raises(WarrenError, match="choose a new directory"):
        run("--to", str(tmp_path / "a"))
    assert run("--to", str(tmp_path / "c"), "--where", "seq > 1000", "--max-quarantined", "0") == 0
    (tmp_path / "file").write_text("")
    with pytest.raises(WarrenError, match="cannot be written"):
        run("--to", str(tmp_path / "file" / "x"))


def test_a_queue_is_decoded_once_whatever_is_in_it(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("orders.live", durable=True)
    channel.tx_select()
    for body, _ in BODIES:
        channel.basic_publish("", "orders.live", body, pika.BasicProperties(delivery_mode=2))
    channel.tx_commit()
    connection.close()
    path = registry_file(tmp_path, ORDERS)
    fixed = ["typed", "--endpoints", broker.http_url, "--queues", "orders.live"]
    given = [*fixed, "--registry", str(path), "--to", str(tmp_path / "t"), "--batch-rows", "4"]
    assert run_typed_job(spark, make_parser().parse_args(given)) == GOOD
    assert run_typed_job(spark, make_parser().parse_args(given)) == GOOD
    table, quarantine = (f"{tmp_path}/t/{name}/**/*.parquet" for name in ("tables", "quarantine"))
    (good,) = duckdb.sql(f"select list(id order by _seq) from '{table}'").fetchall()
    bad = duckdb.sql(f"select seq, reason from '{quarantine}' order by seq").fetchall()
    assert good[0] == [1, 2]
    assert bad == [(n, why) for n, (_, why) in enumerate(BODIES) if why is not None]
