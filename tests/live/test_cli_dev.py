"""`warren dev`: how soon it is ready, what it prints, that what it prints works, how it ends."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

import warren
from warren.management import web_ui
from warren.node import greeting

WARREN = [sys.executable, "-m", "warren"]
#: Promised: a second from the start of the process.
READY_S = 1.0
WAIT_S = 60
FREE_PORTS = ("--port", "0", "--http-port", "0", "--metrics-port", "0")


class Command:
    """A running `warren` command."""

    def __init__(self, *arguments: str, ready_fd: bool = True, **env: str) -> None:
        reading, writing = os.pipe()
        more = ["--ready-fd", str(writing)] if ready_fd else []
        self.process = subprocess.Popen(
            [*WARREN, *arguments, *more],
            pass_fds=[writing],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        os.close(writing)
        with os.fdopen(reading) as ready:
            self.url = ready.readline().strip()

    def processor_s(self) -> float:
        """The processor time it has had so far."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=WAIT_S)


@pytest.fixture
def dev() -> Iterator[Command]:
    command = Command("dev", *FREE_PORTS)
    yield command
    command.kill()


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command that is expected to end by itself."""
    return subprocess.run(
        [*WARREN, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, **env},
    )


def test_ready_within_a_second(dev: Command, judge_time: Callable[[float, float], None]) -> None:
    # Start-up waits for nothing, so on a machine that is free its time is its processor time; the
    # clock on the wall would measure the other tests.
    judge_time(dev.processor_s(), READY_S)


def test_what_it_prints(dev: Command) -> None:
    code, out, err = dev.stop()
    assert (code, err) == (0, "")
    first, amqp, api, metrics, attempt, data, stop = out.splitlines()
    assert re.fullmatch(rf"warren {re.escape(warren.__version__)}  ready in \d+\.\d\d s", first)
    assert re.fullmatch(r"  AMQP   amqp://guest:guest@127\.0\.0\.1:\d+", amqp)
    assert amqp.split()[1] == dev.url
    assert re.fullmatch(
        r"  HTTP   http://127\.0\.0\.1:\d+/  \(web UI; the API is below /api\)", api
    )
    assert re.fullmatch(r"  Stats  http://127\.0\.0\.1:\d+/metrics", metrics)
    assert attempt.startswith("  Try    ")
    assert data == "  Data   in memory, gone when it stops"
    assert stop == "  Stop   Ctrl-C"


def test_it_says_whether_there_is_a_web_ui(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (greeting.WEB_UI.parent, greeting.WEB_UI.name) == (web_ui.FOLDER, web_ui.INDEX)
    for place, said in ((__file__, "web UI; the API is"), ("nowhere", "the web UI was not built")):
        monkeypatch.setattr(greeting, "WEB_UI", tmp_path / place)
        assert said in greeting._what_is_there()


def test_warrenctl_finds_it_at_once(tmp_path: Path) -> None:
    """The moment it says that it is ready, however busy the machine is."""
    env = {**os.environ, "WARREN_RUNTIME_DIR": str(tmp_path), "WARREN_NODENAME": "soon@here"}
    tmp_path.chmod(0o700)
    free = ["--port", "0", "--http-port", "0", "--metrics-port", "0"]
    command = [sys.executable, "-m", "warren", "dev", *free]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            assert (tmp_path / "soon@here.sock").is_socket()
            asked = [sys.executable, "-m", "warren.ctl.main", "ping"]
            subprocess.run(asked, env=env, stdout=subprocess.DEVNULL, timeout=60, check=True)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_the_command_to_try_works(dev: Command) -> None:
    assert dev.process.stdout is not None
    lines = [dev.process.stdout.readline() for _ in range(5)]
    attempt = lines[4].strip().removeprefix("Try").strip()
    done = subprocess.run(
        ["bash", "-c", attempt], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Hello, Warren" in done.stdout


def test_loopback_only(dev: Command) -> None:
    port = int(dev.url.rpartition(":")[2].strip("/"))
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    state = re.findall(rf"(\w+):{port:04X} \w+:0000 0A", listening)
    assert state == ["0100007F"]


def test_the_management_api_answers(dev: Command) -> None:
    assert dev.process.stdout is not None
    lines = [dev.process.stdout.readline() for _ in range(4)]
    answer = urllib.request.urlopen(
        urllib.request.Request(
            lines[2].split()[1] + "api/overview",
            headers={"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()},
        ),
        timeout=WAIT_S,
    )
    assert json.load(answer)["product_name"] == "RabbitMQ"
    with urllib.request.urlopen(lines[3].split()[1], timeout=WAIT_S) as page:
        assert b"rabbitmq_identity_info" in page.read()


def test_a_taken_http_port_is_a_note(dev: Command) -> None:
    assert dev.process.stdout is not None
    taken = [dev.process.stdout.readline() for _ in range(3)][2].split(":")[2].split("/")[0]
    other = Command("dev", "--port", "0", "--http-port", taken, "--metrics-port", "0")
    code, out, _ = other.stop()
    assert code == 0
    assert f"port {taken} is taken by another program" in out


def test_a_servers_configuration_does_not_widen_it(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq.conf"
    path.write_text("listeners.tcp.1 = 0\nlisteners.ssl.1 = 0\n")
    command = Command("dev", *FREE_PORTS, RABBITMQ_CONFIG_FILE=str(path))
    assert command.url.startswith("amqp://guest:guest@127.0.0.1:")
    assert command.stop()[0] == 0


def test_all_interfaces_when_asked() -> None:
    command = Command("dev", *FREE_PORTS, "--host", "0.0.0.0")
    assert command.url.startswith("amqp://guest:guest@127.0.0.1:")
    code, out, _ = command.stop()
    assert code == 0
    assert "'guest' can log in from this machine only" in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_cleanly_with_clients_connected(dev: Command, number: int) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(dev.url))
    code, _, err = dev.stop(number)
    assert code == 0
    assert "Traceback" not in err
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED"):
        connection.process_data_events(30)


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("dev", "--port", port)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken by another program" in done.stderr
    assert "--port 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_flags() -> None:
    assert run("dev", "--port", "70000").returncode == 2
    assert run("dev", "--log-level", "loud").returncode == 2
    done = run("dev", "--host", "no.such.host.invalid", "--port", "0")
    assert done.returncode == 1
    assert "cannot listen on port 0 on no.such.host.invalid" in done.stderr


def test_pid_file(tmp_path: Path) -> None:
    path = tmp_path / "run" / "warren.pid"
    command = Command("dev", *FREE_PORTS, WARREN_PID_FILE=str(path))
    assert int(path.read_text()) == command.process.pid
    assert command.stop()[0] == 0
    assert not path.exists()


def test_version_and_help() -> None:
    assert run("--version").stdout == f"warren, version {warren.__version__}\n"
    shown = run("--help").stdout
    assert "dev" in shown
    assert "serve" in shown


def test_the_command_is_installed() -> None:
    program = Path(sys.executable).parent / "warren"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert warren.__version__ in done.stdout
