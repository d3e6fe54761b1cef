"""The line that tells how far a pipeline is: on terminals only, and gone in the end."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from warren.spark.pipelines import output, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tasks_are_counted_and_the_line_goes_away(spark: SparkSession, capsys: Any) -> None:
    screen = Terminal()
    with progress.shown("audit", spark, screen):
        slow = spark.sparkContext.parallelize(range(8), 8).map(lambda n: time.sleep(0.4) or n)
        assert slow.sum() == 28
        output.say("a line that stays")
    drawn = screen.getvalue()
    assert "of 8 tasks" in drawn
    assert "━" in drawn
    assert drawn.endswith("\r\x1b[2K")
    assert capsys.readouterr().out == "a line that stays\n"


def test_what_is_being_done_is_said_before_there_is_a_spark() -> None:
    screen = Terminal()
    with progress.shown("audit", None, screen):
        progress.phase("starting Spark")
        end_s = time.monotonic() + 30
        while "audit: starting Spark" not in screen.getvalue():
            assert time.monotonic() < end_s
            time.sleep(0.05)
    assert screen.getvalue().endswith("\r\x1b[2K")
    progress.phase("nobody looks any more")


def test_nothing_is_drawn_where_nobody_looks(spark: SparkSession) -> None:
    screen = io.StringIO()
    with progress.shown("audit", spark, screen):
        spark.range(10).count()
        progress.clear()
    assert screen.getvalue() == ""


def test_a_stream_is_measured_in_positions() -> None:
    source = {
        "endOffset": '{"a": {"inc": "1", "seq": 30, "token": "t"}}',
        "latestOffset": {"a": {"seq": 100}, "b": {"seq": 20}},
    }
    query: Any = SimpleNamespace(lastProgress={"sources": [source]})
    assert progress.rows_of(query) == (30.0, 120.0, "position 30 of 120")
    assert progress.rows_of(SimpleNamespace(lastProgress=None)) is None  # type: ignore[arg-type]
    assert "25%" in progress.line("archive", (30.0, 120.0, "x"), 1.0)
    assert progress.line("archive", None, 2.0) == "archive  2 s"
