"""warrenctl on the same machine: no password, no waiting."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

WAIT_S = 60
#: A command may take this much processor time, starting Python included.
CALL_S = 0.15


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("run")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
    return {**kept, "WARREN_RUNTIME_DIR": str(directory), "WARREN_NODENAME": "ctl@here"}


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "warren", "dev", "--port", "0", "--http-port", "0"]
    process = subprocess.Popen(
        [*command, "--metrics-port", "0"], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    # The socket comes a moment after the first listener; each worker may begin with another test.
    started = ctl(environment, "await_startup", "-t", "30")
    assert started.returncode == 0, started
    return process


@pytest.fixture(scope="module")
def node(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = start(environment)
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)


def ctl(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warren.ctl.main", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_no_password_is_needed(node: object, environment: dict[str, str]) -> None:
    done = ctl(environment, "-q", "list_users")
    assert (done.returncode, done.stdout) == (0, "user\ttags\nguest\t[administrator]\n")
    # The only node that runs here need not be named.
    unnamed = {name: value for name, value in environment.items() if name != "WARREN_NODENAME"}
    assert ctl(unnamed, "ping").returncode == 0
    assert ctl(environment, "-n", "other@here", "ping").returncode == 69


def test_the_operator_may_do_everything(node: object, environment: dict[str, str]) -> None:
    """No user has permissions in a virtual host that was just made."""
    for words in (
        ("add_vhost", "fresh"),
        ("-p", "fresh", "pub", "q", "x"),
        ("-p", "fresh", "get", "q"),
        ("-p", "fresh", "purge_queue", "q"),
        ("-p", "fresh", "delete_queue", "q"),
    ):
        done = ctl(environment, *words)
        assert done.returncode == 0, done
    assert ctl(environment, "-s", "list_permissions", "-p", "fresh").stdout == ""
    # A user of the operator's name has none of its rights.
    assert ctl(environment, "add_user", "rmq-cli", "pw").returncode == 0
    assert ctl(environment, "-s", "list_user_permissions", "rmq-cli").stdout == ""


def test_only_this_user_may_connect(node: object, environment: dict[str, str]) -> None:
    directory = Path(environment["WARREN_RUNTIME_DIR"])
    path = directory / "ctl@here.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_open_to_others_is_not_trusted(
    node: object, environment: dict[str, str]
) -> None:
    directory = Path(environment["WARREN_RUNTIME_DIR"])
    mode = stat.S_IMODE(directory.stat().st_mode)
    directory.chmod(0o777)
    try:
        done = ctl(environment, "ping")
    finally:
        directory.chmod(mode)
    assert done.returncode == 69
    assert "not to be trusted" in done.stderr


def test_a_call_is_quick(
    node: object, environment: dict[str, str], judge_time: Callable[[float, float], None]
) -> None:
    used, took_s = [], []
    for _ in range(9):
        before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        assert ctl(environment, "list_queues").returncode == 0
        took_s.append(time.perf_counter() - began_s)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # The clock on the wall measures the other tests as well; `make timing` and `make bench` have
    # the machine to themselves.
    assert min(used) < CALL_S
    judge_time(median(took_s), CALL_S)


def test_a_pipe_that_ends_early(node: object, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m warren.ctl.main help | head -1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_stop(node: subprocess.Popen[str], environment: dict[str, str], tmp_path: Path) -> None:
    # Before anything is done it is told what it is to wait for.
    done = ctl(environment, "stop", str(tmp_path / "none"))
    assert (done.returncode, node.poll()) == (65, None)
    assert "no process id in" in done.stderr
    pidfile = tmp_path / "pid"
    pidfile.write_text(f"{node.pid}\n")
    done = ctl(environment, "stop", str(pidfile))
    assert done.returncode == 0, done
    # It has ended when the command does.
    assert node.wait(1) == 0
    assert not list(Path(environment["WARREN_RUNTIME_DIR"]).glob("*.sock"))
    assert ctl(environment, "ping").returncode == 69


def test_shutdown_waits_for_the_process(environment: dict[str, str], tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    own = {**environment, "WARREN_RUNTIME_DIR": str(directory)}
    node = start(own)
    done = ctl(own, "shutdown", "--wait")
    assert done.returncode == 0, done
    assert node.wait(1) == 0
