"""The engine: one broker's state, and every verb that acts on it.

The verbs live in modules of their own, each a function whose first argument is the engine; here
they become methods. The engine owns no socket, thread or clock: time comes from `clock`,
randomness from `dice`, and the shell calls `tick` when `timers` say that something is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from logging import Logger
from typing import TYPE_CHECKING, Any, Protocol

from warren.auth.directory import Directory, DirectoryError
from warren.auth.users import OperatorName
from warren.base.timers import Timers
from warren.engine import (
    alarms,
    connections,
    exchanges,
    mirror_links,
    parameters,
    pausing,
    placing,
    policies,
    queues,
    shard_asking,
    timeouts,
    trace,
)
from warren.engine import consume as consuming
from warren.engine import delay as delaying
from warren.engine import publish as publishing
from warren.engine.batches import Staging
from warren.engine.burials import Burials
from warren.engine.changes import Changes
from warren.engine.effects import Effects
from warren.engine.new_vhost import NewVHost
from warren.engine.passing import Passing
from warren.engine.settings import EngineSettings
from warren.engine.totals import Totals
from warren.engine.vhost import VHost
from warren.model.errors import ConnectionForced, NotFound
from warren.model.ports import QueuePort, TurnClock

if TYPE_CHECKING:
    from warren.auth.permissions import Access, ResourceKind
    from warren.engine.agreed import AgreedKeeper
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.cluster_port import ClusterPort
    from warren.routing.exchange import Exchange
    from warren.session.channel import Channel, Consumer
    from warren.session.connection import Connection
    from warren.store.journal import Journal


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Milliseconds that only ever grow."""

    def wall_s(self) -> int:
        """Seconds since 1970."""


class Dice(Protocol):
    """Where chance comes from."""

    def token(self) -> str:
        """A short text that cannot be guessed."""


Listener = Callable[[str, dict[str, Any]], None]


