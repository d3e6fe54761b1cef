"""The node's part in the agreement: a `Member` joined to the loop, the disk and the links.

Inputs only note that there is something to do; everything that came in one round of the loop is
carried out together at its end, inside a turn of the node, so it shares frames and one write.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from warren.base.system import SystemClock
from warren.cluster import control_frames
from warren.cluster import member_effects as effects
from warren.cluster.founding import cluster_id_of, founded_by, founded_with
from warren.cluster.member import Member
from warren.cluster.member_settings import MemberSettings
from warren.cluster.raft.effects import Persist, Role
from warren.cluster.raft.types import Stored
from warren.cluster.raft_storage import RaftStorageDamagedError, RaftStorageError
from warren.cluster.survivors import NobodyLeftError, without
from warren.model.errand import Errand
from warren.node.agreement_files import AgreementFiles
from warren.node.errors import RefusedError, StartError, damaged_text
from warren.node.raft_disk import RaftDisk
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.cluster.metadata import Node, ViewCommand
    from warren.node.failure import Failure

#: How long the loop is held by a part of something long, in seconds.
SLICE_S = 0.01
#: So many changes are put in place in one go.
ENTRIES_OF_A_STEP = 128
#: How long a stopping leader waits for another one, in seconds.
HAND_OVER_S = 0.6
#: Why a node is down, as its leader has found.
STOPPED, LOST = "it was stopped", "it was killed, is cut off, or stands still"

Turn = Callable[[Callable[[], None]], None]


class ProposalError(Exception):
    """A change was not made; after `Why.UNKNOWN` and `Why.NO_MAJORITY` it may have been."""

    def __init__(self, why: effects.Why) -> None:
        super().__init__(why.value)
        self.why = why


class Links(Protocol):
    """The ways to the other nodes, as far as the agreement knows them."""

    def send(self, peer: str, kind: int, payload: bytes) -> bool:
        """Send a control frame; False when there is no link, and then it is lost."""
        ...


class Definitions(Protocol):
    """Who has the definitions. Called inside turns, in the order of the log."""

    def apply(self, entries: Sequence[effects.ApplyDefinition]) -> None:
        """Put changes in place, one after the other."""
        ...

    def restore(self, index: int, image: bytes) -> Iterator[None] | None:
        """Be equal to an image; what is returned does it in steps, between which others go on."""
        ...

    def image(self) -> bytes:
        """All definitions, as they are after the last change that was applied."""
        ...

    def nodes_changed(self, change: effects.NodesChanged) -> None:
        """A node came, went or returned, by the entry at `change.index`."""
        ...

    def views_changed(self, change: effects.ViewsChanged) -> None:
        """Who holds some queues is another by the entry at `change.index`."""
        ...

    def reached(self, index: int) -> None:
        """All entries up to this one are carried out, those that change no definition as well."""
        ...

    def leads_changed(self, leads: bool) -> None:
        """Whether this node leads the agreement, and has to look after what nobody asked for."""
        ...

    def ready_changed(self, ready: bool) -> None:
        """Whether clients may be served."""
        ...

    def cluster_known(self, cluster_id: str) -> None:
        """The id of the cluster, also for one who has joined it."""
        ...

    def happened(self, event: str, **details: object) -> None:
        """Something that operators look for."""
        ...


@dataclass(frozen=True, slots=True)
class AgreementConfig:
    """How a node finds its cluster: by a static list that it is on, or by asking one of others."""

    node: str
    cluster_name: str = "warren"
    #: All nodes that found the cluster; empty for a node that joins one.
    founders: tuple[str, ...] = ()
    #: Those of them that decide, where not all do.
    preferred: tuple[str, ...] = ()
    #: Whom a joining node asks.
    seeds: tuple[str, ...] = ()
    #: The image of what a founder of one has already; empty: nothing.
    definitions: bytes = b""
    data_dir: Path | None = None
    #: The node has no messages of earlier lives.
    fresh: bool = False
    #: ... or it may lack the newest of them.
    behind: bool = False
    #: Nodes that an operator has given up, when there is no majority without them.
    lost: tuple[str, ...] = ()
    settings: MemberSettings = field(default_factory=MemberSettings)


@dataclass(frozen=True, slots=True)
class AgreementStatus:
    """For operators."""

    node: str
    incarnation: int
    cluster_id: str
    role: str
    term: int
    leader: str | None
    commit_index: int
    applied_index: int
    is_ready: bool
    has_quorum: bool
    nodes: dict[str, Node]
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    #: Changes of this node that are under way.
    proposals: int


class Agreement:
    """`__init__` reads the disk, `start` inside the loop, `stop` gives everything back."""

    def __init__(
        self, config: AgreementConfig, definitions: Definitions, definitions_applied: int = 0
    ) -> None:
        """Raises StartError when what is on the disk cannot be used."""
        self.config = config
        self._definitions = definitions
        self._log = logger("cluster")
        self._clock = SystemClock()
        self._files = AgreementFiles(config.data_dir)
        incarnation = self._files.begin_life()
        self._storage = self._files.raft_storage()
        cluster_id = self._files.identity.cluster_id
        if config.founders and not cluster_id:
            cluster_id = cluster_id_of(config.cluster_name, config.founders)
        self.member = Member(
            config.node,
            self._load(),
            config.settings,
            random.Random().randint,
            incarnation,
            self._clock.now_ms(),
            cluster_id=cluster_id,
            seeds=config.seeds,
            joins=bool(config.seeds),
            preferred=config.preferred,
            definitions_applied=definitions_applied,
            fresh=config.fresh,
            behind=config.behind,
        )
        self._disk = RaftDisk(self._storage, self._saved, self._fail)
        self._errands: dict[int, Errand] = {}
        #: Since when changes are under way, and which; the oldest first.
        self._asked: deque[tuple[int, int]] = deque()
        #: What takes long is done in steps, an image that is taken over or very many changes; and
        #: what must not be done before that.
        self._steps: Iterator[None] | None = None
        self._is_restoring = False
        self._put_off: list[effects.MemberEffect] = []
        self._links: Links | None = None
        self._in_turn: Turn | None = None
        self._failure: Failure | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_awake = False
        self._is_over = False
        self._is_closed = False
        #: It takes no part any more, and links go on.
        self.is_retired = False
        self._ready = asyncio.Event()
        self._carriers: dict[type, Callable[[Any], None]] = {
            effects.SendFrame: self._send,
            Persist: self._disk.write,
            effects.RestoreDefinitions: self._restore,
            effects.NodesChanged: self._nodes_changed,
            effects.ViewsChanged: definitions.views_changed,
            effects.ProposalDone: self._done,
            effects.ProposalFailed: self._failed,
            effects.LeaderChanged: self._leader_changed,
            effects.ReadyChanged: self._ready_changed,
            effects.ClusterKnown: self._cluster_known,
            effects.SnapshotNeeded: self._snapshot,
            effects.Refused: lambda it: self._fail(RefusedError(it.reason)),
        }

    def _load(self) -> Stored:
        config = self.config
        try:
            stored = self._storage.load()
            if stored is None:
                if config.founders and config.node not in config.founders:
                    raise StartError(f"{config.node} is not among the nodes of its own cluster")
                stored = _first(config)
                self._storage.create(stored)
            elif config.lost:
                stored = self._without_lost(stored)
        except RaftStorageDamagedError as error:
            raise StartError(damaged_text(config.node, error)) from error
        except RaftStorageError as error:
            raise StartError(f"the log of the agreement: {error}") from error
        return stored

    def _without_lost(self, stored: Stored) -> Stored:
        """An operator has decided that nodes are lost for good."""
        try:
            left = without(stored, self.config.lost)
        except NobodyLeftError as error:
            raise StartError(f"the log of the agreement: {error}") from error
        if left is not stored:
            self._log.warning(
                "taken out of the agreement, by an operator: %s", ", ".join(self.config.lost)
            )
            base = (left.base_index, left.base_term)
            first = left.base_index + 1
            self._storage.save(
                [Persist(0, left.hard_state, first, left.entries, left.snapshot, *base)]
            )
        return left

    # -- life

    def start(self, links: Links, in_turn: Turn, failure: Failure) -> None:
        """Join the running loop. Links may tell of peers from now on."""
        self._loop = asyncio.get_running_loop()
        self._links, self._in_turn, self._failure = links, in_turn, failure
        self._wake()

    async def stop(self) -> None:
        """Hand leadership over, if there is somebody, and close the files."""
        if self._in_turn is not None and not self._is_over:
            # What is on the disk is never half of an image.
            self._in_turn(self._finish_steps)
        if self._loop is not None and not self._is_over and self.member.hand_over():
            self._wake()
            deadline_s = self._loop.time() + HAND_OVER_S
            while self.member.is_leader and self._loop.time() < deadline_s:
                await asyncio.sleep(0.005)
        self.abandon()
        if not self._is_closed:
            self._is_closed = True
            await self._disk.close()

    async def retire(self) -> None:
        """As `stop`; and the others are told that this node counts as down."""
        has_failed = self._is_over
        await self.stop()
        if self._in_turn is not None and not has_failed:
            self.is_retired = True
            self._in_turn(self._tell_all_retired)

    def _tell_all_retired(self) -> None:
        for name in self.member.raft.membership.nodes:
            self.tell_retired(name)

    def tell_retired(self, peer: str) -> None:
        """Once more, to a node that may not know it."""
        if self.is_retired and self._links is not None and peer != self.config.node:
            payload = control_frames.encode(control_frames.Stopped(self.incarnation))
            self._links.send(peer, control_frames.STOPPED, payload)

    def abandon(self) -> None:
        """Take part no more, at once and without a word."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    async def await_ready(self) -> None:
        """Until the node may serve clients."""
        await self._ready.wait()

    @property
    def incarnation(self) -> int:
        return self.member.incarnation

    @property
    def cluster_id(self) -> str:
        """For the links' greeting; empty for a node that joins and does not know it yet."""
        return self.member.cluster_id

    @property
    def has_quorum(self) -> bool:
        return self.member.has_quorum(self._clock.now_ms())

    def status(self) -> AgreementStatus:
        """What an operator asks for."""
        member, raft = self.member, self.member.raft
        return AgreementStatus(
            node=member.node,
            incarnation=member.incarnation,
            cluster_id=member.cluster_id,
            role=raft.role.value,
            term=raft.term,
            leader=raft.leader,
            commit_index=raft.commit_index,
            applied_index=member.applied_index,
            is_ready=member.ready and not self._is_restoring,
            has_quorum=self.has_quorum,
            nodes=dict(member.nodes),
            voters=raft.membership.voters,
            learners=raft.membership.learners,
            proposals=len(self._errands),
        )

    # -- inputs

    def propose(self, change: bytes) -> Errand:
        """Have a change applied on every living node; the errand ends with its index."""
        ticket = self.member.propose(change)
        self._asked.append((self._clock.now_ms(), ticket))
        return self._errand(ticket)

    def change_view(self, command: ViewCommand) -> Errand:
        """Have a view made or changed; the errand ends when all that live have applied it."""
        return self._errand(self.member.change_view(command))

    def everywhere(self) -> Errand:
        """Ends when all that live have applied what this node has applied now."""
        return self._errand(self.member.everywhere())

    def forget(self, node: str) -> Errand:
        """Let a node that is down go for ever."""
        return self._errand(self.member.forget(node))

    def drain(self, node: str, drained: bool) -> Errand:
        """Take a node out of service, or put it into it again."""
        return self._errand(self.member.drain(node, drained))

    def _errand(self, ticket: int) -> Errand:
        errand = self._errands[ticket] = Errand()
        self._wake()
        return errand

    def on_control(self, peer: str, kind: int, payload: bytes) -> None:
        """A control frame has come. ValueError: the peer is broken, close the link."""
        if not self._is_over:
            self.member.receive(peer, kind, payload, self._clock.now_ms())
            self._wake()

    def on_up(self, peer: str, incarnation: int) -> None:
        """There is a link."""
        if not self._is_over:
            self._definitions.happened("link.up", node=peer)
            self.member.peer_up(peer, incarnation)
            self._wake()

    def on_down(self, peer: str, why: str = "") -> None:
        """The link is gone."""
        if not self._is_over:
            self._definitions.happened("link.down", node=peer, cause=why or None)
            self.member.peer_down(peer)
            self._wake()

    def on_refused(self, peer: str) -> None:
        """Nobody listens where the peer should."""
        if not self._is_over:
            self.member.peer_refused(peer)
            self._wake()

    def on_heard(self, peer: str) -> None:
        """The peer has said something, be it a ping."""
        if not self._is_over:
            self.member.heard(peer, self._clock.now_ms())

    # -- carrying out

    def _wake(self) -> None:
        """Carry out at the end of this round of the loop, together with all that still comes."""
        if not self._is_awake and not self._is_over and self._loop is not None:
            self._is_awake = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_awake = False
        if self._is_over or self._in_turn is None:
            return
        try:
            self._in_turn(self._carry_out)
        except Exception as error:
            self._fail(error)
            raise
        self._disk.begin()
        self._schedule()

    def _give_up_overdue(self) -> None:
        """Without a majority nobody waits for ever; whoever asked is told why."""
        overdue: set[int] = set()
        until_ms = self._clock.now_ms() - self.config.settings.give_up_ms
        while self._asked and (
            self._asked[0][1] not in self._errands
            or (self._asked[0][0] <= until_ms and not self.has_quorum)
        ):
            overdue.add(self._asked.popleft()[1])
        overdue &= self._errands.keys()
        if overdue:
            self.member.give_up(overdue)
            for ticket in sorted(overdue):
                self._errands.pop(ticket).fail(ProposalError(effects.Why.NO_MAJORITY))

    def _carry_out(self) -> None:
        self._give_up_overdue()
        until_s = time.monotonic() + SLICE_S
        while not self._is_over:
            taken = self.member.take_effects()
            if taken:
                self._carry_out_all(taken)
            elif self._steps is None:
                self._definitions.reached(self.member.applied_index)
                return
            elif time.monotonic() >= until_s:
                self._wake()
                return
            else:
                self._go_on(until_s)

    def _carry_out_all(self, taken: Sequence[effects.MemberEffect]) -> None:
        carriers = self._carriers
        # Definitions that come one after the other are put in place together.
        for kind, same in groupby(taken, type):
            if kind is effects.ApplyDefinition and self._steps is None:
                self._apply(cast("list[effects.ApplyDefinition]", list(same)))
                continue
            for effect in same:
                if self._steps is None or _goes_on(effect):
                    carriers[kind](effect)
                else:
                    self._put_off.append(effect)

    def _apply(self, entries: list[effects.ApplyDefinition]) -> None:
        """Very many, which a node that was away has missed, would hold the loop up."""
        if len(entries) <= ENTRIES_OF_A_STEP:
            self._definitions.apply(entries)
        else:
            self._steps = self._apply_in_steps(entries)

    def _apply_in_steps(self, entries: list[effects.ApplyDefinition]) -> Iterator[None]:
        for first in range(0, len(entries), ENTRIES_OF_A_STEP):
            self._definitions.apply(entries[first : first + ENTRIES_OF_A_STEP])
            yield

    def _restore(self, effect: effects.RestoreDefinitions) -> None:
        self._steps = self._definitions.restore(effect.index, effect.image)
        self._is_restoring = self._steps is not None

    def _go_on(self, until_s: float) -> None:
        """Take the next steps; when there are no more, do what has waited for that."""
        assert self._steps is not None
        for _ in self._steps:
            if time.monotonic() >= until_s:
                return
        self._steps = None
        self._is_restoring = False
        waiting, self._put_off = self._put_off, []
        self._carry_out_all(waiting)

    def _finish_steps(self) -> None:
        while self._steps is not None:
            self._go_on(math.inf)

    def _schedule(self) -> None:
        due_ms = self.member.next_tick_ms
        if self._is_over or self._loop is None:
            return
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_s = max(1, due_ms - self._clock.now_ms()) / 1000
        self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.member.tick(self._clock.now_ms())
        self._wake()

    def _saved(self, token: int) -> None:
        if not self._is_over:
            self.member.persisted(token)
            self._wake()

    def _fail(self, error: BaseException) -> None:
        """The node cannot keep what it promises: it says nothing more."""
        self.abandon()
        if self._failure is not None:
            self._failure.set(error)

    # -- effects

    def _send(self, effect: effects.SendFrame) -> None:
        assert self._links is not None
        self._links.send(effect.to, effect.kind, effect.payload)

    def _done(self, effect: effects.ProposalDone) -> None:
        errand = self._errands.pop(effect.ticket, None)
        if errand is not None:
            errand.finish(effect.index)

    def _failed(self, effect: effects.ProposalFailed) -> None:
        errand = self._errands.pop(effect.ticket, None)
        if errand is not None:
            errand.fail(ProposalError(effect.why))

    def _nodes_changed(self, effect: effects.NodesChanged) -> None:
        if effect.node:
            what = effect.what.value
            if effect.what is effects.Change.DRAINED and not effect.table[effect.node].drained:
                what = "revived"
            self._log.info("node %s is %s", effect.node, what)
            told = {"node": effect.node}
            if effect.what is effects.Change.DOWN:
                told["cause"] = STOPPED if effect.table[effect.node].stopped else LOST
            self._definitions.happened(f"node.{what}", **told)
        self._definitions.nodes_changed(effect)

    def _cluster_known(self, effect: effects.ClusterKnown) -> None:
        self._files.keep_cluster_id(effect.cluster_id)
        self._definitions.cluster_known(effect.cluster_id)

    def _leader_changed(self, effect: effects.LeaderChanged) -> None:
        if effect.leader is not None:
            self._log.info("%s leads the agreement in term %d", effect.leader, effect.term)
            self._definitions.happened("cluster.leader", node=effect.leader, term=effect.term)
        self._definitions.leads_changed(effect.role is Role.LEADER)

    def _ready_changed(self, effect: effects.ReadyChanged) -> None:
        if effect.ready:
            self._ready.set()
        else:
            self._ready.clear()
        cause = None if effect.ready else "nobody who leads a majority is heard"
        name = "cluster.ready" if effect.ready else "cluster.no_majority"
        self._definitions.happened(name, cause=cause)
        self._definitions.ready_changed(effect.ready)

    def _snapshot(self, effect: effects.SnapshotNeeded) -> None:
        self.member.compact(effect.index, self._definitions.image())


def _goes_on(effect: effects.MemberEffect) -> bool:
    """What is done between steps: a part in Raft, but nobody is told that anything is applied."""
    if isinstance(effect, effects.SendFrame):
        return effect.kind != control_frames.APPLIED
    return isinstance(effect, Persist)


def _first(config: AgreementConfig) -> Stored:
    """What is on the disk of a node that has none."""
    if config.definitions and config.founders == (config.node,):
        return founded_with(config.node, config.definitions)
    if config.definitions and config.founders:
        raise StartError(
            f"the data directory of {config.node} is that of a node by itself, which cannot found "
            "a cluster with others: the others have not what is in it.\nStart it alone with "
            "cluster.listen and let the others join it (warrenctl join_cluster), or export its "
            "definitions and start with an empty directory."
        )
    return founded_by(config.founders, config.preferred) if config.founders else Stored()
