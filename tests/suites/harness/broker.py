"""Starts and stops a broker process for the suites: Warren, or Debian's RabbitMQ as the judge.

Both read the same configuration file. Every broker gets its own directory and its own ports on
127.0.0.1, and is ended by the process group it was started in, never by name.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from harness.certificates import Certificates
from harness.endpoint import Endpoint, free_ports
from harness.paths import PROJECT_DIR

#: RabbitMQ on a busy two-core machine needs up to 20 s; three times that is a broker that is stuck.
START_TIMEOUT_S = 60.0
#: A broker that does not end on SIGTERM within this time is killed.
STOP_TIMEOUT_S = 20.0
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
WARREN = PROJECT_DIR / ".venv" / "bin" / "warren"
RABBITMQ_SCRIPTS = "/usr/lib/rabbitmq/lib"


class BrokerFailedError(Exception):
    """The broker could not be started; the text names its log."""


def choose_endpoint() -> Endpoint:
    """Free ports for a broker with all three listeners."""
    port, tls_port, http_port = free_ports(3)
    return Endpoint("127.0.0.1", port, tls_port, http_port)


@contextmanager
def running_broker(
    kind: str,
    endpoint: Endpoint,
    certificates: Certificates,
    directory: Path,
    *,
    own_group: bool = True,
    warren: Path = WARREN,
) -> Iterator[None]:
    """Run a broker of `kind` (`warren` or `rabbitmq`) that keeps its files in `directory`.

    Without `own_group` it stays in the caller's process group, so that whoever kills that group
    kills the broker too, as a power cut would. `warren` is the command under test.

    Raises: BrokerFailedError when it is not installed, ends early or does not answer in time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    configuration = directory / "broker.conf"
    configuration.write_text(render_configuration(endpoint, certificates))
    log_path = directory / "broker.log"
    with ExitStack() as stack:
        log = stack.enter_context(log_path.open("ab"))
        if kind == "rabbitmq":
            epmd_port = _start_epmd(stack, own_group)
            environment = _rabbitmq_environment(directory, configuration, epmd_port)
            command = [_rabbitmq_server()]
        else:
            environment = {**os.environ, "WARREN_DATA_DIR": str(directory / "data")}
            with configuration.open("a") as more:
                more.write(_operating(endpoint))
            command = [_existing(warren), "serve", "--config", str(configuration)]
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=own_group,
        )
        stack.callback(stop_process, process)
        _wait_until_ready(process, endpoint, log_path)
        yield


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """End a process; when it leads its own group, also everything it left behind."""
    leads_group = _leads_group(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    with suppress(ProcessLookupError):
        if leads_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _leads_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


def render_configuration(endpoint: Endpoint, certificates: Certificates) -> str:
    """A `rabbitmq.conf` that both brokers understand; listeners without a port are left out."""
    lines = [f"listeners.tcp.1 = {endpoint.host}:{endpoint.port}"]
    if endpoint.tls_port is not None:
        lines += [
            f"listeners.ssl.1 = {endpoint.host}:{endpoint.tls_port}",
            f"ssl_options.cacertfile = {certificates.ca}",
            f"ssl_options.certfile = {certificates.server_certificate}",
            f"ssl_options.keyfile = {certificates.server_key}",
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = false",
        ]
    if endpoint.http_port is not None:
        lines += [
            f"management.tcp.ip = {endpoint.host}",
            f"management.tcp.port = {endpoint.http_port}",
        ]
    return "\n".join(lines) + "\n"


def _operating(endpoint: Endpoint) -> str:
    """Warren's other listeners, which it has without being asked: on this machine only."""
    parts = ["prometheus"] if endpoint.http_port is not None else ["management", "prometheus"]
    return "".join(f"{part}.tcp.ip = {endpoint.host}\n{part}.tcp.port = 0\n" for part in parts)


def _existing(warren: Path) -> str:
    if not warren.exists():
        raise BrokerFailedError(f"{warren} is missing: `make run` sets it up")
    return str(warren)


def _rabbitmq_server() -> str:
    """The script behind Debian's wrapper, which would insist on the system account and paths."""
    found = sorted(Path(RABBITMQ_SCRIPTS).glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not found:
        raise BrokerFailedError("rabbitmq-server is not installed (Debian: rabbitmq-server)")
    return str(found[-1])


def _start_epmd(stack: ExitStack, own_group: bool) -> int:
    """Run the Erlang port mapper as our child: left to itself it would outlive the broker."""
    (port,) = free_ports(1)
    epmd = subprocess.Popen(
        [shutil.which("epmd") or "epmd", "-address", "127.0.0.1", "-port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=own_group,
    )
    stack.callback(stop_process, epmd)
    return port


def _rabbitmq_environment(directory: Path, configuration: Path, epmd_port: int) -> dict[str, str]:
    """Everything that keeps this node apart from a RabbitMQ the machine may already run."""
    (distribution_port,) = free_ports(1)
    plugins = directory / "enabled_plugins"
    with_management = "management.tcp.port" in configuration.read_text()
    plugins.write_text("[rabbitmq_management].\n" if with_management else "[].\n")
    absent = str(directory / "absent")
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        # The name is part of the data's path: a broker started again in its directory finds it.
        "RABBITMQ_NODENAME": "suites@localhost",
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONFIG_FILE": str(configuration),
        "RABBITMQ_CONF_ENV_FILE": absent,
        "RABBITMQ_ADVANCED_CONFIG_FILE": absent,
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(directory / "feature_flags"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }


def _wait_until_ready(process: subprocess.Popen[bytes], endpoint: Endpoint, log_path: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    ports = [port for port in (endpoint.port, endpoint.tls_port) if port is not None]
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BrokerFailedError(f"the broker ended with {process.returncode}: see {log_path}")
        if _answers_amqp(endpoint) and all(_accepts(endpoint.host, port) for port in ports):
            return
        time.sleep(0.05)
    raise BrokerFailedError(f"no answer within {START_TIMEOUT_S:.0f} s: see {log_path}")


def _answers_amqp(endpoint: Endpoint) -> bool:
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=2) as connection:
            connection.settimeout(2)
            connection.sendall(PROTOCOL_HEADER)
            return len(connection.recv(8)) > 0
    except OSError:
        return False


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False
