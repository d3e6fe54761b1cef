"""Nodes of one cluster as processes on this machine: planned, started, waited for, spoken to.

`warren cluster` and `warren.testing.Cluster` are both made of these.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from warren.ctl.client import Client
from warren.ctl.errors import CtlError

LOOPBACK = "127.0.0.1"
#: How long nodes have to get ready; the machine may be busy with many others.
READY_S = 60.0
#: How long a node may take to answer one question.
ANSWER_S = 10.0
#: Lines of its log that a node's failure is shown with.
LAST_LINES = 15


class LocalNodeError(Exception):
    """A node did not do what was asked of it; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node: its name, its ports, and the directory that holds all of its files."""

    #: From 1 on.
    number: int
    name: str
    directory: Path
    amqp_port: int
    management_port: int
    metrics_port: int
    link_port: int

    @property
    def ports(self) -> dict[str, int]:
        """By what they are for."""
        return {
            "AMQP": self.amqp_port,
            "management": self.management_port,
            "metrics": self.metrics_port,
            "link": self.link_port,
        }

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def pid_file(self) -> Path:
        return self.directory / "pid"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{LOOPBACK}:{self.amqp_port}"

    @property
    def management_url(self) -> str:
        return f"http://{LOOPBACK}:{self.management_port}"

    def as_dict(self) -> dict[str, Any]:
        """All but the directory, to be written down."""
        return {key: value for key, value in asdict(self).items() if key != "directory"}

    def last_lines(self) -> str:
        """The end of its log."""
        try:
            with self.log.open(errors="replace") as file:
                return "".join(deque(file, LAST_LINES)).rstrip()
        except OSError:
            return ""


def write_configuration(
    nodes: Iterable[LocalNode], node: LocalNode, secret_file: Path, more: Mapping[str, object]
) -> Path:
    """The node's configuration file, in its directory; `more` goes before what is usual."""
    keys: dict[str, object] = {
        "listeners.tcp.default": f"{LOOPBACK}:{node.amqp_port}",
        "management.tcp.ip": LOOPBACK,
        "management.tcp.port": node.management_port,
        "prometheus.tcp.ip": LOOPBACK,
        "prometheus.tcp.port": node.metrics_port,
        "cluster.listen": f"{LOOPBACK}:{node.link_port}",
        "cluster.secret_file": secret_file,
    }
    for other in nodes:
        keys[f"cluster_formation.classic_config.nodes.{other.number}"] = other.name
        name = other.name.replace(".", "\\.")
        keys[f"cluster.nodes.{name}"] = f"{LOOPBACK}:{other.link_port}"
    lines = [f"{key} = {_conf_text(value)}" for key, value in {**keys, **more}.items()]
    node.directory.mkdir(parents=True, exist_ok=True)
    path = node.directory / "rabbitmq.conf"
    path.write_text("\n".join(lines) + "\n")
    return path


def _conf_text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if "\n" in text or ("#" in text and "'" in text):
        raise ValueError(f"no configuration file can hold {text!r}")
    return f"'{text}'" if "#" in text else text


@dataclass(slots=True)
class Starting:
    """A node's process that is not known to be ready yet."""

    node: LocalNode
    process: subprocess.Popen[bytes]
    #: Hears of it when the node is ready; closed when the process ends before that.
    ready_fd: int
    heard: bytes = field(default=b"")


def start_node(
    node: LocalNode,
    configuration: Path,
    more_env: Mapping[str, str],
    watch_fd: int | None = None,
) -> Starting:
    """Start a node's process; `await_ready` tells how it went.

    With a `watch_fd` the node ends when the other end of that pipe is closed, and stays in this
    terminal's session; else it has a session of its own and lives on.
    """
    own = ("WARREN_", "RABBITMQ_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    runtime = os.environ.get("WARREN_RUNTIME_DIR")
    env = {**kept, "WARREN_NODENAME": node.name, **more_env}
    if runtime is not None:
        env.setdefault("WARREN_RUNTIME_DIR", runtime)
    command = [sys.executable, "-m", "warren", "serve", "--config", str(configuration)]
    command += ["--data-dir", str(node.data_dir)]
    ready_fd, writing = os.pipe()
    passed = [writing] if watch_fd is None else [writing, watch_fd]
    command += ["--ready-fd", str(writing)]
    command += [] if watch_fd is None else ["--watch-fd", str(watch_fd)]
    try:
        with node.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=watch_fd is None,
                # A group of its own: Ctrl-C is for the tests. And the system wakes and hangs up
                # on a paused group when the process that could have resumed it is gone.
                process_group=None if watch_fd is None else 0,
            )
    except BaseException:
        os.close(ready_fd)
        raise
    finally:
        os.close(writing)
    return Starting(node, process, ready_fd)


