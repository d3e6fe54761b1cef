"""A cluster for tests: real processes on this machine, on free ports, in a directory of their own.

    with Cluster(3) as cluster:
        connection = pika.BlockingConnection(pika.URLParameters(cluster.url(1)))
        cluster.kill(2)

Nodes are numbered from 1. When `with` ends they are ended, whatever happened; when the test's own
process is killed they end by themselves.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import TracebackType
from typing import Self

from warren.base.runtime import control_socket
from warren.node.local_nodes import (
    LOOPBACK,
    READY_S,
    Control,
    LocalNode,
    LocalNodeError,
    await_ready,
    control,
    do_not_await,
    start_node,
    write_configuration,
)
from warren.node.process_mark import ProcessMark
from warren.node.secret import make_secret_file
from warren.testing.link_proxies import LinkProxies
from warren.testing.ports import reserve_ports

#: How long a node that was asked to stop may take.
STOP_S = 30.0
#: How often the nodes are started anew when somebody else was quicker to take a port.
ATTEMPTS = 3
#: A longer directory would leave no room for a socket's name: the system allows 107 bytes.
SOCKET_DIRECTORY_BYTES_MAX = 70
_TAKEN = "is taken by another program"
_FAULT = "Traceback (most recent call last)"
_LOOK_AGAIN_S = 0.05


class ClusterFault(RuntimeError):
    """A node failed during the test by itself; the text holds the end of its log."""


class CtlFailed(RuntimeError):
    """warrenctl ended with another status than 0."""

    def __init__(self, words: Sequence[str], status: int, output: str) -> None:
        super().__init__(f"warrenctl {' '.join(words)}: exit status {status}\n{output}")
        self.status = status
        self.output = output


class Cluster:
    """See the module's text. `config` takes keys of rabbitmq.conf for all nodes.

    `node_config` takes more of them by the number of a node, `node_env` its environment variables.
    With a `directory` the nodes' files are there and stay. With `proxied_links` what nodes say to
    each other goes through `links`, which can be cut in one direction only, slowed down and reset.
    """

    def __init__(
        self,
        n: int = 3,
        *,
        config: Mapping[str, object] | None = None,
        node_config: Mapping[int, Mapping[str, object]] | None = None,
        node_env: Mapping[int, Mapping[str, str]] | None = None,
        directory: Path | str | None = None,
        ready_s: float = READY_S,
        proxied_links: bool = False,
    ) -> None:
        if n < 1:
            raise ValueError("a cluster has at least one node")
        for what, given in (("node_config", node_config), ("node_env", node_env)):
            unknown = sorted(set(given or {}) - set(range(1, n + 1)))
            if unknown:
                raise ValueError(f"{what} names node {unknown[0]}; nodes are 1 to {n}")
        self._count = n
        self._config = dict(config or {})
        self._node_config = dict(node_config or {})
        self._node_env = dict(node_env or {})
        self._kept = None if directory is None else Path(directory).absolute()
        self._ready_s = ready_s
        self._proxied = proxied_links
        self._links: LinkProxies | None = None
        self._nodes: list[LocalNode] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._paused: set[int] = set()
        self._parted: set[frozenset[int]] = set()
        self._ends = contextlib.ExitStack()
        self._directory = Path()
        self._sockets = Path()
        self._watch_fd = -1

    # -- its life ----------------------------------------------------------------------------------

    def up(self) -> Self:
        """Start all nodes; returns when all are ready. Raises LocalNodeError."""
        if self._nodes:
            raise RuntimeError("the cluster is up already")
        try:
            self._prepare()
            for attempt in range(1, ATTEMPTS + 1):
                self._plan()
                try:
                    self._launch(range(1, self._count + 1))
                    break
                except LocalNodeError as error:
                    self._end_all()
                    if _TAKEN not in str(error) or attempt == ATTEMPTS:
                        raise
            self.wait_until_ready()
        except BaseException:
            self.down()
            raise
        return self

    def _prepare(self) -> None:
        self._directory = self._kept or _temporary(self._ends, None)
        self._directory.mkdir(parents=True, exist_ok=True)
        too_long = len(os.fsencode(tempfile.gettempdir())) > SOCKET_DIRECTORY_BYTES_MAX
        self._sockets = _temporary(self._ends, "/tmp" if too_long else None)
        reading, writing = os.pipe()
        self._ends.callback(os.close, reading)
        self._ends.callback(os.close, writing)
        self._watch_fd = reading
        make_secret_file(self._directory / "cookie")

    def _plan(self) -> None:
        ports = reserve_ports(4 * self._count, self._ends)
        self._nodes = [
            LocalNode(number, f"node{number}@localhost", self._directory / f"node{number}", *four)
            for number, four in enumerate(zip(*[iter(ports)] * 4, strict=True), start=1)
        ]
        if self._proxied:
            self._links = LinkProxies(
                {node.number: node.link_port for node in self._nodes}, self._ends
            )

    def _launch(self, numbers: Iterable[int], wait: bool = True) -> None:
        starting = []
        for number in numbers:
            node = self._nodes[number - 1]
            if self._links is not None:
                self._links.listen_for(number)
            more = {**self._link_config(node), **self._config, **self._node_config.get(number, {})}
            secret_file = self._directory / "cookie"
            configuration = write_configuration(self._nodes, node, secret_file, more)
            env = {**self._node_env.get(number, {}), "WARREN_RUNTIME_DIR": str(self._sockets)}
            one = start_node(node, configuration, env, self._watch_fd)
            self._processes[number] = one.process
            starting.append(one)
        if wait:
            await_ready(starting, self._socket, timeout_s=self._ready_s)
        else:
            do_not_await(starting)

    def _link_config(self, node: LocalNode) -> dict[str, object]:
        """Where the node finds the others, when there are proxies between them."""
        links = self._links
        if links is None:
            return {}
        others = [other for other in self._nodes if other is not node]
        return {
            f"cluster.nodes.{other.name}": f"{LOOPBACK}:{links.port(node.number, other.number)}"
            for other in others
        }

    def down(self) -> None:
        """End all nodes and remove their files; twice is fine."""
        self._end_all()
        self._ends.close()
        self._nodes = []
        self._links = None
        self._parted.clear()

    def _end_all(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        self._paused.clear()

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            fault = self._fault()
            if error is not None:
                for node in self._nodes:
                    error.add_note(f"the end of the log of {node.name}:\n{node.last_lines()}")
        finally:
            self.down()
        if fault is not None and error is None:
            raise ClusterFault(fault)

    def _fault(self) -> str | None:
        """What a node's log says of a failure of its own."""
        for number, node in enumerate(self._nodes, start=1):
            before, *tracebacks = self.log(number).split(_FAULT)
            for after in tracebacks:
                if not _tells_of_a_bad_disk(after):
                    lines = [*before.splitlines()[-1:], _FAULT + after[:4000]]
                    return f"{node.name} failed:\n" + "\n".join(lines)
                before = after
        return None

    # -- where the nodes are -----------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return [node.name for node in self._nodes]

    @property
    def numbers(self) -> list[int]:
        return [node.number for node in self._nodes]

    @property
    def running(self) -> list[int]:
        """The numbers of the nodes whose process runs, paused ones included."""
        return sorted(n for n, process in self._processes.items() if process.poll() is None)

    def url(self, n: int) -> str:
        """Where clients connect to a node, as guest."""
        return self._node(n).url

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self._nodes]

    def management_url(self, n: int) -> str:
        return self._node(n).management_url

    def data_dir(self, n: int) -> Path:
        return self._node(n).data_dir

    def pid(self, n: int) -> int:
        """The process of a node. Raises RuntimeError when it does not run."""
        return self._process(n).pid

    def log(self, n: int) -> str:
        """All that a node has logged, over all of its starts."""
        try:
            return self._node(n).log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _node(self, n: int) -> LocalNode:
        if not 1 <= n <= len(self._nodes):
            raise ValueError(f"there is no node {n}: nodes are 1 to {len(self._nodes)}")
        return self._nodes[n - 1]

    def _process(self, n: int) -> subprocess.Popen[bytes]:
        node, process = self._node(n), self._processes.get(n)
        if process is None or process.poll() is not None:
            raise RuntimeError(f"{node.name} does not run")
        return process

    def _socket(self, node: LocalNode) -> Path:
        return self._sockets / control_socket(node.name).name

    def _control(self, n: int) -> Control:
        node = self._node(n)
        return control(node, self._socket(node))

    # -- what happens to them ----------------------------------------------------------------------

    def kill(self, n: int) -> None:
        """As a crash would end it."""
        process = self._process(n)
        process.kill()
        process.wait()
        self._gone(n)

    def stop(self, n: int) -> None:
        """In good order; returns when it has ended. Raises RuntimeError when it does not."""
        process = self._process(n)
        process.terminate()
        if n in self._paused:
            process.send_signal(signal.SIGCONT)
        try:
            status = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"node {n} did not stop in {STOP_S:g} s") from None
        self._gone(n)
        if status != 0:
            raise RuntimeError(f"node {n} ended with {status}:\n{self._node(n).last_lines()}")

    def _gone(self, n: int) -> None:
        del self._processes[n]
        self._paused.discard(n)
        if self._links is not None:
            self._links.refuse_for(n)

    def start(self, n: int, wait: bool = True) -> None:
        """Start a node that was killed or stopped; returns when it is ready, or at once.

        Where most nodes are down, one alone does not get ready: see `start_all`. A node that is
        parted from another must be waited for.
        """
        node = self._node(n)
        if n in self.running:
            raise RuntimeError(f"{node.name} runs already")
        if not wait and any(n in pair for pair in self._parted):
            raise ValueError(f"{node.name} is parted from others: it must be waited for")
        self._launch([n], wait)
        for pair in self._parted:
            if n in pair:
                self._part(pair)

    def start_all(self) -> None:
        """Start all nodes that do not run, at once."""
        self._launch([n for n in self.numbers if n not in self.running])
        for pair in self._parted:
            self._part(pair)

    def restart(self, n: int) -> None:
        """Stop in good order, and start."""
        self.stop(n)
        self.start(n)

    def pause(self, n: int) -> None:
        """Stop its process in its tracks: connections stay, nothing is answered."""
        self._process(n).send_signal(signal.SIGSTOP)
        self._paused.add(n)
        mark = ProcessMark.of(self.pid(n))
        while mark is not None and not mark.is_paused and mark.is_alive:
            time.sleep(0.001)

    def resume(self, n: int) -> None:
        """Let a paused one go on."""
        self._process(n).send_signal(signal.SIGCONT)
        self._paused.discard(n)

    def partition(self, a: int, b: int) -> None:
        """Let nothing through between two nodes. Raises LocalNodeError."""
        if self._node(a) is self._node(b):
            raise ValueError("a node cannot be parted from itself")
        pair = frozenset({a, b})
        self._part(pair)
        self._parted.add(pair)

    def _part(self, pair: frozenset[int]) -> None:
        one, other = sorted(pair)
        for n, peer in ((one, other), (other, one)):
            # One that is down is parted when it starts.
            if n in self.running:
                self._control(n).block(self._node(peer))

    @property
    def links(self) -> LinkProxies:
        """The proxies between the nodes. Raises RuntimeError where there are none."""
        if self._links is None:
            raise RuntimeError("there are no proxies: Cluster(n, proxied_links=True) has them")
        return self._links

    def isolate(self, n: int) -> None:
        """Part a node from all others."""
        self._node(n)
        for other in self.numbers:
            if other != n:
                self.partition(n, other)

    def split(self, *sides: Iterable[int]) -> None:
        """Part each node of a side from all nodes of the other sides."""
        for one, other in combinations([list(side) for side in sides], 2):
            for a in one:
                for b in other:
                    self.partition(a, b)

    def heal(self) -> None:
        """Let everything through between all nodes."""
        self._parted.clear()
        if self._links is not None:
            self._links.heal()
        for n in self.running:
            self._control(n).unblock_all()

    def wait_until_ready(self, timeout_s: float | None = None) -> None:
        """Until every node that runs serves clients and sees all others that run.

        Paused and parted nodes are not waited for. Raises LocalNodeError.
        """
        until_s = time.monotonic() + (self._ready_s if timeout_s is None else timeout_s)
        parted = {n for pair in self._parted for n in pair}
        wanted = [n for n in self.running if n not in self._paused | parted]
        while True:
            missing = [reason for n in wanted for reason in self._missing(n, wanted)]
            if not missing:
                return
            if time.monotonic() >= until_s:
                raise LocalNodeError(f"not ready: {'; '.join(missing)}")
            time.sleep(_LOOK_AGAIN_S)

    def _missing(self, n: int, wanted: Sequence[int]) -> list[str]:
        try:
            shown = self._control(n).get("/warren/cluster/status")
        except LocalNodeError as error:
            return [str(error)]
        if not shown["app_running"]:
            return [f"{shown['node']} lets no clients in"]
        if len(shown["nodes"]) == 1:
            # It is by itself, and knows no others.
            return []
        seen = {row["name"] for row in shown["nodes"] if row["running"]}
        names = [self._node(other).name for other in wanted]
        return [f"{shown['node']} does not see {name}" for name in names if name not in seen]

    def ctl(self, n: int, *words: str) -> str:
        """What `warrenctl` prints, run against a node. Raises CtlFailed."""
        kept = {name: os.environ[name] for name in os.environ if not name.startswith("WARREN_")}
        done = subprocess.run(
            [sys.executable, "-m", "warren.ctl.main", "-n", self._node(n).name, *words],
            env={**kept, "WARREN_RUNTIME_DIR": str(self._sockets)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CtlFailed(words, done.returncode, done.stdout + done.stderr)
        return done.stdout


def _tells_of_a_bad_disk(traceback: str) -> bool:
    """Whether the error is that of a log that cannot be written: the node ends by itself then.

    What was under way on its connections fails with it, and says so.
    """
    ends = (line for line in traceback.splitlines()[1:] if not line.startswith(" "))
    return re.fullmatch(r"OSError: \[Errno \d+\] .*/data/log'", next(ends, "")) is not None


def _temporary(ends: contextlib.ExitStack, place: str | None) -> Path:
    """A directory that is removed in the end; nobody else can look into it."""
    path = Path(tempfile.mkdtemp(prefix="warren-", dir=place))
    ends.callback(shutil.rmtree, path, ignore_errors=True)
    return path
