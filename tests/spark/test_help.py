"""What pipelines say of themselves, and their exit codes."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import pytest
from journal_rows import plain_life, row, without
from pyspark.sql import SparkSession

from warren.spark.errors import WarrenError
from warren.spark.pipelines import places, session
from warren.spark.pipelines.events import EVENTS
from warren.spark.pipelines.main import main, make_parser
from warren.spark.pipelines.places import local_path

NAMES = ("archive", "replay", "typed", "dead-letters", "scrub", "audit", "latency", "lag")
PAGES = Path(__file__).parents[2] / "docs" / "pipelines"


@pytest.mark.parametrize("name", NAMES)
def test_every_pipeline_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each option has a text, there is an example that can be given, and a page."""
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args([name, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "Exit code" in said
    page = (PAGES / f"{name}.md").read_text()
    assert f"warren pipeline {name}" in page
    example = next(
        line.strip() for line in said.splitlines() if line.startswith("  warren pipeline")
    )
    words = shlex.split(example)
    assert words[:3] == ["warren", "pipeline", name]
    assert make_parser().parse_args(words[2:]).name == name
    (chosen,) = [a for a in make_parser()._actions if a.dest == "name"]
    for action in chosen.choices[name]._actions:  # type: ignore[index,union-attr]
        assert action.help, f"{name}: {action.dest} has no text"


def test_a_bad_verdict_is_an_exit_code(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "events")
    rows = without(plain_life(2_000), "ack", {1})
    late = row("position", 5, at_ms=9_000, peer="b", size=90, in_sync=True)
    rows += [row("position", 0, at_ms=0, peer="b", size=5, in_sync=True), late]
    rows += [row("publish", 2_000, at_ms=9_500), row("confirm", 2_000, at_ms=9_600)]
    spark.createDataFrame(rows, EVENTS).coalesce(1).write.parquet(place)
    good_and_bad = {
        "audit": ([], "1 LOST"),
        "latency": (["--fail-over-ms", "3000"], "MORE THAN the limit of 3,000 ms"),
        "lag": (["--fail-over-ms", "500"], "MORE THAN the limit of 500 ms"),
    }
    for name, (more, said) in good_and_bad.items():
        assert main([name, "--journal", place, *more], spark=spark) == 1
        assert said in capsys.readouterr().out
    assert main(["latency", "--journal", place, "--fail-over-ms", "9000"], spark=spark) == 0
    words = ["lag", "--journal", place, "--fail-over-ms", "9000", "--out", str(tmp_path / "out")]
    assert main(words, spark=spark) == 0
    page = (tmp_path / "out" / "lag.html").read_text()
    assert "orders: behind by ms" in page
    assert "orders: behind by operations" in page


@pytest.mark.parametrize("wrong", ["0", "-5", "many"])
def test_numbers_that_make_no_sense_are_refused(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rate of less than nothing would be no limit at all."""
    replay = ["replay", "--archive", "a", "--run", "r", "--as-published"]
    archive = ["archive", "--queues", "q", "--to", "t"]
    for words in (
        [*replay, f"--rate={wrong}"],
        [*replay, f"--batch-rows={wrong}"],
        [*archive, f"--batch-rows={wrong}"],
        [*archive, f"--interval={wrong}"],
        ["latency", "--journal", "j", f"--gap-ms={wrong}"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert "it must be 1 at least" in said or "is no number" in said
    given = make_parser().parse_args(["dead-letters", "--queues", "q", "--fail-over", "0"])
    assert given.fail_over == 0


def test_places_may_be_uris_of_local_files() -> None:
    assert local_path("file:///lake/shop") == local_path("file:/lake/shop") == Path("/lake/shop")
    assert local_path("lake") == Path("lake").absolute()
    assert local_path("/a:b/c") == Path("/a:b/c")
    with pytest.raises(WarrenError, match="no local path"):
        local_path("s3a://bucket/lake")


def test_what_is_missing_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a Spark it would take the time of its start.
    monkeypatch.setattr(session, "open_session", None)
    assert main(["audit", "--journal", str(tmp_path / "nowhere")]) == 1
    assert f"no event journal in {tmp_path / 'nowhere'}" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "x")
    for option, words in {
        "to": ["archive", "--queues", "q", "--to", place],
        "run": ["replay", "--archive", "a", "--as-published", "--run", place],
        "out": ["audit", "--journal", str(tmp_path), "--out", place],
    }.items():
        assert main(words) == 1
        said = capsys.readouterr().err
        assert f"{place} cannot be written to: Not a directory; choose another" in said
        assert f"--{option}" in said
    typed = ["typed", "--queues", "q", "--registry", "r", "--to", place]
    assert main(typed) == 1
    assert "--to" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["archive", "--queues", "orders", "--to"],
        ["scrub", "--queue-pattern", "orders", "--out"],
        ["audit", "--firehose", "traces", "--out"],
    ],
)
def test_a_node_that_is_not_there(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "open_session", None)
    monkeypatch.setattr(places, "ENDPOINT_S", 0.05)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert main([*words, str(tmp_path / "out"), "--endpoints", url]) == 1
    assert f"no node answers at {url}: start one" in capsys.readouterr().err


def test_a_java_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["audit", "--journal", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "Spark needs Java 17" in said
    assert f"no bin/java in JAVA_HOME ({tmp_path})" in said
    # Set to nothing is not set.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["audit", "--journal", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "Spark needs Java 17" in said
    assert "bin/java" not in said
