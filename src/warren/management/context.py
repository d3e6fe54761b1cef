"""What every handler of the API works with: the broker, its samples, and how to act on it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from warren.config.settings import Settings
from warren.management.errors import not_found
from warren.management.events import EventLog
from warren.management.log_tail import LogTail
from warren.management.pace import Calm
from warren.management.sampler import Sampler
from warren.management.sessions import Sessions
from warren.model.errors import Postponed

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.management.cluster_control import ClusterControl
    from warren.management.peers import Peers
    from warren.management.rebalancer import Rebalancer
    from warren.model.errand import Errand
    from warren.shovel.supervisor import Shovels
    from warren.store.salvage import SalvageDirectory

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ListenerFacts:
    """One address the node listens on."""

    protocol: str
    host: str
    port: int
    tls: bool = False


class Runtime(Protocol):
    """What can be changed of a node while it runs."""

    @property
    def memory_limit_bytes(self) -> int: ...

    @property
    def disk_limit_bytes(self) -> int: ...

    @property
    def log_path(self) -> Path | None: ...

    def set_memory_limit(self, relative: float | None, absolute: int | None) -> bool: ...

    def set_disk_limit(self, relative: float | None, absolute: int | None) -> bool: ...

    def set_log_level(self, level: str, category: str | None) -> None: ...

    def log_levels(self) -> dict[str, str]: ...

    def rotate_logs(self) -> int: ...


@dataclass(slots=True)
class Context:
    """See the module's text."""

    engine: Engine
    settings: Settings
    sampler: Sampler
    events: EventLog
    #: Runs a function as one turn of the node, so that what follows from it is sent.
    in_turn: Callable[[Callable[[], Any]], Any]
    #: The AMQP listeners as they are now.
    amqp_listeners: Callable[[], Sequence[ListenerFacts]]
    #: The HTTP listeners; filled in as they open.
    http_listeners: list[ListenerFacts] = field(default_factory=list)
    #: Stops the node as a signal would; None where it is not the process's own.
    on_stop: Callable[[], None] | None = None
    #: What forms the cluster; None where only an engine is behind the API.
    cluster_control: Callable[[], ClusterControl | None] = lambda: None
    #: The other nodes; None for a node by itself.
    peers: Peers | None = None
    #: Seals the tokens of browsers; all nodes of a cluster have the same.
    session_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    #: Where the node keeps what is to outlive it; None for one that keeps nothing.
    data_dir: Path | None = None
    #: What is put aside there; None likewise.
    salvage: SalvageDirectory | None = None
    log_tail: LogTail = field(default_factory=LogTail)
    #: The shovels of this node; None where only an engine is behind the API.
    shovels: Shovels | None = None
    #: Spreads masters over the nodes; None where only an engine is behind the API.
    rebalancer: Rebalancer | None = None
    #: What can be changed while the node runs; None where only an engine is behind the API.
    runtime: Runtime | None = None
    started_s: float = field(default_factory=time.monotonic)
    #: What paces all that reads queues for programs.
    calm: Calm = field(init=False)

    def __post_init__(self) -> None:
        self.calm = Calm(self.engine.turn)

    @property
    def sessions(self) -> Sessions:
        """Who makes and checks the tokens of browsers."""
        lifetime_s = self.settings.management.login_session_timeout_min * 60
        return Sessions(self.session_key, lifetime_s)

    @property
    def memory_limit_bytes(self) -> int:
        """Where publishers are stopped for want of memory; 0 while nobody watches."""
        return 0 if self.runtime is None else self.runtime.memory_limit_bytes

    @property
    def disk_limit_bytes(self) -> int:
        """Where publishers are stopped for want of room on the disk."""
        configured = self.settings.disk.free_limit_bytes
        return configured if self.runtime is None else self.runtime.disk_limit_bytes

    def act(self, action: Callable[[], Result]) -> Result:
        """Act on the engine."""
        result: Result = self.in_turn(action)
        return result

    async def written(self, mark: int | None = None) -> None:
        """Until a record of the log is on the disk; without one, all that was done so far."""
        journal = self.engine.journal
        if journal is None:
            return
        mark = journal.appended if mark is None else mark
        if journal.persisted < mark:
            reached = asyncio.Event()
            journal.when_persisted(mark, reached.set)
            await reached.wait()

    async def settled(self) -> None:
        """Until an image of all definitions is in place: nobody is to see half of it."""
        agreed = self.engine.agreed
        while agreed is not None and agreed.under_way is not None:
            await ended(agreed.under_way)

    async def agree(self, action: Callable[[], Result]) -> Result | None:
        """Make one change; in a cluster, until all nodes have made it. It is not tried again."""
        try:
            return self.act(action)
        except Postponed as later:
            if later.errand is None:
                raise
            await ended(later.errand)
            later.errand.result()
            return None

    async def act_when_written(
        self, action: Callable[[], Result], actor: Actor | None = None
    ) -> Result:
        """Act on the engine; what must wait is tried again when it may go on.

        That is a verb of AMQP, whose `actor` keeps what the first try sent off.
        """
        while True:
            try:
                return self.act(action)
            except Postponed as later:
                if later.errand is None:
                    await self.written(later.mark)
                else:
                    await ended(later.errand)
                    if actor is not None:
                        actor.errand = later.errand

    def drained_nodes(self) -> frozenset[str]:
        """Those that operators have taken out of service."""
        control = self.cluster_control()
        members = () if control is None else control.status().members
        return frozenset(member.name for member in members if member.is_drained)

    @property
    def node_name(self) -> str:
        return self.engine.settings.node_name

    @property
    def listeners(self) -> list[ListenerFacts]:
        return [*self.amqp_listeners(), *self.http_listeners]

    def vhost(self, name: str) -> VHost:
        """Raises 404 when there is none."""
        vhost = self.engine.vhosts.get(name)
        if vhost is None:
            raise not_found()
        return vhost


async def ended(errand: Errand) -> None:
    """Until an errand is over."""
    over = asyncio.Event()
    errand.when_done(over.set)
    await over.wait()


@dataclass(slots=True)
class Actor:
    """Stands for a connection of the caller in the verbs of the engine, which check its rights."""

    user: str
    vhost: VHost
    name: str = "management"
    exclusive_queues: set[str] = field(default_factory=set)
    errand: Errand | None = None
    token: str = ""