class Engine:
    """See the module's text."""

    #: The copies of mirrored queues on this node; None: there can be none.
    mirrors: Any = None

    #: Grows with every get on the name of shards, which then begin with the next one.
    shard_turn: int = 0

    #: Told of messages that go back to their publishers: virtual host, bytes.
    on_return: Callable[[str, int], None] | None = None

    def __init__(
        self,
        settings: EngineSettings,
        directory: Directory,
        clock: Clock,
        dice: Dice,
        log: Logger,
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.clock = clock
        self.dice = dice
        self.log = log
        self.timers = Timers()
        self.effects = Effects()
        #: The time of the turn that is going on, for everything that happens in it.
        self.turn = TurnClock()
        #: Told of every change of users, virtual hosts and entities as it is made.
        self.metadata = Changes()
        #: In a cluster: what all nodes agree on; it is `metadata` then.
        self.agreed: AgreedKeeper | None = None
        #: The other nodes; None: there are none.
        self.cluster: ClusterPort | None = None
        #: Number -> who holds a mirrored queue, as all nodes agree (`cluster.metadata.View`).
        self.views: dict[int, Any] = {}
        #: Number -> queue, of queues whose home is this node of a cluster.
        self.numbered: dict[int, QueuePort] = {}
        #: Home -> how many queues it has.
        self.queues_at: Counter[str] = Counter()
        #: Connections with exclusive queues in a cluster, by the name they have there.
        self.owners: dict[str, Connection] = {}
        #: While the metadata of an earlier run is put in place: nothing happens then, it is only
        #: remembered, so there are no events, and what goes by itself has gone by itself before.
        self.restoring = False
        self.vhosts: dict[str, VHost] = {}
        #: Open connections, oldest first.
        self.connections: dict[Connection, None] = {}
        self.connections_of_user: Counter[str] = Counter()
        self.channels_of_user: Counter[str] = Counter()
        self.channel_count = 0
        #: Reply address -> the consumer that waits for direct replies there.
        self.reply_consumers: dict[str, Consumer] = {}
        #: The other way round: the channel of that consumer -> its reply address.
        self.reply_addresses: dict[Channel, str] = {}
        #: Connections that were seen not to read their direct replies.
        self.unread_replies: set[Connection] = set()
        #: Queues with a consumer timeout of their own, in milliseconds.
        self.timed_queues: dict[AmqpQueue, int] = {}
        #: Channel -> when its deliveries were last gone through, and when the first was due then.
        self.timeout_looks: dict[Channel, tuple[int, int]] = {}
        self.alarms: set[str] = set()
        #: What is written to disk goes through here; None: nothing is.
        self.journal: Journal | None = None
        #: Delayed exchange -> the messages that wait in it.
        self.delayed: dict[Exchange, delaying.WaitingRoom] = {}
        self.unroutable_dropped = 0
        self.totals = Totals()
        #: Runtime parameters that other parts than the engine give a meaning:
        #: (virtual host, component, name) -> value; and those of the whole cluster by name.
        self.parameters: dict[tuple[str, str, str], Any] = {}
        self.global_parameters: dict[str, Any] = {}
        #: What a new virtual host is given, by its name.
        self.vhost_defaults: Callable[[str], NewVHost] = self._usual_defaults
        #: Told of everything that happens to entities: (event name, details).
        self.listeners: list[Listener] = []
        #: Clients whose errands have ended; they go on at the end of the turn.
        self.resuming: list[Callable[[], None]] = []
        self._later: list[Callable[[int], None]] = []
        self._cycles_logged: set[tuple[str, str, str]] = set()
        self._running_effects = False

    # -- verbs -------------------------------------------------------------------------------------

    find_exchange = exchanges.find_exchange
    declare_exchange = exchanges.declare_exchange
    delete_exchange = exchanges.delete_exchange
    add_exchange = exchanges.add_exchange
    bind = exchanges.bind
    unbind = exchanges.unbind
    add_binding = exchanges.add_binding
    remove_binding = exchanges.remove_binding
    remove_exchange = exchanges.remove_exchange
    declare_queue = queues.declare_queue
    inspect_queue = shard_asking.inspect
    purge_queue = queues.purge_queue
    delete_queue = queues.delete_queue
    remove_queue = queues.remove_queue
    add_queue = queues.add_queue
    drop_queue = queues.drop_queue
    choose_home = placing.choose_home
    make_remote = placing.make_remote
    ask = placing.ask
    check_owner = queues.check_owner
    consume = consuming.consume
    start_consumer = consuming.start_consumer
    start_member = consuming.start_member
    cancel = consuming.cancel
    cancel_consumers = consuming.cancel_consumers
    tell_cancelled = consuming.tell_cancelled
    get = consuming.get
    end_channel = consuming.end_channel
    reply_address = consuming.reply_address
    route_for = publishing.route_for
    publish = publishing.publish
    check_properties = publishing.check_properties
    delay = delaying.delay
    drop_delayed = delaying.drop_delayed
    waiting_room = delaying.waiting_room
    resume_delayed = delaying.resume_delayed
    trace_publish = trace.trace_publish
    trace_delivery = trace.trace_delivery
    set_tracing = trace.set_tracing
    start_connection = connections.start_connection
    login = connections.login
    open_vhost = connections.open_vhost
    check_channel = connections.check_channel
    make_channel = connections.make_channel
    end_connection = connections.end_connection
    close_all = connections.close_all
    close_deleted_users = connections.close_deleted_users
    log_unread_replies = connections.log_unread_replies
    log_channel_error = connections.log_channel_error
    log_connection_error = connections.log_connection_error
    find_governing = policies.find_governing
    govern_queue = policies.govern_queue
    govern_exchange = policies.govern_exchange
    set_policy = policies.set_policy
    clear_policy = policies.clear_policy
    add_mirror_link = mirror_links.add_mirror_link
    remove_mirror_link = mirror_links.remove_mirror_link
    pause_queue = pausing.pause_queue
    resume_queue = pausing.resume_queue
    set_parameter = parameters.set_parameter
    clear_parameter = parameters.clear_parameter
    set_global_parameter = parameters.set_global_parameter
    clear_global_parameter = parameters.clear_global_parameter
    set_alarm = alarms.set_alarm
    block_publisher = alarms.block_publisher
    watch_timeouts = timeouts.watch_timeouts

    # -- virtual hosts and access ------------------------------------------------------------------

    @property
    def cluster_name(self) -> str:
        """The name that clients are told."""
        return parameters.cluster_name(self)

    def vhost(self, name: str) -> VHost:
        """Raises NotFound when there is none."""
        if name not in self.vhosts:
            raise NotFound(f"vhost '{name}' not found")
        return self.vhosts[name]

    def add_vhost(self, name: str) -> VHost:
        """A new virtual host with its default exchanges; the existing one if there is one.

        Raises DirectoryError when the node has as many as it may have.
        """
        if name not in self.vhosts:
            limit = self.settings.vhost_max
            if limit is not None and len(self.vhosts) >= limit:
                raise DirectoryError(
                    f"cannot create vhost '{name}': vhost limit of {limit} is reached"
                )
            defaults = self.vhost_defaults(name)
            # One change: it must never be without the limits and policies that go with it.
            with self.metadata.together():
                self.metadata.vhost_added(name, defaults)
                self.directory.add_vhost(name)
                self.vhosts[name] = VHost(name)
                defaults.apply(self)
                self.emit("vhost.created", name=name)
        return self.vhosts[name]

    def _usual_defaults(self, name: str) -> NewVHost:
        return NewVHost(name, limits=self.settings.default_vhost_limits)

    def describe_vhost(
        self, name: str, description: str | None = None, tags: Sequence[str] | None = None
    ) -> None:
        """Give a virtual host another description or other tags; None leaves them as they are."""
        vhost = self.vhost(name)
        description = vhost.description if description is None else description
        kept = vhost.tags if tags is None else list(tags)
        self.metadata.vhost_set(name, description, kept)
        vhost.description, vhost.tags = description, kept

    def delete_vhost(self, name: str) -> None:
        """Everything in it goes, and its connections are closed."""
        vhost = self.vhost(name)
        self.metadata.vhost_removed(vhost)
        for connection in [c for c in self.connections if c.vhost is vhost]:
            connection.close(ConnectionForced(f"vhost '{name}' is deleted"))
        for queue in list(vhost.queues.values()):
            self.remove_queue(queue)
        for exchange in vhost.exchanges.values():
            self.drop_delayed(exchange)
        del self.vhosts[name]
        self.directory.delete_vhost(name)
        for key in [key for key in self.parameters if key[0] == name]:
            del self.parameters[key]
        self.totals.forget_vhost(name)
        self.emit("vhost.deleted", name=name)

    def check_access(
        self, connection: Connection, kind: ResourceKind, name: str, access: Access
    ) -> None:
        """Raises AccessRefused unless the connection's user may."""
        if isinstance(connection.user, OperatorName):
            return
        self.directory.check_access(connection.user, connection.vhost.name, kind, name, access)

    def permissions_changed(self) -> None:
        """Publishers' routes were checked once; now they must be checked again."""
        for connection in self.connections:
            for channel in connection.open_channels():
                channel.forget_routes()

    @property
    def delayed_messages(self) -> int:
        """How many messages wait in delayed exchanges."""
        return sum(room.ready for room in self.delayed.values())

    # -- time and effects --------------------------------------------------------------------------

    def later(self, action: Callable[[int], None]) -> None:
        """Do something when the current operation is over."""
        self._later.append(action)
        self.effects.pending = True

    def run_effects(self) -> None:
        """Everything that queues asked for: dead letters are published, timers armed."""
        if self._running_effects:
            return
        self._running_effects = True
        try:
            while self.effects.pending:
                self.effects.pending = False
                for queue, at_ms in self.effects.take_expiries():
                    self._arm_expiry(queue, at_ms)
                self.burials.take(self.effects.take_dead_letters())
                actions, self._later = self._later, []
                for action in actions:
                    self.guard(action, self.clock.now_ms())
        finally:
            self._running_effects = False

    def guard(self, action: Callable[..., None], *arguments: Any) -> None:
        """One action that fails must not take the others of its turn with it."""
        try:
            action(*arguments)
        except Exception:
            self.log.exception("a fault of ours, after an operation")

    def _arm_expiry(self, queue: AmqpQueue, at_ms: int) -> None:
        if queue.deleted:
            return
        if queue.expiry_timer is not None:
            queue.expiry_timer.cancel()

        def ring(now_ms: int) -> None:
            queue.expiry_timer = None
            queue.expire(now_ms)

        queue.expiry_timer = self.timers.at(at_ms, ring)

    def tick(self) -> None:
        """Run what is due."""
        now_ms = self.turn.now_ms = self.clock.now_ms()
        while self.timers.is_due(now_ms):
            # An action that fails is gone from the timers; the others follow.
            self.guard(self.timers.run_due, now_ms)
        self.run_effects()

    @cached_property
    def burials(self) -> Burials:
        """Dead messages that are to be safe elsewhere before they leave their queues."""
        return Burials(self)

    @cached_property
    def passing(self) -> Passing:
        """Messages that are to be safe in another queue before they leave theirs."""
        return Passing(self)

    @cached_property
    def staging(self) -> Staging:
        """Parts of batches that are to be published all at once."""
        return Staging(self)

    # -- events ------------------------------------------------------------------------------------

    def emit(self, event: str, **details: Any) -> None:
        if self.restoring:
            return
        for listener in self.listeners:
            listener(event, details)

    def log_dead_letter_cycle(self, queue: AmqpQueue, target: AmqpQueue, reason: str) -> None:
        """Once per pair: a loop goes on at full speed and would fill the log."""
        key = (queue.name, target.name, reason)
        if key not in self._cycles_logged and len(self._cycles_logged) < 1000:
            self._cycles_logged.add(key)
            self.log.warning(
                "message dropped: dead-letter cycle from queue '%s' to queue '%s' in vhost '%s' "
                "for reason '%s'",
                queue.name,
                target.name,
                queue.vhost.name,
                reason,
            )
