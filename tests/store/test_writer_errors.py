"""The writer when the disk fails, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_logs import read

PRELUDE = """
import os, resource, shutil, signal, sys, time
from warren.store.writer import LogWriter
directory = sys.argv[1]
def settle(log):
    deadline = time.monotonic() + 20
    while log.persisted < log.appended:
        assert time.monotonic() < deadline
        try:
            log.check()
        except OSError:
            return
        time.sleep(0.001)
def failed(log, kept):
    for call in (log.check, lambda: log.append(1, b"x"), log.close, log.close):
        try:
            call()
        except OSError as error:
            print(error.errno, error.filename == directory)
        else:
            raise AssertionError("nothing was raised")
    assert log.persisted == kept, log.persisted
"""


def run(script: str, directory: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, str(directory)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("shim") / "fault_shim.so"
    source = Path(__file__).with_name("fault_shim.c")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
log = LogWriter(directory)
log.append(1, bytes(1000))
settle(log)
log.append(1, bytes(5000))
settle(log)
failed(log, 1)
"""
    assert run(script, tmp_path)[:4] == ["27 True"] * 4
    found = read(tmp_path)
    assert found.sequences == [1]
    assert found.scan.torn_tail is not None


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    script = """
log = LogWriter(directory)
shutil.rmtree(directory)
log.append(1, b"x")
settle(log)
failed(log, 0)
"""
    directory = tmp_path / "log"
    directory.mkdir()
    assert run(script, directory)[:4] == ["2 True"] * 4


def test_a_sync_that_fails_is_never_tried_again(tmp_path: Path, shim: str) -> None:
    script = """
import ctypes
log = LogWriter(directory)
for n in range(2):
    log.append(1, b"kept")
    settle(log)
log.append(1, b"lost")
settle(log)
log_calls = ctypes.CDLL(os.environ["LD_PRELOAD"]).shim_calls()
failed(log, 2)
assert log.statistics()[0] == 2
assert ctypes.CDLL(os.environ["LD_PRELOAD"]).shim_calls() == log_calls == 3
"""
    lines = run(script, tmp_path, LD_PRELOAD=shim, SHIM_FAIL_AT="3")
    assert lines[:4] == ["5 True"] * 4


def test_nothing_counts_as_persisted_before_its_sync(tmp_path: Path, shim: str) -> None:
    script = """
import ctypes
calls = ctypes.CDLL(os.environ["LD_PRELOAD"]).shim_calls
log = LogWriter(directory)
for n in range(1, 6):
    begun = time.monotonic()
    log.append(1, b"x")
    while calls() < n:
        assert log.persisted == n - 1
        time.sleep(0.001)
    assert log.persisted == n - 1
    settle(log)
    assert time.monotonic() - begun >= 0.05
    assert log.statistics()[0] == calls() == n
# What gathers during one sync takes one more together.
log.append(1, b"x")
while calls() < 6:
    time.sleep(0.001)
for _ in range(1000):
    log.append(1, b"x")
settle(log)
assert calls() == 7
log.close()
print("done")
"""
    assert run(script, tmp_path, LD_PRELOAD=shim, SHIM_DELAY_MS="50")[0] == "done"
    assert len(read(tmp_path).records) == 1006
