"""RabbitMQ's nodes for runs under faults: as `warren.testing.Cluster`, as far as they ask.

Debian's rabbitmq-server, each node with a home, ports and a name daemon of its own; what they say
to each other goes through `links`, as that of Warren's nodes does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.brokers import BrokerError
from bench.clusters import RabbitNode, rabbit_settings
from name_daemon import NameDaemon, Names
from rings import Refused, api

from warren.node.local_nodes import LocalNodeError
from warren.testing.link_proxies import LinkProxies
from warren.testing.ports import reserve_ports

#: How long a node may take to start: it waits for others that were up when it went down.
READY_S = 240.0
#: Nodes that still see a partition after this do not heal by themselves.
HEALS_S = 25.0
#: Seconds without a sign of life after which a node takes another for gone. RabbitMQ's default is
#: 60, and no partition of these runs lasts so long.
TICK_S = 5


class ComparedNode(RabbitNode):
    """One whose ports are known before it starts."""

    def __init__(self, base: Path, name: str, ports: tuple[int, int, int, int]) -> None:
        port, self.link_port, http_port, epmd_port = ports
        super().__init__(base, name, port, epmd_port)
        self.http_port = http_port

    def environment(self) -> dict[str, str]:
        given = super().environment()
        arguments = f"{given['RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS']} -kernel net_ticktime {TICK_S}"
        return {
            **given,
            "RABBITMQ_DIST_PORT": str(self.link_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments,
        }


class RabbitNodes:
    """See the module's text. Numbered from 1; `mode` is how partitions are handled."""

    def __init__(self, count: int, mode: str, say: Callable[[str], None]) -> None:
        self._count = count
        self._mode = mode
        self._say = say
        self._ends = ExitStack()
        self._nodes: list[ComparedNode] = []
        self._paused: set[int] = set()
        #: How often an operator had to restart nodes that did not heal by themselves.
        self.mended_by_hand = 0
        self.links: LinkProxies

    # -- its life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._plan()
            for node in self._nodes:
                node.resume()
            self._await(self.numbers)
            self.wait_until_ready()
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._down()

    def _plan(self) -> None:
        base = Path(tempfile.mkdtemp(prefix="warren-compared-"))
        self._ends.callback(shutil.rmtree, base, ignore_errors=True)
        cookie = base / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        names = [f"compared{number}@localhost" for number in range(1, self._count + 1)]
        ports = reserve_ports(4 * self._count, self._ends)
        for number, four in enumerate(zip(*[iter(ports)] * 4, strict=True), start=1):
            node = ComparedNode(base / f"node{number}", names[number - 1], four)
            node.base.mkdir()
            node.settings = {
                **rabbit_settings(names),
                "cluster_partition_handling": self._mode,
                "loopback_users": "none",
                "log.file.level": "warning",
            }
            self._nodes.append(node)
        self.links = LinkProxies(
            {number: self._nodes[number - 1].link_port for number in self.numbers}, self._ends
        )
        registered = Names()
        for number, node in zip(self.numbers, self._nodes, strict=True):
            NameDaemon(registered, self._proxies_of(number), node.epmd_port, self._ends)

    def _proxies_of(self, number: int) -> Callable[[str], int | None]:
        """Where a node finds the others; a tool that calls itself something else is called back."""
        ports = {
            self._nodes[other - 1].node_name.partition("@")[0]: self.links.port(number, other)
            for other in self.numbers
            if other != number
        }
        return ports.get

    def _down(self) -> None:
        for node in self._nodes:
            node.halt(kill=True)
        self._ends.close()

    # -- where the nodes are -----------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        return list(range(1, self._count + 1))

    @property
    def nodes(self) -> list[str]:
        return [node.node_name for node in self._nodes]

    @property
    def running(self) -> list[int]:
        return [n for n in self.numbers if self._node(n).is_running]

    def url(self, n: int) -> str:
        return f"amqp://guest:guest@{self._node(n).endpoint}/"

    def management_url(self, n: int) -> str:
        return f"http://127.0.0.1:{self._node(n).http_port}"

    def _node(self, n: int) -> ComparedNode:
        return self._nodes[n - 1]

    # -- what happens to them ----------------------------------------------------------------------

    def kill(self, n: int) -> None:
        self._node(n).halt(kill=True)
        self.links.refuse_for(n)

    def stop(self, n: int) -> None:
        self._node(n).halt(kill=False)
        self.links.refuse_for(n)

    def start(self, n: int) -> None:
        self._launch([n])

    def start_all(self) -> None:
        self._launch([n for n in self.numbers if n not in self.running])

    def _launch(self, numbers: list[int]) -> None:
        for n in numbers:
            self.links.listen_for(n)
            self._node(n).resume()
        self._await(numbers)

    def _await(self, numbers: list[int]) -> None:
        until_s = time.monotonic() + READY_S
        for n in numbers:
            while True:
                try:
                    self._node(n).await_port()
                    break
                except BrokerError as error:
                    # One that gave up waiting for the others ends; an operator starts it again.
                    if time.monotonic() > until_s:
                        raise LocalNodeError(
                            f"{self.nodes[n - 1]} does not start: {error}"
                        ) from None
                    if not self._node(n).is_running:
                        self.mended_by_hand += 1
                        self._node(n).resume()

    def pause(self, n: int) -> None:
        os.killpg(self._node(n).pid, signal.SIGSTOP)

    def resume(self, n: int) -> None:
        os.killpg(self._node(n).pid, signal.SIGCONT)

    def isolate(self, n: int) -> None:
        """As if its cable were drawn: RabbitMQ has no other way to be told."""
        self.links.isolate(n)

    def heal(self) -> None:
        self.links.heal()

    def wait_until_ready(self) -> None:
        """Until all see each other; who does not heal is restarted, as RabbitMQ's guide has it."""
        until_s = time.monotonic() + READY_S
        by_hand_s = time.monotonic() + HEALS_S
        while (parted := self._parted()) is None or parted:
            if time.monotonic() > until_s:
                raise LocalNodeError(f"not ready: {parted}")
            if parted and time.monotonic() > by_hand_s:
                self._restart_all_but_one(parted)
                by_hand_s = time.monotonic() + HEALS_S
            time.sleep(0.5)

    def _parted(self) -> list[str] | None:
        """Nodes that see a partition, or are not seen by one; None while somebody does not tell."""
        wrong = set()
        for n in self.running:
            try:
                rows: list[dict[str, Any]] = api(self, n, "GET", "/nodes")  # type: ignore[arg-type]
            except (OSError, Refused, ValueError):
                return None
            by_name = {row["name"]: row for row in rows}
            wrong |= {
                name
                for name in self.nodes
                if not by_name.get(name, {}).get("running") or by_name[name].get("partitions")
            }
        return sorted(wrong)

    def _restart_all_but_one(self, parted: list[str]) -> None:
        """The first that has no complaint, or the first at all, is the one that is trusted."""
        trusted = next((name for name in self.nodes if name not in parted), self.nodes[0])
        self._say(f"{parted} do not heal: all but {trusted} are restarted by hand")
        self.mended_by_hand += 1
        others = [n for n in self.numbers if self.nodes[n - 1] != trusted]
        for n in others:
            with contextlib.suppress(BrokerError):
                self.stop(n)
        self._launch(others)
