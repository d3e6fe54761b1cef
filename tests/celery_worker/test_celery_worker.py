"""A Celery worker with a prefork pool on Warren: tasks, ETA, retries, chords, restarts."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from warren.testing import Broker

pytest.importorskip("celery")

CONCURRENCY = 2
#: Celery fetches four messages a pool process; more ETA tasks than that must not stop the rest.
ETA_TASKS = 4 * CONCURRENCY * 3
START_TIMEOUT_S = 60
RESULT_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The task module, with a broker and a worker running it."""
    results = tmp_path_factory.mktemp("results")
    log = tmp_path_factory.mktemp("log") / "worker.log"
    with Broker() as broker:
        os.environ["WARREN_TEST_BROKER"] = broker.url
        os.environ["WARREN_TEST_BACKEND"] = f"file://{results}"
        module = importlib.import_module("celery_tasks")
        with log.open("w") as output:
            command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker"]
            command += ["--pool", "prefork", "--concurrency", str(CONCURRENCY), "-l", "info"]
            worker = subprocess.Popen(
                command, cwd=Path(__file__).parent, stdout=output, stderr=output
            )
        try:
            _wait_until_ready(worker, log)
            yield module
        finally:
            worker.terminate()
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _wait_until_ready(worker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while " ready." not in log.read_text():
        if worker.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the worker did not get ready:\n{log.read_text()}")
        time.sleep(0.1)


def test_tasks_run_in_the_pool(tasks: ModuleType) -> None:
    results = [tasks.add.delay(i, i) for i in range(50)]
    assert [result.get(timeout=RESULT_TIMEOUT_S) for result in results] == [
        2 * i for i in range(50)
    ]
    assert tasks.pool_process.delay().get(timeout=RESULT_TIMEOUT_S) != os.getpid()


def test_eta_tasks_wait_and_do_not_stop_others(tasks: ModuleType) -> None:
    due = time.time() + 8
    waiting = [tasks.stamp.apply_async(countdown=8) for _ in range(ETA_TASKS)]
    # The worker holds all of these unacknowledged; it can only go on by raising its prefetch.
    at_once = tasks.stamp.delay().get(timeout=RESULT_TIMEOUT_S)
    assert at_once < due
    for result in waiting:
        assert result.get(timeout=RESULT_TIMEOUT_S) >= due - 0.1


def test_retries(tasks: ModuleType, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    result = tasks.third_time_lucky.delay(str(diary))
    assert result.get(timeout=RESULT_TIMEOUT_S) == 3
    assert diary.read_text().splitlines() == ["try 1", "try 2", "try 3"]


def test_a_chord(tasks: ModuleType) -> None:
    from celery import chord

    result = chord(tasks.add.s(i, i) for i in range(10))(tasks.total.s())
    assert result.get(timeout=RESULT_TIMEOUT_S) == 90


def test_a_chain_and_a_group(tasks: ModuleType) -> None:
    from celery import chain, group

    assert chain(tasks.add.s(1, 2), tasks.add.s(4)).delay().get(timeout=RESULT_TIMEOUT_S) == 7
    together = group(tasks.add.s(i, 1) for i in range(10)).delay()
    assert together.get(timeout=RESULT_TIMEOUT_S) == list(range(1, 11))


def test_the_worker_answers_remote_control(tasks: ModuleType) -> None:
    answers = tasks.app.control.inspect(timeout=60, limit=1).ping()
    assert answers
    assert list(answers.values()) == [{"ok": "pong"}]
