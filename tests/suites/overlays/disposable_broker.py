"""Takes the place of the container client of the aio-pika suite: its containers are our brokers.

Asked for both ports it hands out the shared broker of this run. Asked for the plain port alone,
which is what the recovery tests do, it starts a broker for that test, which the test may then stop,
kill and start again. Only what the suite calls is here.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

SHARED_ID = "shared"
STOP_TIMEOUT_S = 25.0


class DockerNotAvailableError(Exception):
    """Never raised here; the suite imports it."""


@dataclass
class DockerHostInfo:
    """Where the suite believes its containers run."""

    container_host: str = "127.0.0.1"


@dataclass
class ContainerInfo:
    """What the suite knows of a running broker."""

    id: str
    ports: dict[str, int]
    host: str = "127.0.0.1"


@dataclass
class _Disposable:
    port: int
    directory: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = json.loads(os.environ["SUITES_BROKER_COMMAND"])
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), "--directory", self.directory.name],
            start_new_session=True,
        )

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


# The suite makes several clients that speak of the same containers.
_disposables: dict[str, _Disposable] = {}


def check_docker_available() -> DockerHostInfo:
    """Say that containers can be had."""
    return DockerHostInfo()


class DockerClient:
    """The calls the suite makes, on broker processes."""

    def __init__(self, docker_host_info: DockerHostInfo | None = None) -> None:
        self.docker_host_info = docker_host_info or DockerHostInfo()

    def run(
        self, image: str, ports: list[str], environment: dict[str, str] | None = None
    ) -> ContainerInfo:
        """Hand out the shared broker, or start one for the caller alone."""
        if "5671/tcp" in ports:
            shared = {
                "5672/tcp": int(os.environ["SUITES_PORT"]),
                "5671/tcp": int(os.environ["SUITES_TLS_PORT"]),
            }
            return ContainerInfo(SHARED_ID, shared)
        if "SUITES_BROKER_COMMAND" not in os.environ:
            pytest.skip("a broker given by its URL cannot be stopped and started")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            broker = _Disposable(probe.getsockname()[1])
        name = f"broker-{broker.port}"
        _disposables[name] = broker
        broker.start()
        return ContainerInfo(name, {"5672/tcp": broker.port})

    def start(self, container_id: str) -> None:
        """Start a stopped or killed broker again, on its port and its data."""
        _disposables[container_id].start()

    def kill(self, container_id: str) -> None:
        """Kill a broker without a warning; the shared one is not the suite's to kill."""
        if container_id in _disposables:
            _disposables[container_id].kill()

    def remove(self, container_id: str) -> None:
        """Forget a broker and its data."""
        broker = _disposables.pop(container_id, None)
        if broker is not None:
            broker.kill()
            broker.directory.cleanup()

    def inspect(self, container_id: str) -> dict[str, Any]:
        """Only what `_parse_ports` reads back."""
        return {"port": _disposables[container_id].port}

    def _parse_ports(self, info: dict[str, Any]) -> dict[str, int]:
        return {"5672/tcp": info["port"]}

    def _request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Stand in for `exec rabbitmqctl stop_app` and `start_app`: they are done at once."""
        parts = path.strip("/").split("/")
        if parts[0] == "containers" and parts[2] == "exec":
            broker = _disposables[parts[1]]
            {"stop_app": broker.stop, "start_app": broker.start}[body["Cmd"][1]]()
            return {"Id": parts[1]}
        return {"Running": False, "ExitCode": 0}
