"""The keeper of a node in a cluster: definitions change when all nodes agree, and only then.

A verb reaches the place where it would change something, and instead the change is proposed and the
verb ends with `Postponed`. When the change is agreed on, `apply` makes it on every node with the
same verbs, in the same order, so that what follows by itself follows everywhere alike. Transient
and exclusive entities are kept too: other nodes must know them, and an image of all definitions
must hold them.

Every record in the node's own log says up to which entry of the agreement it takes the definitions
(`applied`), so that after a restart they go on from there.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from logging import Logger
from typing import TYPE_CHECKING, Any, TypeVar

from warren.cluster.member_effects import Change as NodeChange
from warren.engine.errands import NewQueue
from warren.engine.metadata import MetadataKeeper, exchange_value, without_gc
from warren.engine.metadata_format import (
    CHANGES_OF_A_SLICE,
    Change,
    Kind,
    MetadataError,
    encode_delete,
    encode_put,
    pack,
    unpack,
    unpack_in_slices,
)
from warren.engine.metadata_restore import restore, restoring
from warren.engine.mirror_links import remove_links_to
from warren.model.errand import Errand
from warren.model.errors import Postponed

if TYPE_CHECKING:
    from warren.auth.directory import DirectoryChange
    from warren.cluster.member_effects import NodesChanged
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.metadata import Key
    from warren.engine.new_vhost import NewVHost
    from warren.engine.vhost import VHost
    from warren.routing.exchange import Exchange

Item = TypeVar("Item")

#: Images of more definitions than these are large.
LARGE_IMAGE = 10_000

#: Entries that only add go into one record until it is about this long.
RECORD_BYTES = 1 << 20
#: What is there or not; to have it otherwise it must go first.
ENTITIES = frozenset({Kind.EXCHANGE, Kind.QUEUE, Kind.BINDING})
#: What operators set. It is proposed even where it is so already: a node that lags does not know
#: whether somebody else has replaced it meanwhile, and whoever says something last is to be right.
OPERATORS_KINDS = frozenset(
    {
        Kind.VHOST,
        Kind.VHOST_LIMITS,
        Kind.USER,
        Kind.PERMISSION,
        Kind.TOPIC_PERMISSION,
        Kind.POLICY,
        Kind.OPERATOR_POLICY,
        Kind.PARAMETER,
        Kind.GLOBAL_PARAMETER,
    }
)
#: Sends a change to all nodes; the errand ends when all that live have made it.
Propose = Callable[[bytes], "Errand"]


class AgreedKeeper(MetadataKeeper):
    """See the module's text."""

    def __init__(
        self, engine: Engine, append: Callable[[bytes], None], propose: Propose, log: Logger
    ) -> None:
        super().__init__(engine, append)
        self._propose = propose
        self._log = log
        #: The last entry of the agreement that the definitions have.
        self.applied = 0
        #: Records of the log were lost: there may be more of them than these, or fewer.
        self.is_doubtful = False
        #: The last entry that was carried out here, be it none of the definitions.
        self._reached = 0
        self._is_applying = False
        self._is_sparing = False
        #: Changes of one call, while they are gathered.
        self._wanted: list[bytes] | None = None
        #: Ends when an image that is being taken over is in place.
        self.under_way: Errand | None = None
        #: What waits for entries that are not here yet.
        self._behind: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_whole(self) -> bool:
        return self.under_way is None

    def load(self, snapshot: bytes) -> None:
        self._note_applied(snapshot)
        super().load(snapshot)

    def apply(self, payload: bytes) -> None:
        self._note_applied(payload)
        super().apply(payload)

    def _note_applied(self, payload: bytes) -> None:
        head, _ = unpack(payload)
        self.applied = max(self.applied, head.number("applied", 0))

    def _redo(self, change: Change, given: set[int] | None) -> None:
        super()._redo(change, given)
        if change.kind is Kind.QUEUE and change.value is not None and not change.value.has("home"):
            # Of the time before the cluster: its home is here, and the others must see that.
            vhost, name = change.names
            queue = self._engine.vhosts[vhost].queues[name]
            value = {"id": queue.number, **self._queue_value(queue)}
            self._tables[Kind.QUEUE][change.key] = encode_put(Kind.QUEUE, change.names, value)

    def attach(self) -> None:
        super().attach()
        self._engine.agreed = self

    def _head(self) -> dict[str, int]:
        return {"applied": self.applied}

    def _keeps(self, durable: bool) -> bool:  # noqa: ARG002
        return True

    # -- proposing ---------------------------------------------------------------------------------

    def _put(self, kind: Kind, key: Key, names: Sequence[str], value: dict[str, Any]) -> None:
        if self._is_applying:
            super()._put(kind, key, names, value)
            return
        encoded = encode_put(kind, names, value)
        insists = kind in OPERATORS_KINDS and not self._is_sparing
        if insists or self._tables[kind].get(key) != encoded:
            self._want(encoded)

    def _delete(self, kind: Kind, key: Key, parts: Sequence[str | bytes]) -> None:
        if self._is_applying:
            super()._delete(kind, key, parts)
        elif key in self._tables[kind]:
            self._want(encode_delete(kind, parts))

    def _record(self, change: bytes) -> None:
        if self._is_applying:
            super()._record(change)
        else:
            self._want(change)

    @contextmanager
    def sparing(self) -> Iterator[None]:
        self._is_sparing = True
        try:
            yield
        finally:
            self._is_sparing = False

    def _want(self, change: bytes) -> None:
        """A change that is to be agreed on: by itself, or with others of the same call."""
        if self._wanted is None:
            raise Postponed(errand=self._propose(pack((change,))))
        self._wanted.append(change)

    @contextmanager
    def _as_one(self) -> Iterator[None]:
        """All changes wanted inside are proposed together at its end."""
        self._wanted = []
        try:
            yield
        finally:
            wanted, self._wanted = self._wanted, None
        if wanted:
            raise Postponed(errand=self._propose(pack(wanted)))

    def directory_changed(self, changes: Sequence[DirectoryChange]) -> None:
        with self._as_one():
            super().directory_changed(changes)

    def vhost_added(self, name: str, defaults: NewVHost) -> None:
        defaults.check()
        with self._as_one():
            self.vhost_set(name, "", ())
            for change in defaults.directory_changes():
                self._directory_change(change)
            for policy in defaults.operator_policies:
                self.policy_set(policy, True)

    def queue_added(self, queue: AmqpQueue) -> None:
        if self._is_applying:
            super().queue_added(queue)
            return
        # Its number is given where the order is known: when the change is applied.
        put = encode_put(Kind.QUEUE, (queue.vhost.name, queue.name), self._queue_value(queue))
        errand = self._propose(pack((put,)))
        errand.memo = NewQueue(queue.name)
        raise Postponed(errand=errand)

    def exchange_added(self, vhost: VHost, exchange: Exchange) -> None:
        if self._is_applying:
            super().exchange_added(vhost, exchange)
            return
        put = encode_put(Kind.EXCHANGE, (vhost.name, exchange.name), exchange_value(exchange))
        raise Postponed(errand=self._propose(pack((put,))))

    def _queue_value(self, queue: AmqpQueue) -> dict[str, Any]:
        value = {**super()._queue_value(queue), "home": queue.home}
        declaration = queue.declaration
        if not declaration.durable:
            value["transient"] = True
        if declaration.exclusive:
            value["exclusive"] = True
        if queue.born_mirrored:
            value["mirrored"] = True
        if queue.owner is not None:
            value["owner"] = self._owner_name(queue)
        return value

    def _owner_name(self, queue: AmqpQueue) -> str:
        """Tells the connection of an exclusive queue from all others of its node."""
        owner = queue.owner
        assert owner is not None
        if not owner.token:
            owner.token = self._engine.dice.token()
            self._engine.owners[owner.token] = owner
        token: str = owner.token
        return token

    def remove_queue(self, queue: AmqpQueue, epoch: int | None = None) -> Errand:
        """Propose that a queue goes; with an epoch, only while that is the one of its view."""
        key = (queue.vhost.name, queue.name)
        return self._propose(pack((encode_delete(Kind.QUEUE, key, epoch),)))

    # -- applying ----------------------------------------------------------------------------------

    @contextmanager
    def applying(self) -> Iterator[None]:
        """Changes made inside are agreed on; they become one record."""
        self._is_applying = True
        try:
            with self.together():
                yield
        finally:
            self._is_applying = False
        self._go_on()

    def when_applied(self, index: int, action: Callable[[], None]) -> None:
        """Call when the definitions have an entry of the agreement; at once if they do."""
        if index <= max(self.applied, self._reached) and not self._behind:
            action()
        else:
            self._behind.append((index, action))

    def reach(self, index: int) -> None:
        """Entries up to this one are carried out.

        Whoever has its definitions from an image names the image's entry, which may be one that
        changed no definition: to wait for such a change could take for ever.
        """
        self._reached = index
        if self._behind:
            self._go_on()

    def _go_on(self) -> None:
        """In the order they came, so that none overtakes another of its link."""
        reached = max(self.applied, self._reached)
        while self._behind and self._behind[0][0] <= reached:
            _, action = self._behind.popleft()
            self._engine.resuming.append(action)

    def apply_agreed(self, entries: Sequence[tuple[int, bytes]]) -> None:
        """Make the changes of entries; those that others have overtaken are left out."""
        together: list[tuple[int, list[Change]]] = []
        size = 0
        for index, command in entries:
            if index <= self.applied:
                continue
            _, changes = unpack(command)
            # That something is gone must be in the log before what follows from it.
            is_alone = any(change.value is None for change in changes)
            if is_alone or size + len(command) > RECORD_BYTES:
                self._apply_together(together)
                together, size = [], 0
            together.append((index, changes))
            size += len(command)
            if is_alone:
                self._apply_together(together)
                together, size = [], 0
        self._apply_together(together)

    def _apply_together(self, entries: Sequence[tuple[int, list[Change]]]) -> None:
        """As one record of the node's own log."""
        if not entries:
            return
        with self.applying():
            for index, changes in entries:
                self.applied = index
                for change in changes:
                    self._make(change)

    def _make(self, change: Change) -> None:
        is_there = change.key in self._tables[change.kind]
        is_entity = change.kind in ENTITIES
        if not is_there if change.value is None else is_there and is_entity:
            return
        if change.epoch is not None and change.epoch != self._epoch_of(*change.names):
            return  # Whoever wanted it gone is not its master any more, or is so anew.
        try:
            self._put_in_place(change)
        except MetadataError as error:
            # All nodes see it alike: its virtual host is gone by now, or its exchange.
            self._log.info("an agreed change has no effect any more: %s", error)
            return
        if change.kind is Kind.QUEUE and change.value is not None:
            self._check_owner(change)
        elif change.kind in {Kind.USER, Kind.PERMISSION, Kind.TOPIC_PERMISSION}:
            self._engine.later(lambda _now_ms: self._engine.close_deleted_users())

    def _epoch_of(self, vhost: str, name: str) -> int:
        """As of the entry that is carried out, on all nodes alike; 0: the queue has no view."""
        queue = self._engine.vhosts[vhost].queues[name]
        view = self._engine.views.get(queue.number)
        return 0 if view is None else view.epoch

    def _put_in_place(self, change: Change) -> None:
        """The verb of the engine tells the keeper; only virtual hosts are put in without one."""
        if change.kind is Kind.VHOST and change.value is not None:
            names, value = change.names, change.value
            described = {"description": value.text("description"), "tags": value.texts("tags")}
            self._put(Kind.VHOST, names, names, described)
        restore(self._engine, change)

    def _check_owner(self, change: Change) -> None:
        """An exclusive queue whose connection has gone meanwhile goes too."""
        vhost, name = change.names
        queue = self._engine.vhosts[vhost].queues[name]
        if queue.declaration.exclusive and queue.owner is None and not queue.is_remote:
            self._engine.later(lambda _now_ms: self._engine.drop_queue(queue))

    def nodes_changed(self, change: NodesChanged) -> None:
        """What goes with a node that is gone, or with the last that had what is transient."""
        if change.what in {NodeChange.DOWN, NodeChange.REGISTERED}:
            self.forget_transient(change.index, change.node, change.ends_era)
        elif change.what is NodeChange.FORGOTTEN:
            self.forget_all_of(change.index, change.node, change.ends_era)
        elif change.ends_era:
            self._forget_all(change.index, lambda _queue: False, True)

    def forget_transient(self, index: int, node: str, ends_era: bool = False) -> None:
        """A node is gone: so are its queues that do not outlive it."""

        def goes(queue: AmqpQueue) -> bool:
            return queue.home == node and not queue.declaration.durable

        self._forget_all(index, goes, ends_era)

    def forget_all_of(self, index: int, node: str, ends_era: bool = False) -> None:
        """A node will not come back: its queues are gone for good."""

        def goes(queue: AmqpQueue) -> bool:
            home: str = queue.home
            return home == node

        self._forget_all(index, goes, ends_era, node)

    def _forget_all(
        self, index: int, goes: Callable[[AmqpQueue], bool], ends_era: bool, lost: str = ""
    ) -> None:
        if index <= self.applied:
            return
        with self.applying():
            self.applied = index
            for vhost in list(self._engine.vhosts.values()):
                for queue in list(vhost.queues.values()):
                    if goes(queue):
                        self._engine.remove_queue(queue)
                if ends_era:
                    self._forget_transient_exchanges(vhost)
            if lost:
                remove_links_to(self._engine, lost)

    def _forget_transient_exchanges(self, vhost: VHost) -> None:
        """All nodes were stopped: what does not outlive that is gone, with its bindings."""
        for exchange in list(vhost.exchanges.values()):
            # One may be gone by now, with another that it was bound to.
            if not exchange.durable and vhost.exchanges.get(exchange.name) is exchange:
                self._engine.remove_exchange(vhost, exchange)

    # -- images ------------------------------------------------------------------------------------

    def take_over(
        self, index: int, image: bytes, breathe: Callable[[], None] = lambda: None
    ) -> None:
        """Make all definitions equal to an image of them, as they were after an entry, in one go.

        `breathe` is called now and then, to tell others that we are there.
        """
        for _ in self.taking_over(index, image):
            breathe()

    def taking_over(self, index: int, image: bytes) -> Iterator[None]:
        """The same in slices, since an image of very many definitions takes seconds.

        The loop may go on between two of them, but nobody may look at the definitions before the
        last, nor keep them: see `under_way`. The node's own log gets all of it as one record.
        """
        under_way = self.under_way = Errand()
        try:
            with without_gc():
                yield from self._take_over(index, image)
        finally:
            self.under_way = None
            under_way.finish()
        self._log.info("all definitions were taken over, as of entry %d", index)
        self._go_on()

    def _take_over(self, index: int, image: bytes) -> Iterator[None]:
        head, changes = yield from unpack_in_slices(image)
        wanted: dict[tuple[Kind, Key], Change] = {}
        for some in _slices(changes):
            wanted.update({(change.kind, change.key): change for change in some})
            yield
        # Dependent kinds before the others.
        present = [(kind, item) for kind in reversed(Kind) for item in self._tables[kind].items()]
        is_large = len(changes) >= LARGE_IMAGE
        self._nesting += 1
        try:
            for rows in _slices(present):
                with self._putting_in_place():
                    for kind, (key, encoded) in rows:
                        self._drop_if_another(wanted.get((kind, key)), kind, key, encoded)
                yield
            # Taken out of both as it goes: to let go of all at the end would take long, too.
            changes.reverse()
            while changes:
                with self._putting_in_place():
                    for change in reversed(changes[-CHANGES_OF_A_SLICE:]):
                        self._take_if_another(change)
                        wanted.pop((change.kind, change.key), None)
                del changes[-CHANGES_OF_A_SLICE:]
                yield
            self.applied = index
            self._last_queue_id = head.number("last_queue_id")
        finally:
            self._nesting -= 1
        self._flush()
        if is_large:
            # They are here to stay: looking through all of them for garbage would hold the node up.
            gc.freeze()

    @contextmanager
    def _putting_in_place(self) -> Iterator[None]:
        self._is_applying = True
        try:
            with restoring(self._engine):
                yield
        finally:
            self._is_applying = False

    def _drop_if_another(self, wanted: Change | None, kind: Kind, key: Key, encoded: bytes) -> None:
        """Removes what the image has not, or has otherwise."""
        if wanted is None or (kind in ENTITIES and wanted.encoded != encoded):
            self._drop(encoded, key)

    def mend(self, image: bytes) -> tuple[int, int]:
        """Have what an image has, as of the same entry; how many were missing, and too many.

        Unlike `take_over`, a queue or an exchange that is there stays as it is: with its messages.
        """
        head, changes = unpack(image)
        wanted = {(change.kind, change.key): change for change in changes}
        added = dropped = 0
        with self.together(), self._putting_in_place():
            for kind in reversed(Kind):
                for key, encoded in list(self._tables[kind].items()):
                    change = wanted.get((kind, key))
                    if change is None or _is_another(kind, change, encoded):
                        self._drop(encoded, key)
                        dropped += 1
            for change in changes:
                known = self._tables[change.kind].get(change.key)
                if known is None or (change.kind not in ENTITIES and known != change.encoded):
                    self._take(change)
                    added += 1
        self._last_queue_id = max(self._last_queue_id, head.number("last_queue_id"))
        self.is_doubtful = False
        return added, dropped

    def _take_if_another(self, change: Change) -> None:
        known = self._tables[change.kind].get(change.key)
        if known is None or known != change.encoded:
            self._take(change)

    def _drop(self, encoded: bytes, key: Key) -> None:
        _, (change,) = unpack(pack((encoded,)))
        if key in self._tables[change.kind]:
            change.value = None
            restore(self._engine, change)

    def _take(self, change: Change) -> None:
        assert change.value is not None
        number = change.value.number("id", 0)
        if number:
            # The image says which number it has; the next one that is given out is that one.
            self._last_queue_id = number - 1
        try:
            self._put_in_place(change)
        except MetadataError as error:
            self._log.error("an image of the definitions: %s", error)


def _slices(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (
        items[first : first + CHANGES_OF_A_SLICE]
        for first in range(0, len(items), CHANGES_OF_A_SLICE)
    )


def _is_another(kind: Kind, wanted: Change, encoded: bytes) -> bool:
    """Whether a queue of the same name has been deleted and declared anew meanwhile."""
    if kind is not Kind.QUEUE or wanted.value is None:
        return False
    _, (own,) = unpack(pack((encoded,)))
    assert own.value is not None
    return own.value.number("id", 0) != wanted.value.number("id", 0)