def await_ready(
    starting: Sequence[Starting],
    socket_of: Callable[[LocalNode], Path],
    on_ready: Callable[[LocalNode], None] = lambda _: None,
    timeout_s: float = READY_S,
) -> None:
    """Until all of them serve clients and answer operators.

    Raises LocalNodeError for the first that ends, or that is not ready by then.
    """
    until_s = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for one in starting:
            selector.register(one.ready_fd, selectors.EVENT_READ, one)
        try:
            while selector.get_map():
                found = selector.select(max(0.0, until_s - time.monotonic()))
                if not found:
                    raise LocalNodeError(_not_ready(selector.get_map().values(), timeout_s))
                for key, _ in found:
                    if _hears(key.data):
                        selector.unregister(key.fd)
                        _await_answer(key.data.node, socket_of(key.data.node), until_s)
                        on_ready(key.data.node)
        finally:
            for one in starting:
                os.close(one.ready_fd)


def do_not_await(starting: Iterable[Starting]) -> None:
    """Leave them to themselves."""
    for one in starting:
        os.close(one.ready_fd)


def _hears(one: Starting) -> bool:
    """Whether the node is ready. Raises LocalNodeError when it has ended instead."""
    piece = os.read(one.ready_fd, 4096)
    if not piece:
        text = f"{one.node.name} did not start"
        raise LocalNodeError(f"{text}; the end of {one.node.log}:\n{one.node.last_lines()}")
    one.heard += piece
    return one.heard.endswith(b"\n")


def _not_ready(waiting: Iterable[selectors.SelectorKey], timeout_s: float) -> str:
    nodes = [key.data.node for key in waiting]
    names = ", ".join(node.name for node in nodes)
    ends = "".join(f"\nthe end of {node.log}:\n{node.last_lines()}" for node in nodes)
    return f"not ready after {timeout_s:g} s: {names}{ends}"


def _await_answer(node: LocalNode, control_socket: Path, until_s: float) -> None:
    """Operators are let in a moment after clients."""
    while True:
        try:
            control(node, control_socket).get("/warren/cluster/online")
        except LocalNodeError as error:
            if time.monotonic() >= until_s:
                raise LocalNodeError(f"{node.name} does not answer operators: {error}") from error
            time.sleep(0.02)
        else:
            return


class Control:
    """One node's control socket. All methods raise LocalNodeError."""

    def __init__(self, node: LocalNode, path: Path, timeout_s: float) -> None:
        self._node = node
        self._client = Client(path, None, None, timeout_s)

    def get(self, path: str) -> Any:
        return self.want("GET", path)

    def want(self, method: str, path: str, body: object = None) -> Any:
        """A request that must be granted."""
        try:
            return self._client.want(method, path, body)
        except CtlError as error:
            text = str(error).removeprefix("Error:").strip().partition("\n")[0]
            raise LocalNodeError(f"{self._node.name}: {text}") from error

    def block(self, peer: LocalNode, blocked: bool = True) -> None:
        """Let nothing through to a peer, or again."""
        self.want("PUT", f"/warren/links/{quote(peer.name, safe='')}", {"blocked": blocked})

    def unblock_all(self) -> list[str]:
        """Let everything through; the peers that were blocked."""
        peers: list[str] = self.get("/warren/links")["blocked"]
        for peer in peers:
            self.want("PUT", f"/warren/links/{quote(peer, safe='')}", {"blocked": False})
        return peers


def control(node: LocalNode, path: Path, timeout_s: float = ANSWER_S) -> Control:
    """The control socket of a node."""
    return Control(node, path, timeout_s)
