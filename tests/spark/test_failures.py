"""What fails says so in a sentence: nothing is trimmed, nothing is left half-written."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import duckdb
import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from journal_rows import row
from messages import client_of, publish, take_all
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter
from source_rows import source_rows

from warren.spark.pipelines.archive import Lake, write_batch
from warren.spark.pipelines.events import EVENTS
from warren.spark.pipelines.main import main
from warren.spark.pipelines.problems import reason
from warren.spark.pipelines.registry import load_registry
from warren.spark.pipelines.typed_tables import open_tables
from warren.testing import Broker

#: In a name space of its own: a small disk, and in the end what is on it.
FULL_DISK = """
mount -t tmpfs -o size=400k tmpfs "$0" || exit 99
"$@"; code=$?
find "$0" -name '*.parquet' -o -name '*.json' -o -name _temporary -o -name '*.part' | sort
exit $code
"""


@pytest.fixture
def archive(spark: SparkSession, tmp_path: Path) -> Path:
    lake = Lake(tmp_path / "archive")
    lake.prepare()
    rows = [{"queue": "orders", "seq": n, "body": b"%d" % n} for n in range(20)]
    write_batch(source_rows(spark, rows).coalesce(1), 0, lake)
    return lake.path


def files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


# -- disks -----------------------------------------------------------------------------------------


def test_a_full_disk_takes_nothing_out_of_the_queue(broker: Broker, tmp_path: Path) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("f.full", durable=True)
    channel.confirm_delivery()
    dice = random.Random(1)
    for _ in range(60):
        channel.basic_publish("", "f.full", dice.randbytes(20_000))
    connection.close()
    lake = tmp_path / "lake"
    lake.mkdir()
    words = [sys.executable, "-m", "warren", "pipeline", "--memory", "512m", "archive"]
    words += ["--endpoints", broker.http_url, "--queues", "f.full", "--to", str(lake)]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", FULL_DISK, str(lake), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the disk is full" in done.stderr
    assert "Nothing was trimmed" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout.strip() == ""
    assert broker.queue("f.full").ready == 60
    told = client_of(broker).range_info("f.full", None)
    assert (told["first"], told["end"]) == (0, 60)
    assert take_all_sizes(broker, "f.full") == 60


def take_all_sizes(broker: Broker, queue: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    count = 0
    while channel.basic_get(queue, auto_ack=True)[0] is not None:
        count += 1
    connection.close()
    return count


def test_a_batch_that_fails_leaves_nothing(
    spark: SparkSession, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(archive)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Lake, "note", full)
    with pytest.raises(OSError, match="No space"):
        write_batch(source_rows(spark, [{"queue": "orders", "seq": 20}]), 1, Lake(archive))
    assert files(archive) == before


def test_a_typed_batch_that_fails_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of other types, and the quarantine, are not to have half of it."""
    (tmp_path / "types.json").write_text(
        '{"types": [{"name": "a", "queue": "a", "schema": "id bigint"},'
        ' {"name": "b", "queue": "b", "schema": "id bigint"}]}'
    )
    tables = open_tables(tmp_path / "typed", load_registry(tmp_path / "types.json"))

    def batch(number: int) -> None:
        queues = {"a": b'{"id": 1}', "b": b'{"id": 2}', "c": b"nobody knows me"}
        rows = [{"queue": queue, "seq": number, "body": body} for queue, body in queues.items()]
        tables.write(source_rows(spark, rows), number)

    batch(0)
    before = files(tables.lake.path)
    real = DataFrameWriter.parquet

    def full(self: DataFrameWriter, path: str) -> None:
        real(self, path)
        if path.endswith("tables/b"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(DataFrameWriter, "parquet", full)
    with pytest.raises(OSError, match="No space"):
        batch(1)
    monkeypatch.undo()
    assert files(tables.lake.path) == before
    batch(1)
    found = duckdb.sql(f"select count(*) from '{tables.lake.path}/tables/**/*.parquet'").fetchall()
    assert found == [(4,)]


def test_a_report_that_cannot_be_written_leaves_the_one_before(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = tmp_path / "events"
    steps = ("publish", "confirm", "deliver", "ack")
    rows = [row(step, 0, 5, at_ms=n) for n, step in enumerate(steps)]
    rows.append(row("snapshot", 5, at_ms=9))
    spark.createDataFrame(rows, EVENTS).coalesce(1).write.parquet(str(events))
    out = tmp_path / "out"
    words = ["audit", "--journal", str(events), "--out"]
    assert main([*words, str(out)], spark=spark) == 0
    before = duckdb.sql(f"select * from '{out}/audit_queue/*.parquet'").fetchall()
    assert before
    assert not list(out.glob(".*"))
    (tmp_path / "file").write_text("")
    assert main([*words, str(tmp_path / "file" / "out")], spark=spark) == 1
    assert "out cannot be written to: Not a directory; choose another" in capsys.readouterr().err
    real = DataFrameWriter.parquet

    def full(self: DataFrameWriter, path: str) -> None:
        if "audit_block" in path:
            raise OSError(28, "No space left on device")
        real(self, path)

    monkeypatch.setattr(DataFrameWriter, "parquet", full)
    assert main([*words, str(out)], spark=spark) == 1
    said = capsys.readouterr().err
    assert f"table audit_block is not written to {out}: the disk is full" in said
    assert duckdb.sql(f"select * from '{out}/audit_queue/*.parquet'").fetchall() == before
    assert list((out / "audit_block").glob("*.parquet"))
    assert main([*words, "s3a://bucket/out"], spark=spark) == 1
    assert "no local path" in capsys.readouterr().err


# -- input -----------------------------------------------------------------------------------------


def test_a_damaged_file_is_named_and_nothing_is_published(
    spark: SparkSession, broker: Broker, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(broker, "f.damaged", 0, 0)
    (path,) = archive.rglob("*.parquet")
    data = bytearray(path.read_bytes())
    for at in range(4, len(data) // 2):
        data[at] ^= 0xFF
    path.write_bytes(data)
    # Hadoop keeps a checksum beside each file: as if the disk had lied from the beginning.
    path.with_name(f".{path.name}.crc").unlink()
    run = archive.parent / "run"
    words = ["replay", "--endpoints", broker.http_url, "--archive", str(archive), "--exchange", ""]
    assert main([*words, "--routing-key", "f.damaged", "--run", str(run)], spark=spark) == 1
    said = capsys.readouterr().err
    assert path.name in said, said
    assert "damaged" in said
    assert said.count("\n") == 1
    assert not (run / "name").exists()
    assert take_all(broker, "f.damaged") == []


def with_zones(table: pa.Table) -> pa.Table:
    """Times as Spark reads them: as it writes them they have nanoseconds and no zone."""
    for at, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            told = table.column(at).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
            table = table.set_column(at, column.name, told)
    # Spark has noted its own columns there, and would believe that.
    return table.replace_schema_metadata(None)


def test_columns_that_came_later_and_columns_that_changed(
    spark: SparkSession, broker: Broker, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that lack a column have none in it; one whose type is another is refused."""
    publish(broker, "f.drift", 0, 0)
    (path,) = archive.rglob("*.parquet")
    table = with_zones(pq.read_table(path, partitioning=None))
    other = archive / "data" / "dt=2026-11-19" / "queue=orders" / "batch=1"
    other.mkdir(parents=True)
    older = table.drop_columns(["priority", "correlation_id"])
    pq.write_table(older.slice(0, 5), other / "part-0.parquet")
    words = ["replay", "--endpoints", broker.http_url, "--archive", str(archive)]
    words += ["--exchange", "", "--routing-key", "f.drift", "--run"]
    assert main([*words, str(archive.parent / "run")], spark=spark) == 0
    assert sorted(take_all(broker, "f.drift")) == sorted([*range(20), *range(5)])
    at = table.column_names.index("seq")
    changed = table.set_column(at, "seq", table["seq"].cast(pa.string()))
    pq.write_table(changed, other / "part-1.parquet")
    assert main([*words, str(archive.parent / "again")], spark=spark) == 1
    said = capsys.readouterr().err
    assert "a file has a column of another type than the others" in said
    assert said.count("\n") == 1
    assert not (archive.parent / "again" / "name").exists()


def test_nothing_to_do_is_said_and_is_no_failure(
    spark: SparkSession, broker: Broker, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(broker, "f.empty", 0, 0)
    base = archive.parent
    reach = ["--endpoints", broker.http_url]
    queue = [*reach, "--queues", "f.empty"]
    (base / "types.json").write_text('{"types": [{"name": "a", "schema": "id bigint"}]}')
    typed = ["typed", *queue, "--registry", str(base / "types.json"), "--to", str(base / "typed")]
    nothing = ["--archive", str(archive), "--where", "seq > 99"]
    runs = {
        "0 messages archived": ["archive", *queue, "--to", str(base / "lake")],
        "nothing to replay": [
            "replay",
            *reach,
            *nothing,
            "--run",
            str(base / "r"),
            "--exchange",
            "",
        ],
        "0 rows decoded": typed,
        "0 dead letters": ["dead-letters", *queue],
        "there is nothing to compare": ["scrub", *queue],
    }
    for said, words in runs.items():
        assert main(words, spark=spark) == 0, words
        assert said in capsys.readouterr().out


def test_journals_without_events_are_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A verdict on nothing would be a good one: there is none."""
    (tmp_path / "events").mkdir()
    for name in ("audit", "latency", "lag"):
        assert main([name, "--journal", str(tmp_path / "events")], spark=spark) == 1
        assert f"there are no events in {tmp_path}" in capsys.readouterr().err
    # One wrong name among right ones would be a node whose word is missing: what it knows to be
    # settled would be lost.
    good = tmp_path / "good"
    spark.createDataFrame([row("snapshot", 0, at_ms=5)], EVENTS).coalesce(1).write.parquet(
        str(good)
    )
    assert main(["audit", "--journal", str(good), str(tmp_path)], spark=spark) == 1
    said = capsys.readouterr().err
    assert f"there are no events in {tmp_path}: name {tmp_path / 'events'}" in said
    # A node that has noted nothing has a list of names.
    (tmp_path / "events" / "1.names").write_text('{"node": "b"}\n')
    assert main(["audit", "--journal", str(good), str(tmp_path / "events")], spark=spark) == 0
    capsys.readouterr()
    idle = [row("snapshot", 0, at_ms=5), row("promote", 0)]
    spark.createDataFrame(idle, EVENTS).coalesce(1).write.parquet(str(tmp_path / "idle"))
    for name in ("audit", "latency", "lag"):
        words = [name, "--journal", str(tmp_path / "idle"), "--out", str(tmp_path / name)]
        assert main(words, spark=spark) == 0
        assert (tmp_path / name / f"{name}.html").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x\nwarren.spark.errors.Refused: no such queue\n  at y", "no such queue"),
        ("Task failed file:/lake/a.parquet\njava.io.IOException: No space left on device",
         "the disk is full (/lake/a.parquet): make room and give the same command again"),
        ("java.lang.OutOfMemoryError: Java heap space", "--memory"),
        ("java.io.FileNotFoundException: /lake/x (Permission denied)", "written to (/lake/x)"),
        ("[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back.",
         "did not start within ten seconds"),
        ("[WHAT] something else SQLSTATE: 1\n at z", "[WHAT] something else SQLSTATE: 1"),
    ],
)  # fmt: skip
def test_traces_become_sentences(text: str, told: str) -> None:
    assert told in reason(text)
