"""Rafts with one rule switched off each: a simulator that lets one pass proves nothing."""

from __future__ import annotations

from msgspec import structs

from warren.cluster.raft.durability import Durability
from warren.cluster.raft.effects import Refusal, Role
from warren.cluster.raft.messages import (
    Append,
    AppendReply,
    InstallSnapshot,
    Message,
    ReadContext,
    VoteRequest,
)
from warren.cluster.raft.raft import Raft
from warren.cluster.raft.reads import OwnReads
from warren.cluster.raft.snapshots import SnapshotReceiver
from warren.cluster.raft.types import HardState, Membership
from warren.cluster.sessions import Outcome, Request, Sessions


class AnswersBeforeSync(Raft):
    """A follower says it has entries that are not on its disk yet."""

    def _send_after_all(self, to: str, message: Message) -> None:
        self._send_now(to, message)


class OverclaimsInHeartbeats(Raft):
    """A heartbeat is answered for entries that are still on their way to the disk."""

    def _send_after_term(self, to: str, message: Message) -> None:
        if isinstance(message, AppendReply) and message.accepted:
            message = structs.replace(message, index=self.log.last_index)
        super()._send_after_term(to, message)


class AppliesUnsynced(Raft):
    """What is committed elsewhere is applied before it is on the node's own disk."""

    def _apply_committed(self) -> None:
        stable, self._durability.stable_index = self.stable_index, self.log.last_index
        super()._apply_committed()
        self._durability.stable_index = stable


class CountsItselfBeforeSync(Raft):
    """A leader commits with entries that are not on its own disk yet."""

    def _match_index(self, voter: str) -> int:
        return self.log.last_index if voter == self.node else super()._match_index(voter)


class VotesBeforeSync(Raft):
    """A vote is given before it is on the disk."""

    def _send_after_term(self, to: str, message: Message) -> None:
        self._send_now(to, message)


class ForgetsVote(Raft):
    """The vote never gets to the disk."""

    def _hard_state(self) -> HardState:
        return HardState(self.term, None)


class VotesForShortLogs(Raft):
    """A candidate's log is not looked at."""

    def _may_vote_for(self, candidate: str, request: VoteRequest) -> bool:
        if request.preliminary:
            return request.term > self.term
        return request.term == self.term and self.vote in (None, candidate)


class CommitsOldTerms(Raft):
    """Entries of earlier terms are committed by counting (figure 8 of the Raft paper)."""

    def _may_commit(self, index: int) -> bool:
        return True


class CommitsBeyondMatch(Raft):
    """A follower believes the leader's commit index for entries it has from elsewhere."""

    def _commit_allowed_by(self, message: Append, index: int) -> int:
        return min(message.commit, self.log.last_index)


