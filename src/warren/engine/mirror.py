"""One replica of a mirrored queue on this node: the ring's core, its log, and what follows from it.

The core decides (`replication.Replica`); this carries out. Nothing is done in the middle of an
input: effects are taken and carried out in order, until there are none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from warren.cluster import metadata_commands as commands
from warren.engine import moving
from warren.engine.copy_size import count_copied, place_of
from warren.engine.cursors import resume_cursors
from warren.engine.healing import Healing
from warren.engine.mirror_links import links_of
from warren.engine.orphans import await_consumers
from warren.engine.promotions import Succession, why_deposed
from warren.engine.ring_changes import changes_of
from warren.replication import effects
from warren.replication.core import NEVER_MS
from warren.replication.lineage import Lineage
from warren.replication.replica import Replica
from warren.replication.settings import ReplicaSettings

if TYPE_CHECKING:
    from warren.base.timers import Timer
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.mirror_log import MirrorLog
    from warren.engine.mirrors import Mirrors
    from warren.model.message import Message
    from warren.model.policy import EffectiveArguments
    from warren.replication.types import View


#: Whoever is to be the master and is not by then need not be.
HAND_OVER_MS = 4_000
#: A copy looks again after so long whether what could not be read has come.
READ_AGAIN_MS = 20


class SyncState:
    """How far a learner's copy has come, for operators."""

    __slots__ = ("bytes_done", "done", "pieces", "session", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        #: Messages that are on the learner's disk, and bytes that were sent.
        self.done = self.bytes_done = 0
        #: What is on its way in this session: (cursor behind it, messages).
        self.session = 0
        self.pieces: deque[tuple[int, int]] = deque()

    def sent(self, session: int, cursor: int, messages: int, size: int) -> None:
        if session != self.session:
            self.session = session
            self.pieces.clear()
        self.pieces.append((cursor, messages))
        self.bytes_done += size

    def has(self, cursor: int) -> None:
        """All up to there is on the learner's disk."""
        while self.pieces and self.pieces[0][0] <= cursor:
            self.done += self.pieces.popleft()[1]

    @property
    def on_the_way(self) -> int:
        return sum(messages for _, messages in self.pieces)


class Mirror:
    """See the module's text."""

    def __init__(self, mirrors: Mirrors, queue: AmqpQueue, log: MirrorLog) -> None:
        self._mirrors = mirrors
        self._engine = mirrors.engine
        #: This node's copy; in its virtual host only while this node is the master.
        self.queue = queue
        self.log = log
        self.settings = ReplicaSettings()
        self.replica: Replica | None = None
        self.view: View | None = None
        self._succession = Succession(self._engine.settings.node_name)
        #: Node -> why it is to be out of sync.
        self._put_out: dict[str, str] = {}
        self.syncs: dict[str, SyncState] = {}
        #: What each node is to the queue, and since when; None: since before this node knows of.
        self.roles: dict[str, tuple[str, int | None]] = {}
        #: The queue has had a ring for no longer than this node has known of it.
        self.is_new = False
        #: Messages in one piece of a copy.
        self.batch_messages = 4096
        #: Who is to be the master as soon as no dead letter is on its way.
        self._heir: str | None = None
        self._is_busy = False
        #: The one deadline that the core waits for, and when it is.
        self._timer: Timer | None = None
        self._armed_ms = NEVER_MS
        self.healing = Healing(mirrors, self)
        log.host = self
        self._carriers: dict[type, Callable[[Any], None]] = {
            effects.Send: lambda it: mirrors.send(it.to, it.frame),
            effects.AdoptEpoch: self._adopt,
            effects.Commit: lambda it: log.apply_to(it.index),
            effects.Promise: lambda it: log.promise(it.index),
            effects.BecameMaster: self._became_master,
            effects.Deposed: self._deposed,
            effects.ProposeShrink: self._shrink,
            effects.ProposeExpand: lambda it: self._propose(commands.Expand, it),
            effects.ProposeHandover: lambda it: self._propose(commands.Handover, it),
            effects.ReadChunk: mirrors.copies.want(self),
            effects.SyncProgress: self._sync_progress,
            effects.Salvage: self._salvaged,
        }

    @property
    def now_ms(self) -> int:
        return self._engine.clock.now_ms()

    @property
    def key(self) -> str:
        """What the queue is called in the agreement."""
        return str(self.queue.number)

    # -- inputs ------------------------------------------------------------------------------------

    def take_part(self, serves_already: bool = False) -> None:
        """The node is up: what was found on the disk is where the replica begins."""
        now_ms = self._engine.clock.now_ms()
        self.govern(self.queue.effective)
        self.replica = self.log.replica = Replica(
            self._engine.settings.node_name, self.queue.number, self.log, self.settings, now_ms
        )
        if serves_already:
            self.replica.took_office()
            self.log.begin_acting()

    def govern(self, effective: EffectiveArguments) -> None:
        """Take over what the policy says of rings."""
        settings = self.settings
        settings.min_in_sync = effective.ha_min_in_sync
        settings.max_lag_ms = effective.ha_max_lag
        was_automatic = settings.sync_automatically
        settings.sync_automatically = self._syncs_by_itself(effective)
        settings.sync_strategy = effective.ha_sync_strategy
        is_early = effective.ha_replication == "async"
        if is_early is not settings.confirms_early and self.log.acts:
            # What was published before does not say in the log that it may be confirmed early.
            self.log.flush()
        settings.confirms_early = self.log.promises = is_early
        settings.lag_operations_max = effective.ha_max_lag_messages
        settings.lag_ms_max = effective.ha_max_lag_ms
        fed = settings.feeds_mirrors
        settings.feeds_mirrors = self._mirrors.hours.are_now(effective)
        if fed is not settings.feeds_mirrors and self.log.acts:
            begins = "begin" if settings.feeds_mirrors else "end"
            self._mirrors.note(f"queue.copying_hours_{begins}", self.queue)
        self.batch_messages = effective.ha_sync_batch_size
        if self.replica is not None:
            self.replica.settings_changed(settings.sync_automatically and not was_automatic)

    def _syncs_by_itself(self, effective: EffectiveArguments) -> bool:
        """Where no policy says otherwise, whom an operator wants to have it gets what there is."""
        if effective.ha_mode is None and links_of(self.queue):
            return True
        return effective.ha_sync_mode == "automatic"

    def view_changed(self, view: View, registered: bool) -> None:
        """The cluster has agreed on who holds the queue."""
        assert self.replica is not None
        self._succession.view_changed(view, self._engine.clock.now_ms())
        before, self.view = self.view, view
        # A node that has just started goes through old views: what changed then was told then.
        is_here = view.master == self._engine.settings.node_name
        if before is not None and registered and is_here:
            for event, node, cause in changes_of(before, view, self._put_out):
                self._mirrors.note(event, self.queue, node=node, cause=cause)
        self._put_out.clear()
        self._note_roles(view)
        if view.master != self._engine.settings.node_name:
            self.log.is_cold = False
        self.log.flush()
        if self.log.is_broken and self._engine.settings.node_name in view.learners:
            self._begin_anew()
        self.replica.view(view, registered)
        self.healing.view_changed()
        for learner in [name for name in self.syncs if name not in view.learners]:
            self._copy_ended(learner, "done" if learner in view.in_sync else "interrupted")
        self.carry_out()

    def _note_roles(self, view: View) -> None:
        """Who has become something else has been that since now."""
        now_ms, here = self._engine.clock.now_ms(), self._engine.settings.node_name
        is_first = not self.roles
        found: dict[str, tuple[str, int | None]] = {}
        for node in dict.fromkeys((*view.in_sync, *view.learners)):
            in_sync = "master" if node == view.master else "mirror"
            role = in_sync if node in view.in_sync else "learner"
            before = self.roles.get(node)
            if before is not None and before[0] == role:
                found[node] = before
            elif is_first and not (self.is_new and here in {node, view.master}):
                found[node] = (role, None)
            else:
                found[node] = (role, now_ms)
        self.roles = found

    def _begin_anew(self) -> None:
        """The disk was damaged, and others have everything: what is here is not needed."""
        if self.view is not None:
            self.put_aside_if_given_up(self.view)
        self.log.reset(0, Lineage(), b"")
        self.log.close_gap()
        self.log.is_broken = False
        self.take_part()

    def put_aside_if_given_up(self, view: View) -> None:
        """Before all of this copy goes: the cluster may have gone on without what is in it."""
        if 0 < self.log.lineage.last_epoch < view.unclean:
            self.log.salvage(0)
        else:
            self.log.salvage_promised(self.log.applied_index)

    def frame(self, sender: str, data: bytes) -> None:
        """Another replica has said something. ProtocolError: it cannot have."""
        if self.replica is not None:
            self.replica.receive(sender, data, self._engine.clock.now_ms())
            self.carry_out()

    def peer_up(self, peer: str) -> None:
        self._succession.peer_up(peer)
        if self.replica is not None:
            self.replica.peer_up(peer)
            self.carry_out()

    def peer_down(self, peer: str) -> None:
        self._succession.peer_down(peer, self._engine.clock.now_ms())
        if self.replica is not None:
            self.replica.peer_down(peer)
            self.carry_out()

    def _arm(self, due_ms: int) -> None:
        if self._timer is not None:
            # Each that was left would arm another when it rings, and they would grow in number.
            self._timer.cancel()
        self._armed_ms = due_ms
        self._timer = self._engine.timers.at(due_ms, self._tick)

    def _tick(self, now_ms: int) -> None:
        self._timer, self._armed_ms = None, NEVER_MS
        if self.replica is None:
            return
        due_ms = self.replica.next_tick_ms
        if due_ms > now_ms:
            # What it waited for has come meanwhile.
            if due_ms < NEVER_MS:
                self._arm(due_ms)
            return
        self.replica.tick(now_ms)
        self.carry_out()

    def chunk_read(self, learner: str, session: int, after: int, upto: int, size: int) -> int:
        """Read a piece of a copy and send it; how many bytes that were."""
        assert self.replica is not None
        # Greetings are counted anew by every life of a learner, so the epoch tells them apart.
        whose = (learner, self.replica.epoch, session)
        start = place_of(self.log, whose, after)
        cursor, data, is_last = self.log.read_chunk(whose, after, upto, size, self.batch_messages)
        if not data and not is_last:
            # The next message cannot be read, and another replica is asked for it.
            self._read_later(self.replica, learner, session, after, upto, size)
            return 0
        self.replica.chunk_read(learner, session, cursor, data, is_last)
        state = self._copy_of(learner)
        if state is not None:
            messages = count_copied(self.log, start, None if is_last else whose, upto)
            state.sent(session, cursor, messages, len(data))
        self.carry_out()
        return len(data)

    def _read_later(self, replica: Replica, *piece: Any) -> None:
        def ring(_now_ms: int) -> None:
            if replica is self.replica:
                self.chunk_read(*piece)

        self._engine.timers.at(self.now_ms + READ_AGAIN_MS, ring)

    # -- what operators want -----------------------------------------------------------------------

    def sync(self) -> None:
        """Copy what learners lack, now."""
        if self.replica is not None:
            self.replica.start_sync()
            self.carry_out()

    def cancel_sync(self) -> bool:
        """Stop that; False when there is nothing to be stopped."""
        if self.replica is None or not self.replica.is_copying:
            return False
        self.replica.cancel_sync()
        self.end_copies("cancelled")
        self.carry_out()
        return True

    def hand_over(self, to: str) -> None:
        """Make another replica, which is in sync, the master."""
        if self.log.acts and not self.is_handing_over:
            self._heir = to
            queue, engine = self.queue, self._engine
            now = partial(self._hand_over_now, queue)
            engine.burials.rest(queue, partial(engine.passing.rest, queue, now))

    @property
    def is_handing_over(self) -> bool:
        """Whether another is to be the master."""
        return self._heir is not None or (self.replica is not None and self.replica.is_handing_over)

    @property
    def awaits_heir(self) -> bool:
        """Whether another is the master, and this replica has not heard yet that it serves."""
        here, view = self._engine.settings.node_name, self.view
        if view is None or self.replica is None or here not in view.in_sync:
            return False
        if view.master is None or view.master == here:
            return False
        # All have the operation that its epoch begins with.
        return self.log.lineage.epoch_at(self.replica.commit_index) < view.epoch

    def _hand_over_now(self, queue: AmqpQueue) -> None:
        """Nothing is on its way to other queues that the next master would send again."""
        to, self._heir = self._heir, None
        replica = self.replica
        if replica is None or to is None or queue is not self.queue or not self.log.acts:
            return
        queue.tell_leaving()
        self.log.pause()
        replica.hand_over(to)
        self.carry_out()

        def give_up(_now_ms: int) -> None:
            if replica is self.replica and self.log.acts and replica.is_handing_over:
                replica.cancel_hand_over()
                self.carry_out()

        self._engine.timers.at(self._engine.clock.now_ms() + HAND_OVER_MS, give_up)

    # -- effects -----------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Do all that the core wants done."""
        replica = self.replica
        if replica is None or self._is_busy:
            return
        self._is_busy = True
        try:
            while taken := replica.take_effects():
                for effect in taken:
                    self._carriers[type(effect)](effect)
        finally:
            self._is_busy = False
        due_ms = replica.next_tick_ms
        if due_ms < self._armed_ms:
            self._arm(due_ms)

    def _adopt(self, effect: effects.AdoptEpoch) -> None:
        """The record stands before all that is done in the epoch; see docs/internals/mirrors.md."""
        assert self.replica is not None
        self.log.adopt_epoch(effect.epoch)
        self.replica.epoch_persisted(effect.epoch)

    def _became_master(self, effect: effects.BecameMaster) -> None:
        was_master = self.log.acts
        assert self.replica is not None
        if self._mirrors.forks.is_forking(self.queue.number):
            # What has stood for the queue while the ring could not go on makes room.
            has_stood_aside = not self.replica.holds_office
            self._mirrors.forks.close(self.queue.number)
            if has_stood_aside:
                # It begins as after a promotion, when all know that what was out comes again.
                return
        queue, now_ms = self.queue, self._engine.clock.now_ms()
        self.log.begin_acting()
        flagged = 0
        if not was_master:
            # Before anybody is given one of them.
            flagged = queue.count_flagged()
            # Before anything that waited for the new master comes: its times and limits count.
            queue.govern(queue.effective, now_ms)
        if self.log.paused and not self.replica.is_handing_over:
            # Otherwise it has begun to serve in the middle of a handover, which goes on: what it
            # delivered now, the next master would not know of.
            self.log.go_on()
        if queue.resting and not self.is_handing_over:
            self._engine.burials.wake(queue)
        if queue.vhost.queues.get(queue.name) is not queue:
            moving.become_local(self._engine, queue, keep_deliveries=False)
        if not was_master:
            queue.begin_acting(now_ms)
            resume_cursors(self._engine, queue)
            told = self._succession.served(now_ms, flagged, self.settings.confirms_early)
            self._mirrors.note("queue.promoted", queue, epoch=effect.epoch, **told)
            if self.log.used_at and queue.declaration.auto_delete:
                await_consumers(self._engine, queue)
        queue.run(now_ms)
        if self.log.is_cold:
            self.log.is_cold = False
            self._drop_if_transient(queue)

    def _drop_if_transient(self, queue: AmqpQueue) -> None:
        """All replicas were down at once, and the queue was not to outlive that."""
        if not queue.declaration.durable:
            self._engine.later(lambda _now_ms: self._engine.drop_queue(queue))

    def _deposed(self, effect: effects.Deposed) -> None:
        """Whoever holds deliveries of the old object holds nothing; another one is the copy."""
        queue = self.queue
        if queue.vhost.queues.get(queue.name) is queue:
            told = why_deposed(self.view, self._engine.settings.node_name)
            self._mirrors.note("queue.deposed", queue, epoch=effect.epoch, **told)
        self.end_copies("interrupted")
        self.log.stand_down()
        if queue.vhost.queues.get(queue.name) is not queue:
            # It never served: what stands for the queue here keeps what it has not been answered.
            return
        heir = self._mirrors.successor_of(queue)
        queue.hand_on(heir)
        self.log.queue = self.queue = heir
        self._mirrors.replace(heir)
        master = None if self.view is None else self.view.master
        moving.become_remote(self._engine, queue, master)

    def stand_aside(self) -> None:
        """The ring cannot go on, and a fork is to serve: what is not committed waits for the ring.

        For the others nothing has changed: this is the master of its epoch, and serves nobody.
        """
        assert self.replica is not None
        queue = self.queue
        self.log.flush()
        self.end_copies("interrupted")
        self.log.stand_down()
        self.replica.leave_office()
        heir = self._mirrors.successor_of(queue)
        queue.hand_on(heir)
        self.log.queue = self.queue = heir
        self._mirrors.replace(heir)
        here = self._engine.settings.node_name
        moving.become_remote(self._engine, queue, here, torn=True)

    def serve_again(self) -> None:
        """The fork is over: if this is still the master, it serves when the ring goes on."""
        if self.replica is not None and self.replica.is_master and not self.log.acts:
            self.replica.serve_again()
            self.carry_out()

    def _shrink(self, effect: effects.ProposeShrink) -> None:
        self._put_out[effect.node] = effect.cause
        self._propose(commands.Shrink, effect)

    def _propose(self, command: Callable[..., Any], effect: Any) -> None:
        self._mirrors.propose(command(self.key, effect.epoch, effect.node))

    def _sync_progress(self, effect: effects.SyncProgress) -> None:
        state = self._copy_of(effect.learner)
        if state is not None:
            state.has(effect.done)

    def lacking(self) -> dict[str, int]:
        """How many messages each learner lacks that a copy would have to bring."""
        if self.replica is None:
            return {}
        found = {}
        for learner, (session, cursor, upto) in self.replica.gaps().items():
            whose = (learner, self.replica.epoch, session)
            start = place_of(self.log, whose, cursor)
            found[learner] = count_copied(self.log, start, None, upto) if cursor < upto else 0
            if learner in self.syncs:
                found[learner] += self.syncs[learner].on_the_way
        return found

    def _copy_of(self, learner: str) -> SyncState | None:
        """None when nobody wants one: what was under way when it was cancelled begins none anew."""
        state = self.syncs.get(learner)
        if state is None and self.replica is not None and self.replica.is_copying:
            state = self.syncs[learner] = SyncState(self._engine.clock.now_ms())
            cause = self.replica.why_copying
            self._mirrors.note("queue.sync_started", self.queue, node=learner, cause=cause)
        return state

    def _copy_ended(self, learner: str, how: str) -> None:
        state = self.syncs.pop(learner)
        took_ms = self._engine.clock.now_ms() - state.since_ms
        told = {"node": learner, "how": how, "bytes": state.bytes_done, "took_ms": took_ms}
        self._mirrors.note("queue.sync_ended", self.queue, **told)

    def end_copies(self, how: str) -> None:
        """No learner is given anything any more."""
        for learner in list(self.syncs):
            self._copy_ended(learner, how)

    def _salvaged(self, effect: effects.Salvage) -> None:
        """It is in a file already: the core has had that done before it went on."""

    def salvage(self, after_index: int, rows: list[tuple[int, Message]]) -> None:
        """Keep what the cluster has gone on without. Raises OSError: it must not be cut then."""
        self._mirrors.keep_salvage(self.queue, after_index, rows)
        self._tell_returned(after_index, len(rows))

    def salvage_promised(self, after_index: int, rows: list[tuple[int, Message]]) -> None:
        """Keep what a master has confirmed before others had it, to be published again."""
        self._mirrors.keep_salvage(self.queue, after_index, rows, was_promised=True)
        if self.settings.confirms_early:
            self._tell_returned(after_index, len(rows))

    def _tell_returned(self, after_index: int, messages: int) -> None:
        """What the promotion of another could not say: how much it was without.

        `upto`: no point is known up to which both had the same, so all was put aside.
        """
        told = {"node": self._engine.settings.node_name, "messages": messages}
        epoch = 0 if self.view is None else self.view.epoch
        self._mirrors.note("queue.returned", self.queue, epoch=epoch, upto=not after_index, **told)
