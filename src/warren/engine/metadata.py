"""The keeper of durable metadata: what must be there again after the node was killed.

It holds a table of encoded entries, which always says the same as the durable part of the engine.
Every change goes into the log before it is answered; a snapshot is the table's bytes joined. At
start, `load` and `apply` fill table and engine from them; then `attach` listens to the engine.

Kept are virtual hosts, users, permissions, policies, parameters, durable exchanges but the default
ones, durable queues that are not exclusive, and bindings between what is durable at both ends. A
deletion takes along what cannot be without it, in the table as in the engine, with one change in
the log.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import msgspec

from warren.auth.directory import (
    DirectoryChange,
    PermissionDeletion,
    UserDeletion,
    VHostLimitsChange,
)
from warren.auth.permissions import Permission, TopicPermission
from warren.auth.users import User
from warren.engine.amqp_queue import AmqpQueue
from warren.engine.changes import Changes
from warren.engine.engine import Engine
from warren.engine.metadata_format import (
    OF_NO_VHOST,
    Change,
    Kind,
    MetadataError,
    encode_delete,
    encode_put,
    pack,
    unpack,
)
from warren.engine.metadata_restore import (
    QUEUE_ID_MAX,
    number_queue,
    read_queue_id,
    restore,
    restoring,
)
from warren.engine.new_vhost import NewVHost
from warren.engine.vhost import DEFAULT_EXCHANGES, VHost
from warren.model.errors import PreconditionFailed, ResourceError
from warren.model.policy import Policy
from warren.routing.binding import Binding
from warren.routing.exchange import DELAYED_TYPE, Exchange
from warren.wire.tables import encode_table

__all__ = ["MetadataError", "MetadataKeeper"]

Key = tuple[Hashable, ...]

_DEFAULT_EXCHANGES = frozenset(name for name, _ in DEFAULT_EXCHANGES)


def _do_nothing(_queue: object) -> None:
    pass


@contextmanager
def without_gc() -> Iterator[None]:
    """Very many new objects, none of them garbage: looking for it takes longer than making them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class MetadataKeeper(Changes):
    """See the module's text."""

    def __init__(self, engine: Engine, append: Callable[[bytes], None]) -> None:
        self._engine = engine
        self._append = append
        #: Called with every durable queue when it has its number, new or restored. A new one is
        #: not in its virtual host yet.
        self.on_queue: Callable[[Any], None] = _do_nothing
        #: Called with every durable queue when its deletion is in the log; its messages follow.
        self.on_queue_gone: Callable[[Any], None] = _do_nothing
        #: The encoded puts of everything there is, each kind in the order of its making.
        self._tables: dict[Kind, dict[Key, bytes]] = {kind: {} for kind in Kind}
        self._last_queue_id = 0
        #: Changes that belong together, and the queues that go with them.
        self._pending: list[bytes] = []
        self._gone: list[Any] = []
        self._nesting = 0

    @property
    def is_whole(self) -> bool:
        """Whether what is here may be kept: not in the middle of taking over something else."""
        return True

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep, as in a node that starts for the first time."""
        return not any(self._tables.values())

    # -- at start ----------------------------------------------------------------------------------

    def load(self, snapshot: bytes) -> None:
        """Fill the empty engine; only then may `apply` follow.

        Raises MetadataError: of a snapshot that cannot be read nothing is taken, of one that can
        be, everything but the entries that the error names.
        """
        with without_gc():
            head, changes = unpack(snapshot)
        last_queue_id = head.number("last_queue_id")
        if not 0 <= last_queue_id <= QUEUE_ID_MAX:
            raise MetadataError(f"snapshot: {last_queue_id} is not the number of a queue")
        if not self.is_empty or self._engine.vhosts:
            raise RuntimeError("a snapshot must be the first thing that comes into an engine")
        # A number must not be used again even if the entry that has it proves to be no good.
        self._last_queue_id = last_queue_id
        with without_gc():
            self._restore(changes, given=set())

    def apply(self, payload: bytes) -> None:
        """Do again what a record of the log says.

        Raises MetadataError: of a record that cannot be read nothing is done, of one that can be,
        everything but what the error names.
        """
        _, changes = unpack(payload)
        self._restore(changes, given=None)

    def _restore(self, changes: Iterable[Change], given: set[int] | None) -> None:
        """`given`: the queue numbers seen in a snapshot; None: later records, where they grow."""
        if self._engine.metadata is self:
            raise RuntimeError("the log is read before the keeper is attached")
        problems: list[str] = []
        with restoring(self._engine):
            for change in changes:
                try:
                    self._redo(change, given)
                except MetadataError as error:
                    problems += error.problems
        if problems:
            raise MetadataError(*problems)

    def _redo(self, change: Change, given: set[int] | None) -> None:
        table, key = self._tables[change.kind], change.key
        if change.value is None:
            if key not in table:
                raise MetadataError(f"{change} is deleted but was not there")
            self._forget(change.kind, key)
            restore(self._engine, change)
            self._tell_gone()
            return
        is_delayed = change.kind is Kind.EXCHANGE and change.value.text("type") == DELAYED_TYPE
        if change.kind is Kind.QUEUE or is_delayed:
            self._check_queue_id(change, given)
        restore(self._engine, change)
        table[key] = change.encoded
        if change.kind is Kind.QUEUE:
            vhost, name = change.names
            queue = self._engine.vhosts[vhost].queues[name]
            if queue.queue_id:
                self.on_queue(queue)
        elif is_delayed:
            host = self._engine.vhosts[change.names[0]]
            self._open_room(host, host.exchanges[change.names[1]], read_queue_id(change))

    def _check_queue_id(self, change: Change, given: set[int] | None) -> None:
        queue_id = read_queue_id(change)
        if given is None:
            if queue_id <= self._last_queue_id:
                raise MetadataError(f"{change}: number {queue_id} was in use before")
            self._last_queue_id = queue_id
            return
        if queue_id in given or queue_id > self._last_queue_id:
            raise MetadataError(f"{change}: number {queue_id} was never given to it")
        given.add(queue_id)

    # -- at work -----------------------------------------------------------------------------------

    def attach(self) -> None:
        """From now on every change is appended; the engine holds what was restored and no more."""
        users = {(user.name,) for user in self._engine.directory.list_users()}
        vhosts = {(name,) for name in self._engine.vhosts}
        if vhosts != self._tables[Kind.VHOST].keys() or users != self._tables[Kind.USER].keys():
            raise RuntimeError("the engine holds what the keeper was not told of")
        self._engine.metadata = self
        self._engine.directory.on_change = self.directory_changed

    def snapshot(self) -> bytes:
        """Everything, for `load`."""
        entries = chain.from_iterable(table.values() for table in self._tables.values())
        return pack(entries, last_queue_id=self._last_queue_id, **self._head())

    def _head(self) -> dict[str, int]:
        """What stands beside the changes in every record."""
        return {}

    @contextmanager
    def together(self) -> Iterator[None]:
        """All changes inside become one record, also those before a fault: they were made."""
        self._nesting += 1
        try:
            yield
        finally:
            self._nesting -= 1
            if not self._nesting:
                self._flush()

    def _record(self, change: bytes) -> None:
        if self._nesting:
            self._pending.append(change)
        else:
            self._append(pack((change,), **self._head()))

    def _flush(self) -> None:
        changes, self._pending = self._pending, []
        if changes:
            self._append(pack(changes, **self._head()))
        self._tell_gone()

    def _tell_gone(self) -> None:
        gone, self._gone = self._gone, []
        for queue in gone:
            self.on_queue_gone(queue)

    def _put(self, kind: Kind, key: Key, names: Sequence[str], value: dict[str, Any]) -> None:
        encoded = encode_put(kind, names, value)
        table = self._tables[kind]
        # Definitions that are imported at each start change nothing most of the time.
        if table.get(key) != encoded:
            self._record(encoded)
            table[key] = encoded

    def _delete(self, kind: Kind, key: Key, parts: Sequence[str | bytes]) -> None:
        if key in self._tables[kind]:
            self._record(encode_delete(kind, parts))
            self._forget(kind, key)
            if not self._nesting:
                self._tell_gone()

    # -- what goes with what -----------------------------------------------------------------------

    def _forget(self, kind: Kind, key: Key) -> None:
        """Drop an entry and those that cannot be without it, while the engine still has them."""
        del self._tables[kind][key]
        if kind is Kind.VHOST:
            self._forget_vhost(key[0])
        elif kind is Kind.USER:
            for permissions in (Kind.PERMISSION, Kind.TOPIC_PERMISSION):
                self._keep(permissions, lambda held: held[1] != key[0])
        elif kind is Kind.QUEUE:
            vhost, name = self._place(key)
            queue = vhost.queues[name]
            if queue.queue_id:
                self._gone.append(queue)
            self._forget_bindings_to(vhost, "queue", name, queue.sources)
            for node in vhost.mirror_links.get(name, ()):
                self._tables[Kind.MIRROR_LINK].pop((vhost.name, name, node), None)
            self._tables[Kind.PAUSE].pop((vhost.name, name), None)
        elif kind is Kind.EXCHANGE:
            vhost, name = self._place(key)
            exchange = vhost.exchanges[name]
            room = self._engine.delayed.get(exchange)
            if room is not None and room.queue_id:
                self._gone.append(room)
            self._forget_bindings(vhost, exchange.bindings())
            self._forget_bindings_to(vhost, "exchange", name, exchange.sources)

    def _forget_vhost(self, name: Hashable) -> None:
        vhost = self._engine.vhosts[str(name)]
        self._gone += [queue for queue in vhost.queues.values() if queue.queue_id]
        rooms = self._engine.delayed.values()
        self._gone += [room for room in rooms if room.vhost is vhost and room.queue_id]
        for kind in Kind:
            if kind not in OF_NO_VHOST:
                self._keep(kind, lambda held: held[0] != name)

    def _keep(self, kind: Kind, wanted: Callable[[Key], bool]) -> None:
        table = self._tables[kind]
        self._tables[kind] = {key: entry for key, entry in table.items() if wanted(key)}

    def _place(self, key: Key) -> tuple[VHost, str]:
        vhost, name = key
        return self._engine.vhosts[str(vhost)], str(name)

    def _forget_bindings_to(
        self, vhost: VHost, kind: Any, name: str, sources: Iterable[str]
    ) -> None:
        for source in sources:
            if source in vhost.exchanges:
                self._forget_bindings(vhost, vhost.exchanges[source].bindings_to(kind, name))

    def _forget_bindings(self, vhost: VHost, bindings: Iterable[Binding]) -> None:
        for binding in bindings:
            # Some are not kept.
            self._tables[Kind.BINDING].pop((vhost.name, binding.identity), None)

    # -- what the engine tells ---------------------------------------------------------------------

    def directory_changed(self, changes: Sequence[DirectoryChange]) -> None:
        with self.together():
            for change in changes:
                self._directory_change(change)

    def _directory_change(self, change: DirectoryChange) -> None:
        key: tuple[str, ...]
        if isinstance(change, User):
            value = {
                "password_hash": change.password_hash,
                "hashing_algorithm": change.hashing_algorithm,
                "tags": list(change.tags),
                "limits": dict(change.limits),
            }
            key = (change.name,)
            self._put(Kind.USER, key, key, value)
        elif isinstance(change, UserDeletion):
            key = (change.name,)
            self._delete(Kind.USER, key, key)
        elif isinstance(change, Permission):
            key = (change.vhost, change.user)
            patterns = {"configure": change.configure, "write": change.write, "read": change.read}
            self._put(Kind.PERMISSION, key, key, patterns)
        elif isinstance(change, TopicPermission):
            key = (change.vhost, change.user, change.exchange)
            patterns = {"write": change.write, "read": change.read}
            self._put(Kind.TOPIC_PERMISSION, key, key, patterns)
        elif isinstance(change, PermissionDeletion):
            key, kind = (change.vhost, change.user), Kind.PERMISSION
            if change.exchange is not None:
                key, kind = (*key, change.exchange), Kind.TOPIC_PERMISSION
            self._delete(kind, key, key)
        else:
            assert isinstance(change, VHostLimitsChange)
            key = (change.vhost,)
            self._put(Kind.VHOST_LIMITS, key, key, {"limits": dict(change.limits)})

    def vhost_added(self, name: str, defaults: NewVHost) -> None:  # noqa: ARG002
        # What it is given comes by the verbs that give it.
        self.vhost_set(name, "", ())

    def vhost_set(self, name: str, description: str, tags: Sequence[str]) -> None:
        value = {"description": description, "tags": list(tags)}
        self._put(Kind.VHOST, (name,), (name,), value)

    def vhost_removed(self, vhost: VHost) -> None:
        self._delete(Kind.VHOST, (vhost.name,), (vhost.name,))

    def policy_set(self, policy: Policy, operator: bool) -> None:
        key = (policy.vhost, policy.name)
        value = {
            "pattern": policy.pattern,
            "definition": encode_table(dict(policy.definition)),
            "priority": policy.priority,
            "apply_to": policy.apply_to,
        }
        self._put(_policy_kind(operator), key, key, value)

    def policy_cleared(self, vhost: VHost, name: str, operator: bool) -> None:
        key = (vhost.name, name)
        self._delete(_policy_kind(operator), key, key)

    def parameter_set(self, vhost: str, component: str, name: str, value: Any) -> None:
        key = (vhost, component, name)
        self._put(Kind.PARAMETER, key, key, {"json": _as_json(value)})

    def parameter_cleared(self, vhost: str, component: str, name: str) -> None:
        key = (vhost, component, name)
        self._delete(Kind.PARAMETER, key, key)

    def global_parameter_set(self, name: str, value: Any) -> None:
        self._put(Kind.GLOBAL_PARAMETER, (name,), (name,), {"json": _as_json(value)})

    def global_parameter_cleared(self, name: str) -> None:
        self._delete(Kind.GLOBAL_PARAMETER, (name,), (name,))

    def exchange_added(self, vhost: VHost, exchange: Exchange) -> None:
        if exchange.name in _DEFAULT_EXCHANGES or not self._keeps(exchange.durable):
            return
        key = (vhost.name, exchange.name)
        value = exchange_value(exchange)
        if exchange.is_delayed:
            value["id"] = self._next_queue_id()
        self._put(Kind.EXCHANGE, key, key, value)
        if exchange.is_delayed:
            self._last_queue_id = value["id"]
            self._open_room(vhost, exchange, value["id"])

    def _keeps(self, durable: bool) -> bool:
        """Whether an exchange or queue is kept."""
        return durable

    def _open_room(self, vhost: VHost, exchange: Exchange, queue_id: int) -> None:
        """What waits in a durable delayed exchange is kept as if in a durable queue."""
        room = self._engine.waiting_room(vhost, exchange)
        if not exchange.durable:
            return
        room.queue_id = queue_id
        room.durable = True
        self.on_queue(room)

    def _next_queue_id(self) -> int:
        if self._last_queue_id >= QUEUE_ID_MAX:
            raise ResourceError("all numbers for durable queues have been given out")
        return self._last_queue_id + 1

    def exchange_removed(self, vhost: VHost, exchange: Exchange) -> None:
        key = (vhost.name, exchange.name)
        self._delete(Kind.EXCHANGE, key, key)

    def queue_added(self, queue: AmqpQueue) -> None:
        if not self._keeps(queue.declaration.durable and not queue.declaration.exclusive):
            return
        number = self._next_queue_id()
        key = (queue.vhost.name, queue.name)
        self._put(Kind.QUEUE, key, key, {"id": number, **self._queue_value(queue)})
        self._last_queue_id = number
        number_queue(queue, number)
        if queue.queue_id:
            self.on_queue(queue)

    def _queue_value(self, queue: AmqpQueue) -> dict[str, Any]:
        return {
            "auto_delete": queue.declaration.auto_delete,
            "arguments": encode_table(dict(queue.declaration.arguments)),
        }

    def queue_removed(self, queue: AmqpQueue) -> None:
        key = (queue.vhost.name, queue.name)
        self._delete(Kind.QUEUE, key, key)

    def mirror_link_added(self, vhost: VHost, queue: str, node: str) -> None:
        key = (vhost.name, queue, node)
        self._put(Kind.MIRROR_LINK, key, key, {})

    def mirror_link_removed(self, vhost: VHost, queue: str, node: str) -> None:
        key = (vhost.name, queue, node)
        self._delete(Kind.MIRROR_LINK, key, key)

    def queue_paused(self, queue: AmqpQueue, by: str, at_ms: int) -> None:
        key = (queue.vhost.name, queue.name)
        # A queue that is not kept is not paused when it is there anew.
        if key in self._tables[Kind.QUEUE]:
            self._put(Kind.PAUSE, key, key, {"by": by, "at_ms": at_ms})

    def queue_resumed(self, queue: AmqpQueue) -> None:
        key = (queue.vhost.name, queue.name)
        self._delete(Kind.PAUSE, key, key)

    def binding_added(
        self, vhost: VHost, exchange: Exchange, binding: Binding, target: Any
    ) -> None:
        is_kept = bool(target.number) if isinstance(target, AmqpQueue) else target.durable
        key = (vhost.name, binding.identity)
        if not self._keeps(exchange.durable and is_kept) or key in self._tables[Kind.BINDING]:
            return
        encoded = encode_put(Kind.BINDING, _binding_parts(vhost, binding), {})
        self._record(encoded)
        self._tables[Kind.BINDING][key] = encoded

    def binding_removed(self, vhost: VHost, binding: Binding) -> None:
        key = (vhost.name, binding.identity)
        if key in self._tables[Kind.BINDING]:
            self._delete(Kind.BINDING, key, _binding_parts(vhost, binding))


def exchange_value(exchange: Exchange) -> dict[str, Any]:
    """What is kept of an exchange."""
    value: dict[str, Any] = {
        "type": exchange.type,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": encode_table(exchange.arguments),
    }
    if not exchange.durable:
        value["transient"] = True
    return value


def _as_json(value: Any) -> bytes:
    """Raises PreconditionFailed for what JSON cannot say."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise PreconditionFailed(f"the value of a parameter cannot be kept: {error}") from error


def _policy_kind(operator: bool) -> Kind:
    return Kind.OPERATOR_POLICY if operator else Kind.POLICY


def _binding_parts(vhost: VHost, binding: Binding) -> tuple[str | bytes, ...]:
    return (
        vhost.name,
        binding.source,
        binding.destination_kind,
        binding.destination,
        binding.routing_key,
        encode_table(binding.arguments),
    )
