"""A broker for tests: in this process, in a thread of its own, on a free port of 127.0.0.1.

    with Broker() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))

All of its methods may be called from any thread. What an operator does with `rabbitmqctl` is here a
method: users, virtual hosts, permissions, policies, limits, alarms.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar
from urllib.parse import quote

from warren.config.load import load_settings
from warren.engine.exchanges import remove_exchange
from warren.management.definitions import import_definitions, load_definitions
from warren.model.policy import Policy
from warren.testing.host import NodeThread

if TYPE_CHECKING:
    from warren.config.settings import Settings
    from warren.node.node import Node

ALL = ".*"

Result = TypeVar("Result")


class BrokerFault(RuntimeError):
    """The broker itself failed during the test; the cause is the first exception in its thread."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A queue at one moment."""

    name: str
    vhost: str
    #: Messages that wait to be delivered.
    ready: int
    #: Messages that were delivered and not acknowledged yet.
    unacked: int
    consumers: int
    durable: bool
    exclusive: bool
    #: The policies that govern it, by name.
    policy: str | None
    operator_policy: str | None

    @property
    def messages(self) -> int:
        return self.ready + self.unacked


class Broker:
    """See the module's text. `config` takes keys of rabbitmq.conf, `definitions` an export.

    With a `data_dir` durable queues and their persistent messages outlive the broker; without one
    all is in memory.
    With `http` the management API and the metrics are there too, on free ports.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        port: int = 0,
        *,
        config: Mapping[str, object] | None = None,
        definitions: Path | str | Mapping[str, object] | None = None,
        data_dir: Path | str | None = None,
        http: bool = False,
    ) -> None:
        self.port = port
        self._config = dict(config or {})
        self._definitions = definitions
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._http = http
        self._thread: NodeThread | None = None

    # -- its life ----------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when clients can connect. Raises StartError, ConfigError or DefinitionsError."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        thread = NodeThread(self._settings(), self._data_dir, self._http)
        self.port = thread.start().port
        self._thread = thread
        try:
            if self._definitions is not None:
                self.import_definitions(self._definitions)
        except BaseException:
            self.stop()
            raise
        return self

    def _settings(self) -> Settings:
        listener = {"listeners.tcp.default": f"{self.host}:{self.port}"}
        operating = {
            f"{part}.tcp.{key}": value
            for part in ("management", "prometheus")
            for key, value in (("ip", self.host), ("port", 0))
        }
        return load_settings(None, {}, {**operating, **self._config, **listener})

    def stop(self) -> None:
        """Close everything; twice is fine. Raises BrokerFault if the broker failed meanwhile."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.stop()
        if thread.faults:
            first = thread.faults[0]
            raise BrokerFault(f"{type(first).__name__}: {first}") from first

    def restart(self, down_s: float = 0.0) -> None:
        """What a restart is to clients: connections break, the port refuses, then takes them again.

        Durable queues and exchanges stay, with the messages in them; all else is gone, and what
        was not acknowledged is delivered again. With a `data_dir` it is a real restart: the node
        stops and another comes back from the disk, without transient messages.
        """
        if self._data_dir is not None:
            self.stop()
            time.sleep(down_s)
            self.start()
            return
        self.call(_cut)
        time.sleep(down_s)
        self.call(lambda node: node.reopen())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except BrokerFault as fault:
            if error is None:
                raise
            # The test's own failure comes first; the broker's may well be its reason.
            error.add_note(f"the broker failed too: {fault}")

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def url(self) -> str:
        """The URL of the virtual host `/` for guest."""
        return self.url_for()

    def url_for(self, vhost: str = "/", user: str = "guest", password: str = "guest") -> str:
        """The URL of a virtual host for a user."""
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}"
        # A lone slash at the end would mean the virtual host with the empty name to many clients.
        path = "" if vhost == "/" else "/" + quote(vhost, safe="")
        return f"amqp://{credentials}@{self.host}:{self.port}{path}"

    @property
    def http_url(self) -> str:
        """Where the management API is, as in `http://127.0.0.1:15672`; needs `http=True`."""
        return self._operating_url("http")

    @property
    def metrics_url(self) -> str:
        """Where the metrics are, without their path; needs `http=True`."""
        return self._operating_url("http/prometheus")

    def _operating_url(self, protocol: str) -> str:
        operating = self.call(lambda node: node.operating)
        url = operating.url(protocol) if operating is not None else None
        if url is None:
            raise RuntimeError("the broker was started without http=True")
        return url

    def call(self, action: Callable[[Node], Result]) -> Result:
        """Run `action(node)` in the broker's thread: the way to all that has no method here."""
        if self._thread is None:
            raise RuntimeError("the broker is not running")
        return self._thread.call(action)

    # -- users, virtual hosts, permissions ---------------------------------------------------------

    def add_vhost(self, name: str, user: str = "guest") -> str:
        """Make a virtual host that `user` may do everything in; its URL for guest."""

        def act(node: Node) -> None:
            node.engine.add_vhost(name)
            node.directory.set_permissions(user, name, ALL, ALL, ALL)

        self.call(act)
        return self.url_for(name)

    def delete_vhost(self, name: str) -> None:
        """Everything in it goes, and its connections are closed. Raises NotFound."""
        self.call(lambda node: node.engine.delete_vhost(name))

    def add_user(
        self, name: str, password: str, tags: Iterable[str] = (), vhost: str | None = "/"
    ) -> str:
        """Make a user that may do everything in `vhost` (None: no access yet); its URL."""

        def act(node: Node) -> None:
            node.directory.add_user(name, password, tags)
            if vhost is not None:
                node.directory.set_permissions(name, vhost, ALL, ALL, ALL)

        self.call(act)
        return self.url_for(vhost or "/", name, password)

    def set_permissions(
        self, user: str, vhost: str = "/", configure: str = ALL, write: str = ALL, read: str = ALL
    ) -> None:
        """Set what a user may do in a virtual host, as three patterns; `""` allows nothing."""

        def act(node: Node) -> None:
            node.directory.set_permissions(user, vhost, configure, write, read)
            node.engine.permissions_changed()

        self.call(act)

    def set_topic_permissions(
        self, user: str, exchange: str, write: str = ALL, read: str = ALL, vhost: str = "/"
    ) -> None:
        """Set which routing keys of a topic exchange a user may publish with and bind with."""

        def act(node: Node) -> None:
            node.directory.set_topic_permissions(user, vhost, exchange, write, read)
            node.engine.permissions_changed()

        self.call(act)

    def set_vhost_limits(self, limits: Mapping[str, int], vhost: str = "/") -> None:
        """Replace a virtual host's limits (`max-connections`, `max-queues`)."""
        self.call(lambda node: node.directory.set_vhost_limits(vhost, limits))

    def set_user_limits(self, user: str, limits: Mapping[str, int]) -> None:
        """Replace a user's limits (`max-connections`, `max-channels`)."""
        self.call(lambda node: node.directory.set_user_limits(user, limits))

    # -- policies, definitions, alarms, tracing ----------------------------------------------------

    def set_policy(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, object],
        priority: int = 0,
        apply_to: str = "all",
        vhost: str = "/",
        operator: bool = False,
    ) -> None:
        """Set or replace a policy; it governs what matches at once. Raises PolicyError."""
        policy = Policy(vhost, name, pattern, dict(definition), priority, apply_to)
        self.call(lambda node: node.engine.set_policy(policy, operator))

    def clear_policy(self, name: str, vhost: str = "/", operator: bool = False) -> bool:
        """Remove a policy; False when there is none of that name."""
        return self.call(lambda node: node.engine.clear_policy(vhost, name, operator))

    def import_definitions(self, definitions: Path | str | Mapping[str, object]) -> dict[str, int]:
        """Import what RabbitMQ exports, from a file or as a mapping. Raises DefinitionsError."""
        if isinstance(definitions, Mapping):
            return self.call(lambda node: import_definitions(node.engine, definitions))
        return self.call(lambda node: load_definitions(node.engine, definitions))

    def set_alarm(self, resource: Literal["memory", "disk"], raised: bool = True) -> None:
        """Raise or clear an alarm: publishers are blocked while there is one."""
        self.call(lambda node: node.engine.set_alarm(resource, raised))

    def set_tracing(self, vhost: str = "/", on: bool = True) -> None:
        """Switch the firehose (`amq.rabbitmq.trace`) of a virtual host."""
        self.call(lambda node: node.engine.set_tracing(vhost, on))

    # -- what is in it -----------------------------------------------------------------------------

    def queue(self, name: str, vhost: str = "/") -> QueueSnapshot:
        """A queue as it is now. Raises NotFound."""
        return self.call(lambda node: _snapshot(node, name, vhost))

    def queues(self, vhost: str = "/") -> list[QueueSnapshot]:
        """All queues of a virtual host, by name."""
        return self.call(
            lambda node: [
                _snapshot(node, name, vhost) for name in sorted(node.engine.vhost(vhost).queues)
            ]
        )


def _snapshot(node: Node, name: str, vhost: str) -> QueueSnapshot:
    queue = node.engine.vhost(vhost).queue(name)
    return QueueSnapshot(
        name=name,
        vhost=vhost,
        ready=queue.ready,
        unacked=queue.unacked,
        consumers=len(queue.consumers),
        durable=queue.declaration.durable,
        exclusive=queue.owner is not None,
        policy=queue.policy.name if queue.policy is not None else None,
        operator_policy=queue.operator_policy.name if queue.operator_policy is not None else None,
    )


def _cut(node: Node) -> None:
    node.cut()
    engine = node.engine
    for vhost in engine.vhosts.values():
        for queue in [queue for queue in vhost.queues.values() if not queue.declaration.durable]:
            engine.remove_queue(queue)
        transient = [exchange for exchange in vhost.exchanges.values() if not exchange.durable]
        for exchange in transient:
            # Taking one away may already have taken an auto-delete one with it.
            if vhost.exchanges.get(exchange.name) is exchange:
                remove_exchange(engine, vhost, exchange)
