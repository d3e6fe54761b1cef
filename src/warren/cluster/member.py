"""A member of a cluster: Raft, the sessions and the nodes' table, with one node's part in them.

Sans-IO like the Raft inside it: inputs are calls, outputs are the effects taken after them, to be
carried out in order. `Persist` may be carried out later, as Raft's owner may; everything that is
done between two takes shares frames and writes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from warren.cluster import control_frames as frames
from warren.cluster import member_effects as effects
from warren.cluster.member_applied import AppliedEverywhere
from warren.cluster.member_crowd import Crowd
from warren.cluster.member_liveness import Liveness
from warren.cluster.member_machine import MemberMachine, decode_image, encode_image
from warren.cluster.member_proposals import Proposal, Proposals
from warren.cluster.member_readiness import Readiness
from warren.cluster.member_witness import NOBODY, Witnessing
from warren.cluster.metadata import Node, View, ViewCommand
from warren.cluster.metadata_commands import (
    Answer,
    Command,
    Define,
    Drain,
    Forget,
    Found,
    Register,
    Result,
    decode_result,
    encode_command,
    encode_result,
)
from warren.cluster.raft import codec
from warren.cluster.raft import effects as raft_effects
from warren.cluster.raft.effects import Position, Role
from warren.cluster.raft.messages import InstallSnapshot
from warren.cluster.raft.raft import Raft
from warren.cluster.raft.types import (
    EntryKind,
    Membership,
    ProtocolError,
    Stored,
    membership_of,
)
from warren.cluster.sessions import Sessions, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.cluster.member_settings import MemberSettings

NODE_NAME_CHARACTERS_MAX = 200
#: A request that came to this comes to nothing else, however often it is tried.
_FINAL = {Verdict.APPLIED, Verdict.REPEATED, Verdict.FORGOTTEN}
_DONE = encode_result(Result(Answer.DONE))
_WHY = {
    Answer.CONFLICT: effects.Why.CONFLICT,
    Answer.NOT_FOUND: effects.Why.NOT_FOUND,
    Answer.REFUSED: effects.Why.REFUSED,
    Answer.MALFORMED: effects.Why.REFUSED,
}


class Member:
    """One node's part in the agreement."""

    def __init__(
        self,
        node: str,
        stored: Stored,
        settings: MemberSettings,
        pick: Callable[[int, int], int],
        incarnation: int,
        now_ms: int,
        *,
        cluster_id: str = "",
        seeds: tuple[str, ...] = (),
        preferred: tuple[str, ...] = (),
        definitions_applied: int = 0,
        fresh: bool = False,
        behind: bool = False,
        joins: bool = False,
        raft_class: type[Raft] = Raft,
        sessions_class: type[Sessions] = Sessions,
    ) -> None:
        """`incarnation` is higher than in any earlier life of the node.

        `seeds` are asked to let this node in, if it is no member. Where nodes are `preferred`,
        no others get a vote. The owner has the definitions up to the entry `definitions_applied`
        already; `fresh`: it has no messages of earlier lives, `behind`: or maybe not the newest.
        `joins`: it is to be let in, and did not serve since it was first to be.
        """
        if not 0 < len(node) <= NODE_NAME_CHARACTERS_MAX:
            raise ValueError(f"a node's name has 1 to {NODE_NAME_CHARACTERS_MAX} characters")
        self.node = node
        self.incarnation = incarnation
        self.settings = settings
        self.raft = raft_class(node, stored, settings.raft, pick, incarnation, now_ms)
        self._effects: list[effects.MemberEffect] = []
        self._machine = MemberMachine(self._effects, definitions_applied, node, incarnation)
        self._sessions = sessions_class(self._machine)
        self._proposals = Proposals(f"{incarnation}.{node}", settings)
        self._liveness = Liveness(node, incarnation, settings.silent_ms, now_ms)
        self._readiness = Readiness(settings)
        self._applied = AppliedEverywhere(node, incarnation)
        self._witnessing = Witnessing(node, incarnation)
        self.applied_index = 0
        self._definitions_applied = definitions_applied
        self._founding_id = cluster_id
        self._preferred = frozenset(preferred)
        self._seeds = deque(name for name in seeds if name != node)
        self._disks = fresh, behind
        self._joins = joins or not self.raft.log.last_index
        self._now_ms = now_ms
        self._leader: tuple[str | None, int] = (None, 0)
        self._last_ticket = self._register_ticket = 0
        self._has_registered = False
        self._is_refused = False
        #: What others and this node itself have given the leader to propose.
        self._crowd = Crowd()
        #: Where what the leader has said about a node stands in the log, until it is applied.
        self._undecided: dict[str, int] = {}
        #: Who has asked to be let in, and when it last did.
        self._joining: dict[str, int] = {}
        self._snapshot_wanted = False
        #: The index and image of the sessions that an image of the definitions is awaited for.
        self._snapshot: tuple[int, bytes] | None = None
        self._snapshot_came_ms = now_ms - settings.retry_ms
        self._told_applied = 0
        self._tell_applied_ms = now_ms
        self._ask_to_join_ms = now_ms
        self._tick_ms = now_ms
        self._was_ready = False
        self._told_cluster_id = ""

    # -- looking

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes' table, to look at."""
        return self._machine.metadata.nodes()

    @property
    def views(self) -> dict[str, View]:
        """The view of every mirrored queue, to look at."""
        return self._machine.metadata.views()

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty as long as a joining node does not know it."""
        return self._machine.metadata.cluster_id or self._founding_id

    @property
    def is_leader(self) -> bool:
        return self.raft.role is Role.LEADER

    @property
    def ready(self) -> bool:
        """Whether the node may serve clients."""
        return self._readiness.is_checked and self._machine.counts_as_alive and self._machine.bears

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do, at the latest."""
        return min(self.raft.next_tick_ms, self._tick_ms)

    def has_quorum(self, now_ms: int) -> bool:
        """Whether a leader was in touch lately."""
        return self._readiness.has_quorum(now_ms)

    # -- inputs

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._advance(now_ms)
        self.raft.tick(self._now_ms)
        self._note_touch()
        if self._now_ms < self._tick_ms:
            return
        self._tick_ms = self._now_ms + self.settings.tick_ms
        if not self._readiness.has_quorum(self._now_ms):
            self._readiness.doubt()
        if self._now_ms >= self._tell_applied_ms:
            self._tell_applied()
        if self.is_leader:
            self._judge_nodes()
            self._drive_members()
        elif not self._is_member():
            self._ask_to_join()

    def receive(self, sender: str, kind: int, payload: bytes, now_ms: int) -> None:
        """A control frame has come. ProtocolError if no correct node can have sent it."""
        self._advance(now_ms)
        self._liveness.heard(sender, self._now_ms)
        if kind == frames.RAFT:
            message = codec.decode(payload)
            if isinstance(message, InstallSnapshot):
                self._snapshot_came_ms = self._now_ms
            self.raft.receive(sender, message, self._now_ms)
            self._note_touch()
        elif kind == frames.PROPOSE:
            self._crowd.add(frames.decode(frames.Propose, payload).proposals)
        elif kind == frames.APPLIED:
            told = frames.decode(frames.Applied, payload)
            self._applied.told(sender, told.incarnation, told.index)
        elif kind == frames.JOIN:
            self._on_join(frames.decode(frames.Join, payload))
        elif kind == frames.JOIN_REFUSED:
            reason = frames.decode(frames.JoinRefused, payload).reason
            if not self._is_member():
                self._refuse(reason)
        elif kind == frames.STOPPED:
            self._liveness.stopped(sender, frames.decode(frames.Stopped, payload).incarnation)
            if self.is_leader:
                self._judge_nodes()
        else:
            raise ProtocolError(f"a control frame of kind {kind}")

    def persisted(self, token: int) -> None:
        """Everything up to this `Persist` is on the disk, synced."""
        self.raft.persisted(token)

    def propose(self, change: bytes) -> int:
        """Have a change of the definitions applied everywhere; the ticket of what comes of it."""
        return self._propose(Define(change), len(change))

    def give_up(self, tickets: set[int]) -> None:
        """Nobody waits any more for what comes of these."""
        self._proposals.give_up(tickets)

    def change_view(self, command: ViewCommand) -> int:
        """Have a view made or changed; the ticket of what comes of it."""
        return self._propose(command)

    def everywhere(self) -> int:
        """Wait until all that live have applied what this node has; the ticket of the end."""
        self._last_ticket += 1
        self._applied.wait(self.applied_index, self._last_ticket)
        return self._last_ticket

    def forget(self, node: str) -> int:
        """Let a node that is down go for ever: out of the table, then out of the members."""
        return self._propose(Forget(node))

    def drain(self, node: str, drained: bool) -> int:
        """Take a node out of service, or put it into it again."""
        return self._propose(Drain(node, drained))

    def peer_up(self, node: str, incarnation: int) -> None:
        """There is a link to a node of this incarnation."""
        self._liveness.up(node, incarnation, self._now_ms)
        self._send_applied(node)
        if node == self.raft.leader:
            self._proposals.all_again()

    def peer_down(self, node: str) -> None:
        """The link is gone."""
        self._liveness.down(node)

    def peer_refused(self, node: str) -> None:
        """Nobody listens where the node should: its process is gone."""
        self._liveness.refused(node)
        if self.is_leader:
            self._judge_nodes()
        elif not self._liveness.is_linked(node):
            self.raft.leader_gone(node, self._now_ms)

    def heard(self, node: str, now_ms: int) -> None:
        """Something has come from a node, be it a ping."""
        self._advance(now_ms)
        self._liveness.heard(node, self._now_ms)

    def hand_over(self) -> bool:
        """Before a stop: have another node lead; False when that is not needed or not possible."""
        if not self.is_leader:
            return False
        voters = [
            name
            for name in self.raft.membership.voters
            if name != self.node and self._liveness.is_linked(name)
        ]
        if not voters:
            return False
        best = max(voters, key=lambda name: self.raft.peers[name].match_index)
        return self.raft.transfer_leader(best) is None

    def want_snapshot(self) -> None:
        """Shorten the log now, not only when it is long."""
        self._snapshot_wanted = True

    def compact(self, index: int, definitions: bytes) -> None:
        """`definitions` is their image after the entry that `SnapshotNeeded` named."""
        if self._snapshot is not None and self._snapshot[0] == index:
            sessions = self._snapshot[1]
            self._snapshot = None
            self.raft.compact(index, encode_image(sessions, definitions))

    # -- effects

    def take_effects(self) -> list[effects.MemberEffect]:
        """What is to be done; call it after every input, or after several."""
        while True:
            self._flush()
            taken = self.raft.take_effects()
            if not taken:
                break
            for effect in taken:
                self._translate(effect)
        if self.applied_index > self._told_applied:
            self._tell_applied()
        self._finish_proposals()
        self._note_readiness()
        if self._told_cluster_id != self._machine.metadata.cluster_id:
            self._told_cluster_id = self._machine.metadata.cluster_id
            self._effects.append(effects.ClusterKnown(self._told_cluster_id))
        if self._snapshot_wanted and self.applied_index >= max(1, self._definitions_applied):
            # Last of all: the owner's definitions are then as old as the sessions. After a start
            # they may be ahead: whoever got such an image would carry out some changes twice.
            self._snapshot_wanted = False
            self._snapshot = (self.applied_index, self._sessions.image())
            self._effects.append(effects.SnapshotNeeded(self.applied_index))
        taken_effects = self._effects[:]
        self._effects.clear()
        return taken_effects

    def _flush(self) -> None:
        """Proposals go to the leader, as many as there are in one frame."""
        leader = self.raft.leader
        if leader is None or self._is_far_behind():
            return
        self._register()
        self._bear_witness(leader)
        due = self._proposals.due(self._now_ms)
        if leader == self.node:
            self._crowd.add(due)
        elif due:
            for payload in frames.proposals_in_frames(due):
                self._send(leader, frames.PROPOSE, payload)
        if self._crowd:
            self._crowd.put_into_log(self.raft.propose)

    def _is_far_behind(self) -> bool:
        """A snapshot is coming, which may hold the outcome of everything that is on its way.

        Whatever was proposed again before it is here would only make the log run ahead of it.
        """
        return self._now_ms - self._snapshot_came_ms < self.settings.retry_ms

    def _translate(self, effect: raft_effects.Effect) -> None:
        match effect:
            case raft_effects.Send():
                self._send(effect.to, frames.RAFT, codec.encode(effect.message))
            case raft_effects.Persist():
                self._effects.append(effect)
            case raft_effects.Apply():
                self._apply(effect)
            case raft_effects.Restore():
                self._restore(effect)
            case raft_effects.ReadReady():
                self._readiness.read_ready(effect.context)
            case raft_effects.ReadFailed():
                self._readiness.read_failed(effect.context, self._now_ms)
            case raft_effects.RoleChanged():
                self._role_changed(effect)
            case raft_effects.SnapshotNeeded():
                self._snapshot_wanted = True

    def _send(self, to: str, kind: int, payload: bytes) -> None:
        self._effects.append(effects.SendFrame(to, kind, payload))

    # -- applying

    def _apply(self, effect: raft_effects.Apply) -> None:
        index = effect.first_index - 1
        for index, entry in enumerate(effect.entries, effect.first_index):
            if entry.kind is EntryKind.COMMAND:
                self._apply_command(index, entry.data)
            elif entry.kind is EntryKind.MEMBERSHIP:
                self._set_membership(membership_of(entry))
        self.applied_index = index
        self._undecided = {name: at for name, at in self._undecided.items() if at > index}

    def _set_membership(self, membership: Membership) -> None:
        was_member = self.node in self._machine.membership.nodes
        self._machine.set_membership(membership)
        # One that joins anew reads of its earlier lives, and of their end, before its own begins.
        is_joining = bool(self._seeds) and not self._has_registered
        is_history = is_joining or self.node in self.raft.membership.nodes
        if was_member and self.node not in membership.nodes and not is_history:
            self._refuse(f"{self.node} was taken out of the cluster")

    def _apply_command(self, index: int, data: bytes) -> None:
        outcome = self._sessions.apply(index, data)
        self._crowd.applied(data, outcome.verdict in _FINAL)
        self._applied.look(self.nodes, index)
        proposal = self._proposals.applied(outcome)
        if proposal is not None:
            self._answered(proposal, index, outcome.result)
        elif outcome.verdict is Verdict.OPENED:
            self._proposals.look(self._sessions)

    def _answered(self, proposal: Proposal, index: int, result: bytes) -> None:
        if proposal.ticket == NOBODY:
            self._witnessing.is_under_way = False
            return
        self._has_registered |= proposal.ticket == self._register_ticket
        answer = Answer.DONE if result == _DONE or not result else decode_result(result).answer
        if answer is Answer.DONE:
            self._applied.wait(index, proposal.ticket)
        elif proposal.ticket == self._register_ticket:
            self._registration_refused(answer)
        else:
            self._effects.append(effects.ProposalFailed(proposal.ticket, _WHY[answer]))

    def _restore(self, effect: raft_effects.Restore) -> None:
        snapshot = effect.snapshot
        image = decode_image(snapshot.data)
        self._sessions.restore(image.sessions)
        self._set_membership(snapshot.membership)
        self.applied_index = snapshot.index
        self._applied.look(self.nodes, snapshot.index, is_leap=True)
        self._snapshot = None
        self._snapshot_came_ms = self._now_ms - self.settings.retry_ms
        self._undecided.clear()
        self._machine.restored(snapshot.index, image.definitions)
        applied, lost = self._proposals.restored(self._sessions)
        for proposal, result in applied:
            self._answered(proposal, snapshot.index, result)
        for proposal in lost:
            if proposal.ticket == NOBODY:
                self._witnessing.is_under_way = False
            elif proposal.ticket == self._register_ticket:
                self._register_ticket = 0  # Twice does no harm.
            else:
                self._effects.append(effects.ProposalFailed(proposal.ticket, effects.Why.UNKNOWN))

    def _finish_proposals(self) -> None:
        for index, ticket in self._applied.everywhere(self.nodes, self.applied_index):
            if ticket != self._register_ticket:
                self._effects.append(effects.ProposalDone(ticket, index))

    # -- proposing

    def _propose(self, command: Command, size: int = 0) -> int:
        ticket = self._last_ticket = self._last_ticket + 1
        if size > frames.CHANGE_BYTES_MAX:
            self._effects.append(effects.ProposalFailed(ticket, effects.Why.TOO_LARGE))
        elif self._proposals.is_full:
            self._effects.append(effects.ProposalFailed(ticket, effects.Why.BUSY))
        else:
            self._proposals.add(ticket, encode_command(command))
        return ticket

    def _register(self) -> None:
        """Say that a new life of this node has begun, once it is a member."""
        if not self._register_ticket and self.node in self.raft.membership.nodes:
            self._register_ticket = self._last_ticket = self._last_ticket + 1
            register = Register(self.node, self.incarnation, *self._disks)
            self._proposals.add_first(self._register_ticket, encode_command(register))

    def _bear_witness(self, leader: str) -> None:
        witness = self._witnessing.due(self._machine.metadata, leader)
        if witness is not None:
            self._proposals.add_first(NOBODY, encode_command(witness))

    def _registration_refused(self, answer: Answer) -> None:
        known = self.nodes.get(self.node)
        if answer is Answer.CONFLICT and known is not None:
            if known.incarnation > self.incarnation:
                self._refuse(f"a later life of {self.node} is in the cluster already")
        else:
            self._refuse(f"{self.node} was taken out of the cluster")

    def _refuse(self, reason: str) -> None:
        if not self._is_refused:
            self._is_refused = True
            self._effects.append(effects.Refused(reason))

    def _role_changed(self, effect: raft_effects.RoleChanged) -> None:
        self._effects.append(effects.LeaderChanged(effect.role, effect.term, effect.leader))
        leader = (effect.leader, effect.term)
        if effect.leader is not None and leader != self._leader:
            self._leader = leader
            self._proposals.all_again()
        if effect.role is Role.LEADER:
            self._tick_ms = self._now_ms  # There may be somebody to declare down.
        else:
            self._undecided.clear()
            self._joining.clear()
            self._crowd.leads_no_more()

    # -- how far everybody is

    def _tell_applied(self) -> None:
        self._told_applied = self.applied_index
        self._tell_applied_ms = self._now_ms + self.settings.applied_ms
        payload = self._applied_payload()
        for name in self.raft.membership.nodes:
            if name != self.node:
                self._send(name, frames.APPLIED, payload)

    def _send_applied(self, node: str) -> None:
        self._send(node, frames.APPLIED, self._applied_payload())

    def _applied_payload(self) -> bytes:
        return frames.encode(frames.Applied(self.incarnation, self.applied_index))

    # -- time, and whether this node is in touch

    def _advance(self, now_ms: int) -> None:
        """The clock, before anything else: after a suspension nothing is as it was."""
        gap_ms = now_ms - self._now_ms
        self._now_ms = max(self._now_ms, now_ms)
        if gap_ms > self.settings.held_up_ms:
            self._liveness.held_up(gap_ms)
            self.raft.tick(now_ms)
            if gap_ms > self.settings.suspended_ms:
                self._readiness.doubt()

    def _note_touch(self) -> None:
        """A leader that has just looked has a majority; others are in touch with the leader."""
        if self.is_leader:
            self._readiness.in_touch(self._now_ms)
        elif self.raft.leader is not None:
            self._readiness.in_touch(self.raft.leader_contact_ms)

    def _note_readiness(self) -> None:
        if self._machine.counts_as_alive:
            self._readiness.check(self.raft, self._now_ms)
        else:
            self._readiness.doubt()
        if (ready := self.ready) is not self._was_ready:
            self._was_ready = ready
            self._effects.append(effects.ReadyChanged(ready))

    # -- what a leader looks after

    def _judge_nodes(self) -> None:
        """Tell the cluster who is down and who is back, each once until that is applied."""
        for name, verdict in self._liveness.verdicts(self.nodes, self._now_ms):
            if name not in self._undecided:
                self._decide(name, verdict)
        if not self._machine.metadata.cluster_id and self._founding_id:
            self._decide("", Found(self._founding_id))

    def _decide(self, key: str, command: Command) -> None:
        """Not tried again: by the time of another leader it may not be true any more."""
        if key in self._undecided:
            return
        data = self._proposals.once(encode_command(command))
        position = self.raft.propose(data) if data is not None else None
        if isinstance(position, Position):
            self._undecided[key] = position.index

    def _drive_members(self) -> None:
        """One change of the members at a time; what Raft refuses now is tried at the next tick."""
        membership, leaving = self.raft.membership, self._machine.leaving
        for name in sorted(leaving):
            self.raft.remove(name)
        for name in membership.learners:
            if name not in leaving and (not self._preferred or name in self._preferred):
                self.raft.promote(name)
        for name, asked_ms in list(self._joining.items()):
            if name in membership.nodes or self._now_ms - asked_ms > self.settings.join_ms * 4:
                del self._joining[name]
            else:
                self.raft.add_learner(name)

    def _is_member(self) -> bool:
        """For sure: that it was to be let in may be in no log but its own.

        One that joins reads at first who was a member before, perhaps an earlier life of its own
        name, which is over: whoever feeds it knows it, and without a leader nobody may.
        """
        if self._joins and not self._has_registered and self.raft.leader is None:
            return False
        return self.raft.is_voter or self.node in self._machine.membership.nodes

    def _ask_to_join(self) -> None:
        if self._seeds and self._now_ms >= self._ask_to_join_ms:
            self._ask_to_join_ms = self._now_ms + self.settings.join_ms
            payload = frames.encode(frames.Join(self.node, False, not self.raft.log.last_index))
            self._send(self._seeds[0], frames.JOIN, payload)
            self._seeds.rotate(-1)

    def _on_join(self, join: frames.Join) -> None:
        if not self.is_leader:
            if self.raft.leader is not None and not join.forwarded:
                payload = frames.encode(frames.Join(join.node, True, join.is_new))
                self._send(self.raft.leader, frames.JOIN, payload)
        elif join.node not in self.raft.membership.voters:
            if join.node not in self._machine.leaving:
                self._joining[join.node] = self._now_ms
        elif join.is_new:
            # With its disk lost it could vote twice in one term. Others will hear they were let in.
            payload = frames.encode(frames.JoinRefused(frames.MEMBER_ALREADY.format(join.node)))
            self._send(join.node, frames.JOIN_REFUSED, payload)
