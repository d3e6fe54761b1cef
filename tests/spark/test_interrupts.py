"""Ctrl-C ends a pipeline with a word, and without Spark's traces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from messages import publish

from warren.spark.pipelines import main as command
from warren.spark.pipelines.interrupts import interrupts
from warren.testing import Broker

WAIT_S = 240


def run(words: list[str]) -> subprocess.Popen[str]:
    """In a group of its own, as a terminal's: Java gets the interrupt too."""
    return subprocess.Popen(
        [sys.executable, "-m", "warren", "pipeline", "--memory", "512m", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def test_an_archive_that_follows_ends_with_its_table(broker: Broker, tmp_path: Path) -> None:
    publish(broker, "i.follow", 0, 100)
    words = ["archive", "--endpoints", broker.http_url, "--queues", "i.follow", "--follow"]
    process = run([*words, "--interval", "1", "--to", str(tmp_path / "lake")])
    until_s = time.monotonic() + WAIT_S
    while not list(tmp_path.glob("lake/_checkpoint/commits/0")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    said, wrong = process.communicate(timeout=WAIT_S)
    assert wrong == ""
    assert process.returncode == 0
    assert "100 messages archived" in said
    files = f"{tmp_path}/lake/data/**/*.parquet"
    assert duckdb.sql(f"select count(*) from '{files}'").fetchall() == [(100,)]


def test_others_have_not_done_their_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_run", interrupted)
    assert command.main(["audit", "--journal", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "warren pipeline audit: interrupted\n"


def test_who_insists_is_heard() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts() as wanted:
        assert not wanted.is_set()
        signal.raise_signal(signal.SIGINT)
        assert wanted.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
