"""All replicas of mirrored queues on this node, and the ways between them and the other nodes'."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from warren.engine import moving
from warren.engine.amqp_queue import AmqpQueue
from warren.engine.copies import Copies
from warren.engine.copy_hours import CopyHours
from warren.engine.forks import Forks
from warren.engine.mirror import Mirror
from warren.engine.mirror_log import MirrorLog
from warren.engine.salvaging import lines_of
from warren.engine.scrubbing import Scrub
from warren.replication import frames
from warren.replication.lineage import Lineage
from warren.replication.types import ProtocolError
from warren.store.fork_files import FORK_BIT

if TYPE_CHECKING:
    from warren.cluster.metadata import ViewCommand
    from warren.engine.engine import Engine
    from warren.model.errand import Errand
    from warren.model.message import Message
    from warren.replication.types import View
    from warren.store.journal import Journal
    from warren.store.salvage import SalvageDirectory

Send = Callable[[str, bytes], None]
Propose = Callable[["ViewCommand"], "Errand"]


def gateway_id(node: str, incarnation: int) -> int:
    """What a life of a node is called in the operations of queues."""
    digest = hashlib.blake2b(f"{incarnation}.{node}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1


class Mirrors:
    """Made before the node's log is read; `start` when the node knows the others."""

    def __init__(self, engine: Engine, send: Send, propose: Propose) -> None:
        self.engine = engine
        self.send = send
        self._propose = propose
        self.copies = Copies(engine)
        #: By the queue's number.
        self.by_number: dict[int, Mirror] = {}
        #: By number, queues of this node that wait for the cluster's word to get a ring.
        self._kept: dict[int, AmqpQueue] = {}
        self.hours = CopyHours(engine, self.by_number.values)
        self.scrub = Scrub(engine, self.by_number)
        self._journal: Journal | None = None
        self.forks = Forks(self)
        #: Where messages go that are cut off; None: nowhere, in tests.
        self.salvage: SalvageDirectory | None = None
        #: Told of pieces that are to be published again.
        self.on_returning: Callable[[str], None] | None = None
        #: Messages that could not be read here and came from another replica.
        self.mended = 0
        #: The log's end was cut off at the start, or something is missing in it; whom to tell when
        #: the cluster knows.
        self.is_cut = self.is_doubtful = False
        self.on_registered: Callable[[], None] | None = None
        self._own_gateway = 0
        self._is_started = False

    # -- coming back from the disk -----------------------------------------------------------------

    def attach_journal(self, journal: Journal) -> None:
        """The node's log is about to be read."""
        self._journal = journal
        journal.on_unknown = self._find_copy
        journal.on_lost = self.forks.lost
        journal.on_mirrored = self._found_mirrored

    @property
    def journal(self) -> Journal | None:
        """The node's log."""
        return self._journal

    def _find_copy(self, number: int) -> Any:
        """The log speaks of a queue that has its home elsewhere: this node had a copy."""
        if number & FORK_BIT:
            return self.forks.found(number)
        for vhost in self.engine.vhosts.values():
            for queue in vhost.queues.values():
                if queue.number == number:
                    return self._make_copy(queue)
        return None

    def _found_mirrored(self, queue: AmqpQueue) -> MirrorLog:
        """The log says that a queue has a ring."""
        mirror = self.by_number.get(queue.number)
        if mirror is None:
            mirror = self._mirror_of(queue)
        return mirror.log

    def start(self, incarnation: int) -> None:
        """All that was on the disk is here: the copies wait for the cluster's word."""
        self._own_gateway = gateway_id(self.engine.settings.node_name, incarnation)
        self.scrub.begin()
        for number, mirror in list(self.by_number.items()):
            log = mirror.log
            log.own_gateway = self._own_gateway
            if log.is_dropped:
                # What this node knows of views may be older than that: by them the queue may be
                # here, and would be served without a copy until the cluster's word comes.
                self._wait_elsewhere(mirror)
                self._strike_off(number)
                continue
            if log.must_reset:
                log.reset(0, Lineage(), b"")
                log.close_gap()
            self._wait_elsewhere(mirror)
            mirror.take_part()
        self.forks.start()
        self._is_started = True

    def _wait_elsewhere(self, mirror: Mirror) -> None:
        """Nobody may use the queue of a replica here before the cluster has said who its master is.

        It is the copy itself; of a transient queue, which has none in the log, another one.
        """
        queue = mirror.queue.vhost.queues.get(mirror.queue.name)
        if queue is not None and not queue.is_remote and queue.number == mirror.queue.number:
            moving.become_remote(self.engine, queue, None)

    @property
    def is_damaged(self) -> bool:
        """Whether a copy may lack something that it had, or is gone with all that told of it."""
        return self.is_doubtful or any(it.log.is_broken for it in self.by_number.values())

    def doubt(self) -> None:
        """The node's log was damaged: nobody knows whose records are gone."""
        self.is_doubtful = True
        for mirror in self.by_number.values():
            mirror.log.is_broken = True
        self.forks.doubt()

    def registered(self) -> None:
        """The cluster knows of this life of the node, and how it came back.

        Copies that are not to be relied on have begun anew, in this turn or before; that must be on
        the disk before the next start may take them for sound.
        """
        if not (self.is_cut or self.is_doubtful):
            return
        self.is_cut = self.is_doubtful = False
        journal, tell = self._journal, self.on_registered
        if tell is None:
            return
        if journal is not None and journal.appended > journal.persisted:
            journal.when_persisted(journal.appended, tell)
        else:
            tell()

    # -- copies ------------------------------------------------------------------------------------

    def successor_of(self, queue: Any) -> AmqpQueue:
        """An empty queue with the same declaration."""
        copy = AmqpQueue(
            queue.name,
            queue.vhost,
            self.engine.effects,
            queue.declaration,
            queue.owner,
            queue.effective,
            queue.home,
        )
        copy.number = queue.number
        copy.policy, copy.operator_policy = queue.policy, queue.operator_policy
        copy.sources = set(queue.sources)
        copy.had_consumers = queue.had_consumers
        return copy

    def _make_copy(self, queue: Any) -> AmqpQueue:
        assert self._journal is not None
        copy = self.successor_of(queue)
        copy.queue_id = copy.number
        copy.durable = True
        self._journal.queues[copy.number] = copy
        copy.attach(self._journal)
        return copy

    def replace(self, queue: AmqpQueue) -> None:
        """Another object holds the copy of a queue."""
        assert self._journal is not None
        self._journal.queues[queue.number] = queue

    def _mirror_of(self, queue: AmqpQueue) -> Mirror:
        assert self._journal is not None
        log = MirrorLog(queue, self._journal, self.engine.turn, self._own_gateway)
        queue.join_ring(log)
        mirror = self.by_number[queue.number] = Mirror(self, queue, log)
        return mirror

    def _strike_off(self, number: int) -> None:
        """This node has no copy any more."""
        assert self._journal is not None
        mirror = self.by_number.pop(number)
        mirror.end_copies("interrupted")
        self._journal.queues.pop(number, None)
        mirror.replica = mirror.log.replica = mirror.log.host = None
        mirror.queue.detach()
        mirror.queue.leave_ring()

    # -- views -------------------------------------------------------------------------------------

    def view_changed(self, queue: Any, view: View, registered: bool) -> None:
        """The cluster has agreed on who holds a queue."""
        here = self.engine.settings.node_name
        number = queue.number
        mirror = self.by_number.get(number)
        is_part = here in view.in_sync or here in view.learners
        if mirror is None:
            if is_part and not registered and not queue.is_remote:
                self._keep_waiting(queue)
            elif registered and not is_part:
                self._give_up_waiting(number)
            if not is_part or not registered:
                return
            mirror = self._begin(queue, view.master == here)
            mirror.view_changed(view, registered)
            if mirror.log.acts:
                # Now that there is an epoch for it.
                mirror.queue.log_all()
                if queue.had_consumers and queue.declaration.auto_delete:
                    mirror.log.note_used()
            return
        if not is_part and here not in getattr(view, "wanted", ()):
            # A node that starts is told of all views there have been: its copy may be of a later
            # one, and nobody else may have what is in it.
            if registered:
                self._drop(number, view)
            return
        mirror.view_changed(view, registered)

    def let_go(self, queue: Any, master: str | None) -> None:
        """By its definition the queue is here, but it has moved on, and its copy is gone."""
        assert self._journal is not None
        self._journal.queues.pop(queue.number, None)
        queue.detach()
        moving.become_remote(self.engine, queue, master)

    def drop_left_over(self, queue: Any, view: View) -> None:
        """This node counts as alive again: a copy that the view has no place for goes."""
        here = self.engine.settings.node_name
        places = (*view.in_sync, *view.learners, *getattr(view, "wanted", ()))
        if here not in places and queue.number in self.by_number:
            self._drop(queue.number, view)

    def _begin(self, queue: Any, is_master: bool) -> Mirror:
        """A queue of this node gets a ring, or this node a copy of another's."""
        assert self._journal is not None
        kept = self._kept.pop(queue.number, None)
        if kept is not None:
            # It stands for nothing any more, and serves when its replica does.
            queue, is_master = kept, False
        elif queue.is_remote:
            queue = self._make_copy(queue)
        if not queue.queue_id:
            # Transient: its log ends with the cluster's memory of it, not with this node.
            queue.queue_id = queue.number
            queue.durable = True
            self._journal.queues[queue.number] = queue
        mirror = self._mirror_of(queue)
        mirror.log.begin()
        mirror.is_new = True
        mirror.take_part(serves_already=is_master)
        return mirror

    def _keep_waiting(self, queue: Any) -> None:
        """This node starts, and by an old view it has a replica; its log knows of none.

        It was dropped since, or the node died before its log had it. As a queue without mirrors it
        would be served at once, though others may be its replicas by now. What it has is kept until
        the cluster has said who they are.
        """
        self._kept[queue.number] = queue
        moving.become_remote(self.engine, queue, None)

    def _give_up_waiting(self, number: int) -> None:
        """Others have the queue."""
        kept = self._kept.pop(number, None)
        if kept is not None:
            assert self._journal is not None
            self._journal.queues.pop(number, None)
            kept.detach()

    def _drop(self, number: int, view: View) -> None:
        mirror = self.by_number[number]
        mirror.view_changed(view, registered=True)
        mirror.put_aside_if_given_up(view)
        mirror.log.drop()
        self._strike_off(number)

    def queue_removed(self, number: int) -> None:
        """The queue is deleted."""
        self._give_up_waiting(number)
        if number in self.by_number:
            log = self.by_number[number].log
            self._strike_off(number)
            log.refuse_unanswered()

    def note_used(self, queue: Any) -> None:
        """A queue has a consumer; this node is its master, if it has one."""
        mirror = self.by_number.get(queue.number)
        if mirror is not None and mirror.queue is queue:
            mirror.log.note_used()

    def govern(self, queue: Any) -> None:
        """Its policy may be another one."""
        mirror = self.by_number.get(queue.number)
        if mirror is not None:
            if mirror.queue is not queue:
                mirror.queue.effective = queue.effective
                mirror.queue.policy = queue.policy
                mirror.queue.operator_policy = queue.operator_policy
            mirror.govern(queue.effective)
            if mirror.replica is not None:
                mirror.carry_out()

    def propose(self, command: ViewCommand) -> None:
        """Have a view changed; whoever wants it will see that it was, or want it again."""
        self._propose(command).when_done(_nothing)

    # -- the ring ----------------------------------------------------------------------------------

    def ring_frame(self, peer: str, data: bytes) -> None:
        """A replica on another node has said something. ValueError: it cannot have."""
        mirror = self.by_number.get(frames.queue_of(data))
        if mirror is None:
            return
        try:
            mirror.frame(peer, data)
        except ProtocolError:
            self.engine.log.exception("a frame of %s about queue %s", peer, mirror.queue.name)
            raise

    def peer_up(self, peer: str) -> None:
        """There is a new link to or from a node."""
        for mirror in list(self.by_number.values()):
            mirror.peer_up(peer)

    def peer_down(self, peer: str) -> None:
        """The link is gone."""
        for mirror in list(self.by_number.values()):
            mirror.peer_down(peer)

    # -- what operators want -----------------------------------------------------------------------

    def sync(self, queue: Any) -> None:
        """Copy what the mirrors of a queue lack; this node is the master."""
        if queue.number in self.by_number:
            self.by_number[queue.number].sync()

    def cancel_sync(self, queue: Any) -> bool:
        """Stop copying; False when nothing is copied."""
        mirror = self.by_number.get(queue.number)
        return mirror is not None and mirror.cancel_sync()

    def hand_over(self, queue: Any, to: str) -> None:
        """Make another replica the master; this node is."""
        self.by_number[queue.number].hand_over(to)

    def idle_copies(self) -> list[AmqpQueue]:
        """Those that stand in no virtual host, since another node is the master."""
        copies = (mirror.queue for mirror in self.by_number.values() if not mirror.log.acts)
        return [queue for queue in copies if queue.ready or queue.retained]

    def mastered(self) -> list[Mirror]:
        """The replicas of this node that are masters."""
        return [mirror for mirror in self.by_number.values() if mirror.log.acts]

    def hand_over_all(self) -> int:
        """This node is about to stop: others become masters where they can; how many must."""
        here, count = self.engine.settings.node_name, 0
        cluster = self.engine.cluster
        in_service = frozenset(() if cluster is None else cluster.nodes_in_service())
        for mirror in self.mastered():
            view = mirror.view
            heirs = [] if view is None else [name for name in view.in_sync if name != here]
            if heirs:
                # The oldest, one that is drained only if there is no other.
                mirror.hand_over(min(heirs, key=lambda name: name not in in_service))
                count += 1
        return count

    @property
    def is_handing_over(self) -> bool:
        """Whether some master of this node is on its way to another."""
        return any(mirror.is_handing_over for mirror in self.mastered())

    def describe(self, queue: Any) -> dict[str, Any]:
        """For operators; the figures of this node, which tell most when it is the master."""
        mirror = self.by_number.get(queue.number)
        if mirror is None or mirror.replica is None:
            return {}
        return describe(mirror)

    # -- telling -----------------------------------------------------------------------------------

    def note(self, event: str, queue: AmqpQueue, **details: Any) -> None:
        """An event about a queue, in the log too."""
        where = {"vhost": queue.vhost.name, "name": queue.name}
        self.engine.emit(event, **where, **details)
        said = ", ".join(f"{key} {value}" for key, value in details.items())
        self.engine.log.info("%s: '%s' in vhost '%s' %s", event, queue.name, queue.vhost.name, said)

    def keep_salvage(
        self,
        queue: AmqpQueue,
        after_index: int,
        rows: list[tuple[int, Message]],
        was_promised: bool = False,
        reason: str = "the cluster has gone on without them",
    ) -> None:
        """Put messages aside that the cluster has gone on without. Raises OSError.

        `was_promised`: the policy lets them be confirmed before others had them; they come back.
        """
        if not rows or self.salvage is None:
            return
        note = {
            "vhost": queue.vhost.name,
            "queue": queue.name,
            "messages": len(rows),
            "reason": reason,
            "returns": was_promised,
        }
        name = f"queue-{queue.number}-{after_index}"
        piece = self.salvage.keep_messages(name, lines_of(rows), note)
        self.note("queue.salvaged", queue, messages=len(rows), file=piece, cause=reason)
        self.engine.log.warning(
            "queue '%s' in vhost '%s': %d messages of this node are put aside, since %s; they are "
            "kept in %s%s",
            queue.name,
            queue.vhost.name,
            len(rows),
            reason,
            piece,
            ", and are published again" if was_promised else f": warrenctl salvage show {piece}",
        )
        if was_promised and self.on_returning is not None:
            self.on_returning(piece)


def describe(mirror: Mirror) -> dict[str, Any]:
    """What a replica knows of its ring."""
    replica = mirror.replica
    assert replica is not None
    now_ms, positions, lacks = mirror.now_ms, replica.positions(), mirror.lacking()
    return {
        "epoch": replica.epoch,
        "commit": replica.commit_index,
        "last": replica.last_index,
        "min_in_sync": mirror.settings.min_in_sync,
        "promised": replica.promised,
        "oldest_ms": replica.oldest_ms,
        "positions": positions,
        "lags": {
            name: mirror.log.made.lag_behind(position, replica.last_index, now_ms)
            for name, position in positions.items()
        },
        "since": {name: since_ms for name, (_, since_ms) in mirror.roles.items()},
        "held": mirror.queue.unacked,
        "lacks": lacks,
        "syncs": {
            name: {
                "done": state.done,
                "total": state.done + lacks.get(name, 0),
                "bytes_done": state.bytes_done,
                "since_ms": state.since_ms,
            }
            for name, state in mirror.syncs.items()
        },
    }


def _nothing() -> None:
    """The view tells what came of it."""
