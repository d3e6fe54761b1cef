"""The three nodes of a showcase: processes of this machine that end with it, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from warren.node.local_nodes import (
    LocalNode,
    LocalNodeError,
    Starting,
    await_ready,
    control,
    start_node,
    write_configuration,
)
from warren.node.secret import make_secret_file
from warren.node.try_out import NODES, TryOutError, is_free, node_ports

#: Tried one after the other, until all ports of one are free.
FIRST_PORTS = (5672, 6672, 7672, 8672, 9672)
STOP_S = 20.0
ANSWER_S = 5.0


class ShowcaseNodes:
    """Started by `with`; everything in `directory` that an earlier one left is removed."""

    def __init__(
        self,
        directory: Path,
        first_port: int | None,
        config: Mapping[str, object],
        on_ready: Callable[[LocalNode], None],
    ) -> None:
        self.directory = directory.absolute()
        self.nodes: list[LocalNode] = []
        self._first_port = first_port
        self._config = dict(config)
        self._on_ready = on_ready
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ends = contextlib.ExitStack()
        self._sockets = Path()
        self._secret = self.directory / "cookie"
        #: Nodes end when the other end of this pipe is closed.
        self._watch_fd = -1

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        for number in range(1, NODES + 1):
            shutil.rmtree(self._place(number), ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._secret.unlink(missing_ok=True)
        make_secret_file(self._secret)
        # Unix sockets have short names only, so theirs is no place below ours.
        self._sockets = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="warren")))
        reading, writing = os.pipe()
        self._ends.callback(os.close, reading)
        self._ends.callback(os.close, writing)
        self._watch_fd = reading
        self.nodes = self._plan()
        await_ready([self._begin(node) for node in self.nodes], self._socket, self._on_ready)

    def _begin(self, node: LocalNode) -> Starting:
        configuration = write_configuration(self.nodes, node, self._secret, self._config)
        env = {"WARREN_RUNTIME_DIR": str(self._sockets)}
        one = start_node(node, configuration, env, watch_fd=self._watch_fd)
        self._processes[node.number] = one.process
        return one

    def _place(self, number: int) -> Path:
        return self.directory / f"warren{number}"

    def _plan(self) -> list[LocalNode]:
        """Raises TryOutError when no ports are free."""
        firsts = FIRST_PORTS if self._first_port is None else (self._first_port,)
        for first in firsts:
            nodes = [
                LocalNode(n, f"warren{n}@localhost", self._place(n), **node_ports(n, first))
                for n in range(1, NODES + 1)
            ]
            if all(is_free(port) for node in nodes for port in node.ports.values()):
                return nodes
        tried = ", ".join(str(first) for first in firsts)
        raise TryOutError(
            f"ports that the nodes need are taken, from {tried} on: stop what has them, or choose "
            "others with --port"
        )

    def _socket(self, node: LocalNode) -> Path:
        return self._sockets / f"{node.name}.sock"

    # -- at work -----------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """A request to the first node that answers. Raises LocalNodeError."""
        failure: LocalNodeError | None = None
        for node in self.alive:
            try:
                return control(node, self._socket(node), ANSWER_S).want(method, path, body)
            except LocalNodeError as error:
                failure = error
        raise failure or LocalNodeError("no node of the showcase runs any more")

    def ask_all(self, method: str, path: str, body: object = None) -> list[Any]:
        """The same, of every node that runs."""
        return [
            control(node, self._socket(node), ANSWER_S).want(method, path, body)
            for node in self.alive
        ]

    @property
    def alive(self) -> list[LocalNode]:
        return [n for n in self.nodes if self._processes[n.number].poll() is None]

    def by_name(self, name: str) -> LocalNode:
        return next(node for node in self.nodes if node.name == name)

    def kill(self, node: LocalNode) -> None:
        """As a crash would end it."""
        process = self._processes[node.number]
        process.kill()
        process.wait()

    def start_again(self, node: LocalNode) -> None:
        """A node that has ended, with the files that it left. Raises LocalNodeError."""
        await_ready([self._begin(node)], self._socket)

    def close(self) -> None:
        """Stop all nodes in good order, all at once; those that will not are killed."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ends.close()