class CountsLearners(Raft):
    """Nodes without a vote count for a commit."""

    def _majority_match(self) -> int:
        nodes = self.membership.nodes
        matches = sorted(self._match_index(node) for node in nodes)
        return matches[(len(matches) - 1) // 2]


class TruncatesOnOldAppend(Raft):
    """An append that came late drops the entries which came after it."""

    def _take_entries(self, message: Append) -> None:
        first = max(message.previous_index, self.log.base_index) + 1
        if first <= self.log.last_index and message.entries:
            self.log.truncate(first)
            self._durability.truncated(first)
        super()._take_entries(message)


class _LaxDurability(Durability):
    def truncated(self, from_index: int) -> None:
        self.appended(from_index)


class CountsSyncAcrossTruncation(Raft):
    """A sync of dropped entries counts for the ones that took their places."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._durability = _LaxDurability(self.log.last_index)


class ChangesBeforeOwnCommit(Raft):
    """Members are changed before the leader has committed anything of its term."""

    def _change_refusal(self) -> Refusal | None:
        refusal = super()._change_refusal()
        if refusal is Refusal.NOTHING_COMMITTED:
            pending = self.log.membership_index > self.commit_index
            return Refusal.CHANGE_PENDING if pending else None
        return refusal


class ChangesTwoAtOnce(Raft):
    """A second change of the members does not wait for the first."""

    def _change_refusal(self) -> Refusal | None:
        refusal = super()._change_refusal()
        return None if refusal is Refusal.CHANGE_PENDING else refusal


class SnapshotsWithoutMembers(Raft):
    """A snapshot does not say who the members were at its index."""

    def _membership_for_snapshot(self, index: int) -> Membership:
        return (
            self.log.snapshot.membership if self.log.snapshot.index else self.log.membership_at(1)
        )


class _MixingReceiver(SnapshotReceiver):
    def _key(self, chunk: InstallSnapshot) -> tuple[object, ...]:
        return ("any",)


class MixesSnapshots(Raft):
    """Chunks of one snapshot are taken for another's."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._receiver = _MixingReceiver()


class ReadsWithoutMajority(Raft):
    """A leader answers reads without asking whether it still leads."""

    def _round_of(self, voter: str) -> int:
        return self._reads.round


class ReadsBeforeOwnCommit(Raft):
    """A new leader answers reads before it knows what is committed."""

    def _lead_read(self, origin: str | None, context: ReadContext) -> None:
        self._reads.add(origin, context, self.commit_index)
        self._start_round()


class ReusesReadNames(Raft):
    """An answer to a read of an earlier life is taken for one of this life."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._own_reads = OwnReads(0)


class HoldsOnToTransfer(Raft):
    """A leader waits for its successor for ever."""

    def _transfer(self, node: str) -> Refusal | None:
        refusal = super()._transfer(node)
        self._transfer_deadline_ms = 2**62
        return refusal


class NoPreVote(Raft):
    """A node that hears nothing campaigns at once, term after term."""

    def _campaign(self) -> None:
        self._reset_deadline()
        if self.is_voter:
            self._stand_for_election(transfer=False)


class LeavesTooEarly(Raft):
    """A node that is being removed does not campaign, committed or not."""

    def _may_campaign(self) -> bool:
        return self.is_voter


class ForgetsTheRemoved(Raft):
    """A node that is removed is not told."""

    def _match_peers_with_membership(self) -> None:
        super()._match_peers_with_membership()
        members = self.membership.nodes
        self.peers = {node: known for node, known in self.peers.items() if node in members}


class NoStickiness(Raft):
    """Nodes that hear their leader vote for others."""

    def _hears_leader(self) -> bool:
        return False


class NoCheckQuorum(Raft):
    """A leader that nobody answers goes on leading."""

    def _majority_is_in_contact(self) -> bool:
        return True


class NoBackOff(Raft):
    """A refused peer is offered the same entries again."""

    def _on_append_reply(self, peer: str, reply: object) -> None:
        if self.role is Role.LEADER and not reply.accepted:  # type: ignore[attr-defined]
            return
        super()._on_append_reply(peer, reply)  # type: ignore[arg-type]


class AppliesTwice(Sessions):
    """A request that is tried again is applied again."""

    def _request(self, index: int, request: Request) -> Outcome:
        session = self._sessions.get(request.session)
        if session is not None:
            session.results.pop(request.sequence, None)
        return super()._request(index, request)


#: Those that random schedules catch.
RAFTS: tuple[type[Raft], ...] = (
    AnswersBeforeSync,
    OverclaimsInHeartbeats,
    AppliesUnsynced,
    CountsItselfBeforeSync,
    VotesBeforeSync,
    ForgetsVote,
    VotesForShortLogs,
    CommitsOldTerms,
    CommitsBeyondMatch,
    CountsLearners,
    TruncatesOnOldAppend,
    CountsSyncAcrossTruncation,
    ChangesBeforeOwnCommit,
    ChangesTwoAtOnce,
    SnapshotsWithoutMembers,
    MixesSnapshots,
    ReadsWithoutMajority,
    ReadsBeforeOwnCommit,
    ReusesReadNames,
    HoldsOnToTransfer,
    NoBackOff,
    LeavesTooEarly,
    ForgetsTheRemoved,
    NoPreVote,
    NoStickiness,
    NoCheckQuorum,
)
