"""Which process is meant: never one that came later under the same number."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.node.process_mark import ProcessMark

WAIT_S = 60


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def mark_of(process: subprocess.Popen[bytes]) -> ProcessMark:
    mark = ProcessMark.of(process.pid)
    assert mark is not None
    return mark


def test_a_process_is_itself(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    mark = mark_of(sleeper)
    mark.write(tmp_path / "pid")
    assert ProcessMark.read(tmp_path / "pid") == mark
    assert mark.is_alive
    assert not mark.wait(0.01)
    assert mark.send(signal.SIGTERM)
    assert mark.wait(WAIT_S)
    # Its remains, which nobody has fetched yet, are not alive.
    assert not mark.is_alive
    assert not mark.send(signal.SIGTERM)
    sleeper.wait()
    assert not mark.is_alive
    assert mark.wait(0)


@pytest.mark.parametrize("change", [{"began": 1}, {"boot": "another"}])
def test_another_with_its_number_is_left_alone(
    sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    stale = dataclasses.replace(mark_of(sleeper), **change)
    assert not stale.is_alive
    assert not stale.is_paused
    assert not stale.send(signal.SIGKILL)
    assert stale.wait(0)
    assert sleeper.poll() is None


def test_paused(sleeper: subprocess.Popen[bytes]) -> None:
    mark = mark_of(sleeper)
    assert not mark.is_paused
    mark.send(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert mark.is_paused
    assert mark.is_alive


@pytest.mark.parametrize("text", ["", "12", "a b c", "1 2 3 4", "\0"])
def test_files_that_say_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    assert ProcessMark.read(tmp_path / "pid") is None
    assert ProcessMark.read(tmp_path / "none") is None


def test_nobody_has_this_number() -> None:
    assert ProcessMark.of(2**22 + 1) is None
    assert not ProcessMark(2**22 + 1, 1, "x").send(signal.SIGKILL)
