"""A cluster to try things out with: its nodes run on this machine, its files are in one directory.

.warren/cluster.json      what was asked for
.warren/cookie            the secret of the cluster
.warren/warren1/          one node: data, log, configuration, and which process it is
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warren.base.runtime import control_socket
from warren.config.cluster import LINK_PORT_OFFSET
from warren.config.settings import AMQP_PORT, MANAGEMENT_PORT, PROMETHEUS_PORT
from warren.node.local_nodes import (
    LOOPBACK,
    Control,
    LocalNode,
    LocalNodeError,
    Starting,
    await_ready,
    control,
    do_not_await,
    start_node,
    write_configuration,
)
from warren.node.process_mark import ProcessMark
from warren.node.secret import make_secret_file

DIRECTORY = Path(".warren")
NODES = 3
#: With more, the ports of one kind would run into those of another.
NODES_MAX = 9
#: How long a node that was asked to stop may take.
STOP_S = 30.0
#: How long a node may take to say how it is.
STATUS_S = 2.0


class TryOutError(Exception):
    """What was asked for cannot be done; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node at this moment."""

    node: LocalNode
    state: str
    pid: int | None = None
    role: str | None = None
    blocked: Sequence[str] = ()


class TryOut:
    """The cluster of one directory."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self.directory = directory
        self._plan = directory / "cluster.json"

    # -- what there is -----------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        return self._plan.exists()

    def nodes(self) -> list[LocalNode]:
        """All nodes. Raises TryOutError when there are none."""
        try:
            found = json.loads(self._plan.read_text())["nodes"]
            return [LocalNode(directory=self._place(row["number"]), **row) for row in found]
        except FileNotFoundError:
            raise TryOutError(
                f"there is no cluster in {self.directory}: start one with warren cluster up"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TryOutError(f"{self._plan} cannot be read: {error}") from error

    def node(self, word: str) -> LocalNode:
        """The node of a number or a name. Raises TryOutError."""
        nodes = self.nodes()
        for node in nodes:
            if word in {str(node.number), node.name, node.name.partition("@")[0]}:
                return node
        names = ", ".join(f"{node.number} ({node.name})" for node in nodes)
        raise TryOutError(f"there is no node {word}; there are {names}")

    def _place(self, number: int) -> Path:
        return self.directory / f"warren{number}"

    def status(self) -> list[NodeState]:
        """All nodes as they are now."""
        return [self._state(node) for node in self.nodes()]

    def _state(self, node: LocalNode) -> NodeState:
        mark = ProcessMark.read(node.pid_file)
        if mark is None:
            return NodeState(node, "down")
        if not mark.is_alive:
            return NodeState(node, "died")
        if mark.is_paused:
            return NodeState(node, "paused", mark.pid)
        try:
            ask = control(node, control_socket(node.name), STATUS_S)
            shown = ask.get("/warren/cluster/status")
            blocked = ask.get("/warren/links")["blocked"]
        except LocalNodeError:
            return NodeState(node, "not answering", mark.pid)
        role = next((row["role"] for row in shown["nodes"] if row["name"] == node.name), None)
        state = "running" if shown["app_running"] else "app stopped"
        return NodeState(node, state, mark.pid, role, blocked)

    @property
    def _more(self) -> dict[str, object]:
        """The nodes know that they are a try-out, and how one is started again."""
        is_usual = self.directory.absolute() == DIRECTORY.absolute()
        where = "" if is_usual else f" --dir {shlex.quote(str(self.directory.absolute()))}"
        return {"cluster.try_out": f"warren cluster{where} start {{node}}", **self._settings()}

    def _settings(self) -> dict[str, str]:
        """What `up --set` has said."""
        try:
            told: dict[str, str] = json.loads(self._plan.read_text()).get("settings", {})
        except FileNotFoundError:
            return {}
        return told

    def is_alive(self, node: LocalNode) -> bool:
        mark = ProcessMark.read(node.pid_file)
        return mark is not None and mark.is_alive

    # -- up and down -------------------------------------------------------------------------------

    def up(
        self,
        count: int | None,
        first_port: int | None,
        on_start: Callable[[Sequence[LocalNode]], None],
        on_ready: Callable[[LocalNode], None],
        settings: Mapping[str, str] | None = None,
    ) -> list[LocalNode]:
        """Start what does not run; those that were started. Raises TryOutError, LocalNodeError.

        `settings` are keys of the configuration that all nodes get from their next start on.
        """
        with self._alone():
            nodes = self._planned(count, first_port)
            waiting = [node for node in nodes if not self.is_alive(node)]
            check_places(waiting)
            if not self.exists:
                make_secret_file(self.directory / "cookie")
            if not self.exists or settings:
                told = {**self._settings(), **(settings or {})}
                plan = {"nodes": [node.as_dict() for node in nodes], "settings": told}
                self._plan.write_text(json.dumps(plan) + "\n")
            on_start(waiting)
            self._start(nodes, waiting, on_ready)
            return waiting

    def _planned(self, count: int | None, first_port: int | None) -> list[LocalNode]:
        if not self.exists:
            first = first_port or AMQP_PORT
            # Try-outs in several directories need nodes of several names.
            more = "" if first == AMQP_PORT else f"-{first}"
            return [
                LocalNode(n, f"warren{n}{more}@localhost", self._place(n), **node_ports(n, first))
                for n in range(1, (count or NODES) + 1)
            ]
        nodes = self.nodes()
        if count not in {None, len(nodes)} or first_port not in {None, nodes[0].amqp_port}:
            raise TryOutError(
                f"{self.directory} holds a cluster of {len(nodes)} nodes from port "
                f"{nodes[0].amqp_port} on: leave -n and --port out to go on with it, or remove it "
                "first with warren cluster down --wipe"
            )
        return nodes

    def _start(
        self,
        nodes: Sequence[LocalNode],
        waiting: Sequence[LocalNode],
        on_ready: Callable[[LocalNode], None] = lambda _: None,
        wait: bool = True,
    ) -> None:
        secret_file = (self.directory / "cookie").absolute()
        starting: list[Starting] = []
        for node in waiting:
            configuration = write_configuration(nodes, node, secret_file, self._more)
            one = start_node(node, configuration, {})
            starting.append(one)
            mark = ProcessMark.of(one.process.pid)
            if mark is not None:
                mark.write(node.pid_file)
        if not wait:
            do_not_await(starting)
            return
        # Those that are late, or that outlive another's failure, go on.
        await_ready(starting, lambda node: control_socket(node.name), on_ready)

    def start(self, node: LocalNode, wait: bool = True) -> bool:
        """Start one node, and wait until it is ready; False when it runs already."""
        with self._alone():
            if self.is_alive(node):
                return False
            check_places([node])
            self._start(self.nodes(), [node], wait=wait)
            return True

    def kill(self, node: LocalNode) -> bool:
        """As a crash would end it; False when it does not run."""
        with self._alone():
            return self._end(node, signal.SIGKILL)

    def stop(self, node: LocalNode) -> bool:
        """In good order; False when it does not run. Raises TryOutError when it will not end."""
        with self._alone():
            return self._end(node, signal.SIGTERM)

    def _end(self, node: LocalNode, number: signal.Signals) -> bool:
        """A process that is not the node's, or not any more, is left alone."""
        mark = ProcessMark.read(node.pid_file)
        was_alive = mark is not None and mark.send(number)
        if mark is not None and was_alive:
            # A paused one hears of it only when it goes on.
            mark.send(signal.SIGCONT)
            if not mark.wait(STOP_S):
                raise TryOutError(
                    f"{node.name} (process {mark.pid}) did not end in {STOP_S:g} s: "
                    f"warren cluster kill {node.number}"
                )
        node.pid_file.unlink(missing_ok=True)
        return was_alive

    def down(self, wipe: bool) -> list[LocalNode]:
        """Stop all nodes, and with `wipe` remove their files; those that ran."""
        with self._alone():
            nodes = self.nodes()
            alive = [node for node in nodes if self.is_alive(node)]
            # All at once, so that none takes the others' end for a failure to be mended.
            with ThreadPoolExecutor(NODES_MAX) as pool:
                list(pool.map(lambda node: self._end(node, signal.SIGTERM), nodes))
            if wipe:
                self._wipe(nodes)
            return alive

    def _wipe(self, nodes: Sequence[LocalNode]) -> None:
        """What we made, and nothing else that may be in the directory."""
        for node in nodes:
            shutil.rmtree(node.directory, ignore_errors=True)
        for name in ("cookie", "cluster.json", "lock"):
            (self.directory / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def size_bytes(self) -> int:
        """What its files take on the disk."""
        sizes = 0
        for folder, _, names in os.walk(self.directory):
            for name in names:
                with contextlib.suppress(OSError):
                    sizes += os.stat(os.path.join(folder, name)).st_blocks * 512
        return sizes

    # -- partitions --------------------------------------------------------------------------------

    def _control(self, node: LocalNode) -> Control:
        if not self.is_alive(node):
            raise TryOutError(f"{node.name} does not run: warren cluster start {node.number}")
        return control(node, control_socket(node.name))

    def partition(self, one: LocalNode, other: LocalNode) -> None:
        """Let nothing through between two nodes."""
        if one == other:
            raise TryOutError("a node cannot be parted from itself: name two")
        pairs = [(self._control(one), other), (self._control(other), one)]
        for ask, peer in pairs:
            ask.block(peer)

    def heal(self) -> list[tuple[str, str]]:
        """Let everything through; the pairs that were parted, on each side that was."""
        return [
            (node.name, peer)
            for node in self.nodes()
            if self.is_alive(node)
            for peer in self._control(node).unblock_all()
        ]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two commands at once would each start what the other does."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TryOutError(
                    f"another warren cluster command works on {self.directory}; wait for it"
                ) from None
            try:
                yield
            finally:
                if not self.exists:
                    self._wipe([])


def node_ports(number: int, first_port: int) -> dict[str, Any]:
    """The management's and the metrics' ports are as far from the usual as the AMQP port is."""
    further = number - 1
    shift = first_port - AMQP_PORT + further
    return {
        "amqp_port": first_port + further,
        "management_port": MANAGEMENT_PORT + shift,
        "metrics_port": PROMETHEUS_PORT + shift,
        "link_port": first_port + further + LINK_PORT_OFFSET,
    }


def check_places(nodes: Sequence[LocalNode]) -> None:
    """Raises TryOutError that names every port, or else every name, that is taken."""
    taken = [
        f"port {port} ({what} of {node.name})"
        for node in nodes
        for what, port in node.ports.items()
        if not is_free(port)
    ]
    if taken:
        raise TryOutError(
            f"taken by another program, perhaps another broker: {', '.join(taken)}.\n"
            f"Find it with: ss -ltnp 'sport = :{taken[0].split()[1]}'\n"
            "Stop it, or choose other ports: warren cluster up --port 6672"
        )
    named = [node.name for node in nodes if _answers(control_socket(node.name))]
    if named:
        raise TryOutError(
            f"nodes of these names run already, perhaps those of another directory: "
            f"{', '.join(named)}.\nStop them: warrenctl -n {named[0]} stop"
        )


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(STATUS_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise
            return False
    return True
