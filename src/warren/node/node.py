"""A node: everything built in one place, started, and stopped in reverse."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from warren.auth.directory import Directory, DirectoryError
from warren.base.system import SystemClock, SystemDice
from warren.config.settings import Endpoint, Settings
from warren.engine.engine import Engine
from warren.engine.metadata import MetadataKeeper
from warren.engine.policy_shards import PolicyShards
from warren.management.definitions import DefinitionsError, load_definitions
from warren.model.policy import PolicyError
from warren.net.hub import Hub
from warren.net.listener import Listener, SocketOptions
from warren.net.tls import make_context
from warren.net.warden import Warden
from warren.node import next_start
from warren.node.disk import DiskWatch
from warren.node.errors import StartError, listen_error
from warren.node.failure import Failure
from warren.node.memory import MemoryWatch, memory_bytes, message_budget
from warren.node.secret import cluster_secret
from warren.node.settings import credential_validator, engine_settings, node_name, wants_cluster
from warren.node.standalone import StandaloneControl
from warren.node.store import NodeStore
from warren.node.vhost_defaults import VHostDefaults
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.management.cluster_control import ClusterControl
    from warren.node.cluster import NodeCluster
    from warren.node.event_journal import EventJournal
    from warren.node.next_start import NextStart
    from warren.node.operating import Operating

#: How long a stopping node waits for clients to take their goodbye.
GOODBYE_S = 1.0

Result = TypeVar("Result")


class Node:
    """`start` inside a running event loop; `stop` gives everything back.

    Raises StartError when the configuration asks for what cannot be had.
    """

    def __init__(
        self,
        settings: Settings,
        name: str | None = None,
        log: logging.Logger | None = None,
        watch_memory: bool = True,
        data_dir: Path | None = None,
        restore: Callable[[Engine], MetadataKeeper] | None = None,
    ) -> None:
        self.settings = settings
        self.name = name or node_name(settings)
        #: Where data is kept, opened by whoever runs the node; None: in memory.
        self.data_dir = data_dir
        plan = next_start.carry_out(data_dir) if data_dir is not None else None
        is_clustered = plan is not None or wants_cluster(settings, data_dir)
        #: What the nodes of a cluster show each other that they have; empty for a node alone.
        self.secret = cluster_secret(settings.cluster, data_dir) if is_clustered else b""
        #: Set when the node can keep nothing more; see `failure.give_up`.
        self.failure = Failure()
        self.directory = Directory(
            loopback_users=settings.auth.loopback_users,
            hashing_algorithm=settings.auth.password_hashing,
            validate_credentials=credential_validator(settings.auth),
        )
        self.engine = Engine(
            engine_settings(settings, self.name),
            self.directory,
            SystemClock(),
            SystemDice(),
            log or logger("connection"),
        )
        self.listeners: list[Listener] = []
        #: Ends the node and starts its process anew; None where the process is another's.
        self.on_restart: Callable[[], None] | None = None
        self._watch_memory = watch_memory
        self._hub: Hub | None = None
        #: The management API and the metrics, once they are started.
        self.operating: Operating | None = None
        self._warden: Warden | None = None
        self._memory: MemoryWatch | None = None
        self.disk: DiskWatch | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Whether clients are let in, once the node is started; see `close_clients`.
        self.is_open = True
        #: Clients are kept out although the node takes part: it is drained.
        self.is_suspended = False
        #: What operators do to the cluster; whoever joins this node to others puts theirs here.
        self.cluster_control: ClusterControl = StandaloneControl(self)
        self.engine.vhost_defaults = VHostDefaults(settings, self.engine).of
        #: The other nodes; None for a node alone.
        self.cluster: NodeCluster | None = self._make_cluster(plan) if is_clustered else None
        #: Has put back what an earlier run left, and keeps what changes; None: nothing is kept.
        self.store: NodeStore | None = None
        self.keeper: MetadataKeeper | None = self._make_keeper(restore)
        #: The event journal; None: nobody has asked for it.
        self.events: EventJournal | None = self._make_events() if settings.journal.enabled else None
        if self.cluster is not None:
            # Its content is what all nodes agree on, when they do.
            self.cluster.prepare()
            return
        try:
            self._make_content()
        except DefinitionsError as error:
            raise StartError(f"definitions cannot be imported:\n{error}") from error
        except (DirectoryError, PolicyError) as error:
            raise StartError(f"the configured defaults cannot be used: {error}") from error

    def _make_keeper(
        self, restore: Callable[[Engine], MetadataKeeper] | None
    ) -> MetadataKeeper | None:
        """Who keeps the definitions; None: nobody does."""
        if self.data_dir is not None:
            make_keeper = MetadataKeeper if self.cluster is None else self.cluster.make_keeper
            budget = message_budget(self.settings.memory)
            self.store = NodeStore(self.data_dir, self.engine, budget, make_keeper=make_keeper)
            return self.store.keeper
        if self.cluster is not None:
            keeper = self.cluster.make_keeper(self.engine, lambda _record: None)
            keeper.attach()
            return keeper
        return restore(self.engine) if restore is not None else None

    def _make_content(self) -> None:
        """What the broker starts with besides what it kept.

        That is the definitions, or else, at the first start, the default user and vhost.
        """
        is_first_start = self.keeper is None or self.keeper.is_empty
        for path in self.definition_paths:
            load_definitions(self.engine, path)
        if not self.definition_paths and is_first_start:
            # All or nothing: a start that was cut short must leave the next one the first.
            with self.engine.metadata.together():
                for step in self.default_content():
                    step()

    @property
    def definition_paths(self) -> list[str]:
        """Files and directories with definitions that are imported at every start."""
        definitions, management = self.settings.definitions, self.settings.management
        paths = [definitions.load, management.load_definitions, definitions.local_path]
        return [path for path in paths if path is not None]

    def default_content(self) -> list[Callable[[], object]]:
        """What makes the default user and virtual host, one change each."""
        auth, directory = self.settings.auth, self.directory
        name, vhost = auth.default_user, auth.default_vhost
        hashed, algorithm = directory.hashed(name, auth.default_pass), directory.hashing_algorithm
        tags, patterns = (
            auth.default_user_tags,
            (
                auth.default_configure,
                auth.default_write,
                auth.default_read,
            ),
        )
        return [
            lambda: directory.put_user(name, hashed, algorithm, tags),
            lambda: self.engine.add_vhost(vhost),
            lambda: directory.set_permissions(name, vhost, *patterns),
        ]

    @property
    def lacks_default_content(self) -> bool:
        """Whether there is nothing yet, or a part: who is making it may have died over it."""
        auth, directory = self.settings.auth, self.directory
        users = {user.name for user in directory.list_users()}
        return (
            users <= {auth.default_user}
            and set(directory.list_vhosts()) <= {auth.default_vhost}
            and not directory.list_permissions()
        )

    def _make_cluster(self, plan: NextStart | None) -> NodeCluster:
        # A node alone needs none of it, nor the time to import it.
        from warren.node.cluster import NodeCluster
        from warren.node.clustered import ClusteredControl

        cluster = NodeCluster(self, plan)
        self.cluster_control = ClusteredControl(self, cluster)
        return cluster

    def start(self) -> None:
        """Open the listeners. Raises StartError when an address or a certificate cannot be used."""
        self._loop = asyncio.get_running_loop()
        self._hub = Hub(self._loop, self.engine)
        self.engine.effects.on_relieved = self._hub.relieved
        self.engine.effects.on_postponed = self._hub.pump_later
        self.engine.timers.on_earlier = self._schedule
        if self.cluster is None:
            self._open_first()
        else:
            self.is_open = False
        self._warden = Warden(self._hub, self.settings.listeners.handshake_timeout_ms)
        self._warden.start()
        if self._watch_memory:
            self._memory = MemoryWatch(self.engine, self.settings.memory, self._loop)
            self._memory.start()
        if self.data_dir is not None:
            limit = self.settings.disk.limit_bytes(memory_bytes(self.settings.memory))
            self.disk = DiskWatch(self.engine, self.data_dir, limit, self._loop)
            self.disk.start()
        if self.store is not None:
            self.store.start(self._loop, self.in_turn, self.failure, self.disk)
        if self.events is not None:
            self.events.start()
        self.engine.watch_timeouts()
        PolicyShards(self.engine, lambda: self.is_open and not self.is_suspended).start()
        if self.cluster is not None:
            self.cluster.start(self._hub)

    def _make_events(self) -> EventJournal:
        from warren.node.event_journal import EventJournal

        return EventJournal(self)

    def _open_first(self) -> None:
        assert self._hub is not None
        try:
            self._open_listeners(self._hub)
        except BaseException:
            self._close_listeners()
            raise

    def open_clients(self) -> None:
        """Let clients in, for the first time or again. Raises StartError."""
        if self.is_suspended:
            self.is_open = True
        elif self.listeners:
            self.reopen()
        else:
            self._open_first()
            self.is_open = True

    def start_operating(
        self, control_socket: Path | None = None, forgiving: bool = False
    ) -> Operating:
        """Open the management API and the metrics; see `Operating.start`."""
        # A broker inside a test needs none of it, nor the time to import it.
        from warren.node.operating import Operating

        self.operating = Operating(self)
        self.operating.start(control_socket, forgiving)
        if self.store is not None:
            self.store.tell_damage()
        return self.operating

    @property
    def memory_watch(self) -> MemoryWatch | None:
        """Who raises the memory alarm."""
        return self._memory

    @property
    def memory_limit_bytes(self) -> int:
        """Where the memory alarm is raised; 0 while nobody watches."""
        return self._memory.limit_bytes if self._memory is not None else 0

    def _open_listeners(self, hub: Hub) -> None:
        settings = self.settings.listeners
        for endpoint in settings.tcp:
            self.listeners.append(self._listen(hub, endpoint, None))
        if settings.ssl:
            try:
                context = make_context(self.settings.tls)
            except (OSError, ValueError) as error:
                raise StartError(str(error)) from error
            for endpoint in settings.ssl:
                self.listeners.append(self._listen(hub, endpoint, context))

    def _listen(self, hub: Hub, endpoint: Endpoint, context: ssl.SSLContext | None) -> Listener:
        settings = self.settings.listeners
        options = SocketOptions(
            backlog=settings.backlog,
            nodelay=settings.nodelay,
            keepalive=settings.keepalive,
            send_buffer_bytes=settings.sndbuf_bytes,
            receive_buffer_bytes=settings.recbuf_bytes,
        )
        # No address in the configuration means all of them, as in RabbitMQ.
        host = endpoint.host if endpoint.host is not None else "::"
        try:
            try:
                return Listener(hub, host, endpoint.port, options, context)
            except OSError as error:
                without_ipv6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
                if endpoint.host is not None or error.errno not in without_ipv6:
                    raise
                return Listener(hub, "0.0.0.0", endpoint.port, options, context)
        except OSError as error:
            raise listen_error(endpoint, error) from error

    def _close_listeners(self) -> None:
        for listener in self.listeners:
            listener.close()

    def _schedule(self, at_ms: int) -> None:
        """The engine's next deadline has moved forward."""
        assert self._loop is not None
        if self._wake is not None:
            self._wake.cancel()
        delay_s = max(0, at_ms - self.engine.clock.now_ms()) / 1000
        self._wake = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._wake = None
        try:
            self.in_turn(self.engine.tick)
        finally:
            next_ms = self.engine.timers.next_ms()
            if next_ms is not None and self._wake is None:
                self._schedule(next_ms)

    def in_turn(self, action: Callable[[], Result]) -> Result:
        """Act on the engine from outside a client's request; what follows from it is sent."""
        assert self._hub is not None
        self._hub.begin_turn()
        try:
            result = action()
            self.engine.run_effects()
        finally:
            self._hub.end_turn()
        return result

    @property
    def port(self) -> int:
        """The port of the first listener, plain ones before TLS; 0 when there is none."""
        return int(self.listeners[0].port) if self.listeners else 0

    @property
    def open_listeners(self) -> list[Listener]:
        """Where clients are let in now."""
        return self.listeners if self.is_open and not self.is_suspended else []

    def reset_content(self) -> None:
        """Forget everything, and be as at the first start. Raises DefinitionsError."""

        def act() -> None:
            engine = self.engine
            for vhost in list(engine.vhosts):
                engine.delete_vhost(vhost)
            for user in self.directory.list_users():
                self.directory.delete_user(user.name)
            for name in list(engine.global_parameters):
                engine.clear_global_parameter(name)
            self._make_content()

        with self.engine.metadata.together():
            self.in_turn(act)

    def cut(self) -> None:
        """As if the power went: listeners close, clients are gone without a goodbye."""
        assert self._hub is not None
        self._close_listeners()
        self.is_open = False
        for link in list(self._hub.links):
            link.lost()

    async def close_clients(self, goodbye_s: float = GOODBYE_S) -> None:
        """Let no clients in, and say goodbye to those that are; `reopen` ends that."""
        self._close_listeners()
        self.is_open = False
        reason = "broker forced connection closure with reason 'shutdown'"
        await self._say_goodbye(reason, goodbye_s)

    async def suspend_clients(self, reason: str) -> None:
        """The same for a node that goes on taking part; `resume_clients` ends that."""
        self.is_suspended = True
        self._close_listeners()
        await self._say_goodbye(reason, GOODBYE_S)

    def resume_clients(self) -> None:
        """Let clients in again. Raises StartError."""
        self.is_suspended = False
        if self.is_open:
            self.is_open = False
            self.open_clients()

    async def _say_goodbye(self, reason: str, goodbye_s: float) -> None:
        if self._hub is None:
            return
        self.in_turn(lambda: self.engine.close_all(reason))
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + goodbye_s
        while self._hub.links and loop.time() < deadline_s:
            await asyncio.sleep(0.005)
        for link in list(self._hub.links):
            link.lost()

    def reopen(self) -> None:
        """Listen again where the node listened before. Raises StartError, and none is open then."""
        assert self._hub is not None
        if self.is_open:
            return
        opened: list[Listener] = []
        context = make_context(self.settings.tls) if self.settings.listeners.ssl else None
        try:
            for listener in self.listeners:
                endpoint = Endpoint(listener.host, listener.port)
                tls = context if listener.is_tls else None
                opened.append(self._listen(self._hub, endpoint, tls))
        except StartError:
            for listener in opened:
                listener.close()
            raise
        self.listeners, self.is_open = opened, True

    async def stop(self, goodbye_s: float = GOODBYE_S) -> None:
        """Say goodbye to the clients, then close everything."""
        self._close_listeners()
        if self._hub is None:
            return
        if self.operating is not None:
            await self.operating.stop()
        await self.close_clients(goodbye_s)
        if self.cluster is not None:
            await self.cluster.stop()
        self._stop_watches()
        if self.events is not None:
            self.events.stop()
        if self.store is not None and self.failure.error is None:
            try:
                await self.store.stop()
            except OSError as error:
                self.failure.set(error)

    def abandon(self) -> None:
        """Take nothing more from anybody, and say nothing: the node cannot go on."""
        if self.cluster is not None:
            self.cluster.abandon()
        self._close_listeners()
        if self._hub is not None:
            for link in self._hub.links:
                link.set_blocked(True)
        self._stop_watches()

    def _stop_watches(self) -> None:
        for watch in (self._warden, self._memory, self.disk):
            if watch is not None:
                watch.stop()
        if self._wake is not None:
            self._wake.cancel()
        self.engine.timers.on_earlier = None
