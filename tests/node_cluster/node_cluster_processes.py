"""Single nodes as processes, each with a configuration of its own, that tests join to a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from warren.base.runtime import control_socket
from warren.node.local_nodes import LocalNode, await_ready, start_node, write_configuration
from warren.node.secret import make_secret_file
from warren.testing.cluster import CtlFailed
from warren.testing.ports import reserve_ports


class Processes:
    """Nodes are numbered from 1; they end with `with`."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._ends = ExitStack()
        ports = reserve_ports(4 * count, self._ends)
        self._nodes = [
            LocalNode(number, f"one{number}@localhost", directory / str(number), *four)
            for number, four in enumerate(zip(*[iter(ports)] * 4, strict=True), start=1)
        ]
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        reading, writing = os.pipe()
        self._ends.callback(os.close, reading)
        self._ends.callback(os.close, writing)
        self._watch_fd = reading
        make_secret_file(directory / "cookie")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        self._ends.close()
        if error is not None:
            for node in self._nodes:
                error.add_note(f"the end of the log of {node.name}:\n{node.last_lines()}")

    def name(self, n: int) -> str:
        return self._nodes[n - 1].name

    def url(self, n: int) -> str:
        return self._nodes[n - 1].url

    def start(
        self,
        n: int,
        clustered: bool = True,
        wait: bool = True,
        knows: Iterable[int] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """With `clustered`, others may join it: it says where its links are.

        It is told where the nodes are that it `knows`, by default all. `more` are keys of its
        configuration.
        """
        node = self._nodes[n - 1]
        configuration = write_configuration([], node, self._directory / "cookie", more or {})
        lines = configuration.read_text().splitlines()
        kept = [line for line in lines if clustered or not line.startswith("cluster.listen")]
        # The others are where their names do not say.
        kept += [
            f"cluster.nodes.{other.name} = 127.0.0.1:{other.link_port}"
            for other in self._nodes
            if other is not node and (knows is None or other.number in knows)
        ]
        configuration.write_text("\n".join(kept) + "\n")
        env = {"WARREN_RUNTIME_DIR": str(self._sockets)}
        env["WARREN_DIST_PORT"] = str(node.link_port)
        starting = start_node(node, configuration, env, self._watch_fd)
        self._running[n] = starting.process
        if wait:
            await_ready([starting], self._socket, timeout_s=30)

    @property
    def _sockets(self) -> Path:
        return self._directory / "s"

    def _socket(self, node: LocalNode) -> Path:
        return self._sockets / control_socket(node.name).name

    def log(self, n: int) -> str:
        """All that a node has logged."""
        return self._nodes[n - 1].log.read_text(errors="replace")

    def kill(self, n: int) -> None:
        """As a crash would end it."""
        process = self._running.pop(n)
        process.kill()
        process.wait()

    def stop(self, n: int) -> None:
        process = self._running.pop(n)
        process.terminate()
        assert process.wait(20) == 0

    def ctl(self, n: int, *words: str) -> str:
        """What warrenctl prints. Raises CtlFailed."""
        kept = {name: os.environ[name] for name in os.environ if not name.startswith("WARREN_")}
        done = subprocess.run(
            [sys.executable, "-m", "warren.ctl.main", "-n", self.name(n), *words],
            env={**kept, "WARREN_RUNTIME_DIR": str(self._sockets)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CtlFailed(words, done.returncode, done.stdout + done.stderr)
        return done.stdout
