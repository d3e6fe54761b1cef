"""What the cluster agrees on: records, nodes, and the view of every mirrored queue.

A deterministic state machine: the same commands lead to the same state, byte for byte, on every
node. It knows no clock and no dice, and goes through dictionaries in the order of keys or of the
log. All changes are compare-and-set: on a record's version (the index of its last change), a
queue's epoch, or a node's incarnation.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from warren.cluster import metadata_commands as commands
from warren.cluster.metadata_commands import Answer, Result, decode_command, encode_result

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGE_VERSION = 1
_CONFLICT = Result(Answer.CONFLICT)
_NOT_FOUND = Result(Answer.NOT_FOUND)
_REFUSED = Result(Answer.REFUSED)


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One definition; its version is the index of the entry that set it."""

    version: int
    value: bytes


class Node(msgspec.Struct, frozen=True, array_like=True):
    """A node as the cluster knows it."""

    incarnation: int
    is_alive: bool
    #: It is down because it was told to stop.
    stopped: bool = False
    #: An operator has taken it out of service: it gets no masters and no replicas.
    drained: bool = False


class View(msgspec.Struct, frozen=True, array_like=True):
    """Who holds a queue. The epoch grows with every change, so an old view can be told."""

    epoch: int
    master: str | None
    #: Those that have every confirmed message, the oldest first.
    in_sync: tuple[str, ...]
    learners: tuple[str, ...]
    #: The nodes that are to have replicas.
    wanted: tuple[str, ...]
    #: The last epoch that began with a replica which may have lacked messages.
    unclean: int = 0

    def is_in_full_on(self, node: str) -> bool:
        """Whether nobody else has everything, although others are to have it."""
        return self.in_sync == (node,) and bool(set(self.wanted) - {node})


class _Image(msgspec.Struct, array_like=True):
    version: int
    records: list[tuple[int, dict[str, Record]]]
    nodes: dict[str, Node]
    views: dict[str, View]
    cluster_id: str = ""
    bearers: dict[str, int] = msgspec.field(default_factory=dict)
    era: int = 0


_image_decoder = msgspec.msgpack.Decoder(_Image)


class Metadata:
    """The replicated state. `apply` is the only way to change it."""

    def __init__(self) -> None:
        self._records: dict[int, dict[str, Record]] = {kind.value: {} for kind in commands.Kind}
        self._nodes: dict[str, Node] = {}
        self._views: dict[str, View] = {}
        #: The views that have changed since they were last taken; None: there is none any more.
        self._changed_views: dict[str, View | None] = {}
        #: Empty until the first leader has given the cluster one.
        self.cluster_id = ""
        #: The lives (node -> incarnation) that have what is transient: each has seen one of the
        #: others begin, so there was never a moment in which none of them ran.
        self.bearers: dict[str, int] = {}
        #: The entry at which what was transient ended for the last time, all nodes having stopped.
        self.era = 0
        #: The lives that are alive and have no part in it yet.
        self.unseen: tuple[commands.Life, ...] = ()

    # -- looking

    def record(self, kind: commands.Kind, key: str) -> Record | None:
        return self._records[kind].get(key)

    def records(self, kind: commands.Kind) -> dict[str, Record]:
        """All records of a kind, by key, to look at."""
        return self._records[kind]

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def nodes(self) -> dict[str, Node]:
        return self._nodes

    def view(self, queue: str) -> View | None:
        return self._views.get(queue)

    def views(self) -> dict[str, View]:
        return self._views

    def take_changed_views(self) -> dict[str, View | None]:
        """What has become of views since the last call; None: the view is gone."""
        taken, self._changed_views = self._changed_views, {}
        return taken

    # -- the state machine

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply a committed command; the answer, which is the same on all nodes."""
        decoded = decode_command(command)
        if decoded is None:
            return encode_result(Result(Answer.MALFORMED))
        return encode_result(self.carry_out(index, decoded))

    def image(self) -> bytes:
        """The whole state; equal states have equal images, whatever led to them."""
        records = list(self._records.items())
        image = _Image(
            IMAGE_VERSION,
            records,
            self._nodes,
            self._views,
            self.cluster_id,
            self.bearers,
            self.era,
        )
        return msgspec.msgpack.encode(image, order="deterministic")

    def restore(self, image: bytes) -> None:
        """Replace the whole state."""
        loaded = _image_decoder.decode(image)
        if loaded.version != IMAGE_VERSION:
            raise ValueError(f"an image of version {loaded.version}, not {IMAGE_VERSION}")
        records = dict(loaded.records)
        self._records = {kind.value: records.get(kind.value, {}) for kind in commands.Kind}
        self._changed_views |= dict.fromkeys(self._views) | loaded.views
        self._nodes, self._views = loaded.nodes, loaded.views
        self.cluster_id = loaded.cluster_id
        self.bearers, self.era = loaded.bearers, loaded.era
        self._note_unseen()

    def digest(self) -> bytes:
        """A hash of the state, to compare nodes by."""
        return hashlib.blake2b(self.image(), digest_size=16).digest()

    def carry_out(self, index: int, command: commands.Command) -> Result:
        """`apply` for a command that is decoded already."""
        result = self._carry_out(index, command)
        if type(command) in _OF_NODES:
            self._renew_bearers(index)
        return result

    def _carry_out(self, index: int, command: commands.Command) -> Result:
        match command:
            case commands.Put():
                return self._put(index, command)
            case commands.Delete():
                return self._delete(command)
            case commands.Register():
                return self._register(command)
            case commands.NodeDown():
                return self._set_alive(command, False, command.stopped)
            case commands.NodeUp():
                return self._set_alive(command, True)
            case commands.Drain():
                return self._drain(command)
            case commands.Forget():
                return self._forget(command.node)
            case commands.Witness():
                return self._witness(command)
            case commands.Found():
                return self._found(command.cluster_id)
            case commands.Define():
                return _REFUSED  # The definitions are not kept here.
            case commands.CreateView():
                return self._create_view(command)
            case _:
                return self._change_view(command)

    # -- records

    def _put(self, index: int, command: commands.Put) -> Result:
        records = self._records[command.kind]
        if not _is_as_expected(records.get(command.key), command.expected):
            return _conflict(records.get(command.key))
        records[command.key] = Record(index, command.value)
        return Result(Answer.DONE, index)

    def _delete(self, command: commands.Delete) -> Result:
        records = self._records[command.kind]
        record = records.get(command.key)
        if record is None:
            return _NOT_FOUND
        if not _is_as_expected(record, command.expected):
            return _conflict(record)
        del records[command.key]
        return Result(Answer.DONE)

    # -- nodes

    def _register(self, command: commands.Register) -> Result:
        """A node that restarts is the youngest replica of its queues; with empty disks, none.

        Nor does it stay one where the end of its log was cut off. That looks alike whether the
        machine did not finish it or the disk spoiled what was confirmed; the others know.
        """
        name = command.node
        known = self._nodes.get(name)
        if known is not None and command.incarnation <= known.incarnation:
            return Result(Answer.CONFLICT, known.incarnation)
        drained = known is not None and known.drained
        self._nodes[name] = Node(command.incarnation, True, drained=drained)

        def restarted(view: View) -> View:
            others = tuple(node for node in view.in_sync if node != name)
            # Who has a damaged copy, and the only one, still has more than anybody else.
            may_lack = command.fresh or command.behind
            keeps = name in view.in_sync and not (may_lack and others)
            in_sync = (*others, name) if keeps else others
            # Its master was restarted: one that went on is to be asked first.
            master = self._heir(in_sync) if view.master == name else view.master
            # By its log it has what the damage took: who has that, too, must not match it by index.
            is_damaged = keeps and command.fresh
            unclean = view.epoch + 1 if is_damaged else view.unclean
            return msgspec.structs.replace(view, in_sync=in_sync, master=master, unclean=unclean)

        self._renew_views(lambda view: name in view.wanted or name in view.in_sync, restarted)
        return Result(Answer.DONE, command.incarnation)

    def _set_alive(
        self, command: commands.NodeDown | commands.NodeUp, is_alive: bool, stopped: bool = False
    ) -> Result:
        """One entry for all queues of the node, so failover is one round whatever their number."""
        name = command.node
        known = self._nodes.get(name)
        if known is None:
            return _NOT_FOUND
        if known.incarnation != command.incarnation or known.is_alive is is_alive:
            return Result(Answer.CONFLICT, known.incarnation)
        self._nodes[name] = Node(known.incarnation, is_alive, stopped, known.drained)
        self._renew_views(lambda view: name in view.wanted or name in view.in_sync)
        return Result(Answer.DONE, known.incarnation)

    def _drain(self, command: commands.Drain) -> Result:
        """Its masters stay until it hands them over itself, which loses nothing."""
        known = self._nodes.get(command.node)
        if known is None:
            return _NOT_FOUND
        self._nodes[command.node] = msgspec.structs.replace(known, drained=command.drained)
        return Result(Answer.DONE, known.incarnation)

    def _forget(self, name: str) -> Result:
        """A node that is alive, or holds the only good copy of a mirrored queue, is not forgotten.

        A queue that is on that node alone goes with it, as one that was never mirrored does.
        """
        known = self._nodes.get(name)
        if known is None:
            return _NOT_FOUND
        if known.is_alive or any(view.is_in_full_on(name) for view in self._views.values()):
            return _REFUSED
        del self._nodes[name]

        def without(view: View) -> View:
            return msgspec.structs.replace(
                view,
                in_sync=tuple(node for node in view.in_sync if node != name),
                wanted=tuple(node for node in view.wanted if node != name),
            )

        self._renew_views(lambda view: name in view.wanted or name in view.in_sync, without)
        return Result(Answer.DONE)

    def _witness(self, command: commands.Witness) -> Result:
        by = command.by
        if self.bearers.get(by.node) != by.incarnation:
            return _CONFLICT
        for life in command.seen:
            known = self._nodes.get(life.node)
            if known is not None and known.incarnation == life.incarnation:
                self.bearers[life.node] = life.incarnation
        return Result(Answer.DONE)

    def _renew_bearers(self, index: int) -> None:
        """Lives that are over bear nothing; when no other does, what is transient ends.

        Who is down may be cut off only, and bears on, unless nobody that is there does.
        """
        nodes, before = self._nodes, self.bearers
        alive = {name: node.incarnation for name, node in nodes.items() if node.is_alive}
        self.bearers = {
            name: incarnation
            for name, incarnation in before.items()
            if name in nodes and nodes[name].incarnation == incarnation
        }
        if alive and not any(name in self.bearers for name in alive):
            self.bearers = alive
            self.era = index if before else self.era
        self._note_unseen()

    def _note_unseen(self) -> None:
        lives = ((name, node) for name, node in sorted(self._nodes.items()) if node.is_alive)
        self.unseen = tuple(
            commands.Life(name, node.incarnation)
            for name, node in lives
            if name not in self.bearers
        )

    def _found(self, cluster_id: str) -> Result:
        if self.cluster_id:
            return _CONFLICT
        self.cluster_id = cluster_id
        return Result(Answer.DONE)

    # -- views

    def _create_view(self, command: commands.CreateView) -> Result:
        there = self._views.get(command.queue)
        if there is not None:
            return Result(Answer.CONFLICT, there.epoch)
        replicas = command.replicas
        alive = tuple(node for node in replicas if self._is_alive(node))
        known = all(node in self._nodes for node in replicas)
        if not known or len(set(replicas)) != len(replicas) or replicas[0] not in alive:
            return _REFUSED
        incarnation = self._nodes[replicas[0]].incarnation
        is_empty = command.empty and command.incarnation in {None, incarnation}
        in_sync = alive if is_empty else replicas[:1]
        view = self._settled(View(0, replicas[0], in_sync, (), replicas))
        self._set_view(command.queue, view)
        return Result(Answer.DONE, view.epoch)

    def _change_view(self, command: _ViewChange) -> Result:
        view = self._views.get(command.queue)
        if view is None:
            return _NOT_FOUND
        if command.epoch != view.epoch:
            return Result(Answer.CONFLICT, view.epoch)
        if isinstance(command, commands.DropView):
            del self._views[command.queue]
            self._changed_views[command.queue] = None
            return Result(Answer.DONE)
        changed = self._changed(view, command)
        if changed is None:
            return Result(Answer.REFUSED, view.epoch)
        changed = self._settled(changed)
        self._set_view(command.queue, changed)
        return Result(Answer.DONE, changed.epoch)

    def _changed(self, view: View, command: _ViewChange) -> View | None:
        """The view as the command wants it, or None where that must not be."""
        in_sync = view.in_sync
        match command:
            case commands.Shrink(node=node):
                if node not in in_sync or node == view.master:
                    return None
                in_sync = tuple(other for other in in_sync if other != node)
                return msgspec.structs.replace(view, in_sync=in_sync)
            case commands.Expand(node=node):
                if node not in view.learners or view.master is None:
                    return None
                return msgspec.structs.replace(view, in_sync=(*in_sync, node))
            case commands.Handover(node=node):
                if node not in in_sync or not self._is_alive(node) or node == view.master:
                    return None
                return msgspec.structs.replace(view, master=node)
            case commands.UncleanPromote(node=node):
                if view.master is not None or node not in view.learners:
                    return None
                return msgspec.structs.replace(
                    view, master=node, in_sync=(node,), unclean=view.epoch + 1
                )
            case commands.Place(replicas=replicas):
                known = all(node in self._nodes for node in replicas)
                if not known or len(set(replicas)) != len(replicas):
                    return None
                return msgspec.structs.replace(view, wanted=replicas)
            case _:
                return None

    def _renew_views(
        self,
        concerns: Callable[[View], bool],
        change: Callable[[View], View] = lambda view: view,
    ) -> None:
        for queue, view in self._views.items():
            if concerns(view):
                self._set_view(queue, self._settled(change(view)))

    def _set_view(self, queue: str, view: View) -> None:
        self._views[queue] = self._changed_views[queue] = view

    def _settled(self, view: View) -> View:
        """The next epoch of a view, by the rules that hold for every change.

        The dead leave the in-sync replicas only while one that is in sync lives: the last ones to
        go are the only ones that have everything. The oldest of the living is the master, one that
        is drained only if there is no other.
        """
        in_sync = view.in_sync
        alive = tuple(node for node in in_sync if self._is_alive(node))
        master = view.master
        if alive:
            in_sync = alive
            if master not in alive:
                master = self._heir(alive)
            # Unwanted replicas go, once a wanted one is in sync.
            wanted = tuple(node for node in alive if node in view.wanted)
            if wanted:
                in_sync = wanted
                master = master if master in wanted else self._heir(wanted)
        else:
            master = None
        learners = tuple(
            node for node in view.wanted if node not in in_sync and self._is_alive(node)
        )
        return View(view.epoch + 1, master, in_sync, learners, view.wanted, view.unclean)

    def _is_alive(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.is_alive

    def _heir(self, names: tuple[str, ...]) -> str | None:
        """Who becomes master: the oldest that lives, rather none that is drained."""
        alive = [name for name in names if self._is_alive(name)]
        in_service = [name for name in alive if not self._nodes[name].drained]
        return next(iter(in_service or alive), None)


_ViewChange = (
    commands.DropView
    | commands.Shrink
    | commands.Expand
    | commands.Handover
    | commands.UncleanPromote
    | commands.Place
)
ViewCommand = commands.CreateView | _ViewChange
_OF_NODES = frozenset(
    {commands.Register, commands.NodeDown, commands.NodeUp, commands.Forget, commands.Witness}
)


def _is_as_expected(record: Record | None, expected: int | None) -> bool:
    return expected is None or expected == (record.version if record is not None else 0)


def _conflict(record: Record | None) -> Result:
    return Result(Answer.CONFLICT, record.version) if record is not None else _CONFLICT
