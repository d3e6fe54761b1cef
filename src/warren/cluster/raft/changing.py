"""Reads, changes of the members, and handing leadership over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cluster.raft.effects import Position, Refusal, Role
from warren.cluster.raft.leading import Leading
from warren.cluster.raft.messages import ReadReply, ReadRequest
from warren.cluster.raft.types import NODES_MAX, membership_entry

if TYPE_CHECKING:
    from warren.cluster.raft.messages import ReadContext
    from warren.cluster.raft.types import Membership


class Reading(Leading):
    """Reads that see everything which was committed when they were asked for."""

    def _read(self) -> ReadContext | Refusal:
        if len(self._own_reads) >= self.settings.reads_waiting:
            return Refusal.BUSY
        if self.role is Role.LEADER:
            if len(self._reads) >= self.settings.reads_waiting:
                return Refusal.BUSY
            context = self._own_reads.new_context()
            self._lead_read(None, context)
            return context
        if self.leader is None:
            return Refusal.NO_LEADER
        context = self._own_reads.new_context()
        self._own_reads.asked(context, self._now_ms + self.settings.election_max_ms)
        self._send_after_term(self.leader, ReadRequest(self.term, context))
        return context

    def _on_read_request(self, asker: str, request: ReadRequest) -> None:
        if self.role is Role.LEADER and len(self._reads) < self.settings.reads_waiting:
            self._lead_read(asker, request.context)

    def _on_read_reply(self, _: str, reply: ReadReply) -> None:
        if self._own_reads.answered(reply.context):
            self._read_is_good(reply.context, reply.index)

    def _lead_read(self, origin: str | None, context: ReadContext) -> None:
        """Only after a commit of its own term does a leader know all that is committed."""
        if self._knows_commit():
            self._reads.add(origin, context, self.commit_index)
            self._start_round()
        else:
            self._reads.add_early(origin, context)

    def _knows_commit(self) -> bool:
        return self.log.term_at(self.commit_index) == self.term

    def _own_term_committed(self) -> None:
        early = self._reads.take_early()
        for origin, context in early:
            self._reads.add(origin, context, self.commit_index)
        if early:
            self._start_round()

    def _start_round(self) -> None:
        """Reads that come while a round is on its way share the next one."""
        if self._reads.next_round_wanted and not self._reads.round_is_open:
            self._heartbeat()
        self._round_answered()

    def _round_answered(self) -> None:
        """Let go of the reads whose round a majority has answered."""
        rounds = sorted([self._round_of(voter) for voter in self.membership.voters])
        for read in self._reads.confirmed(rounds[(len(rounds) - 1) // 2]):
            if read.origin is None:
                self._read_is_good(read.context, read.commit_index)
            else:
                self._send_now(read.origin, ReadReply(self.term, read.context, read.commit_index))
        if self._reads.next_round_wanted and not self._reads.round_is_open:
            self._heartbeat()

    def _round_of(self, voter: str) -> int:
        if voter == self.node:
            return self._reads.round
        progress = self.peers.get(voter)
        return progress.round if progress is not None else 0


class Changing(Reading):
    """One node in or out at a time, so that old and new majorities always meet."""

    def _change_refusal(self) -> Refusal | None:
        """Why the members cannot be changed now."""
        if self.role is not Role.LEADER:
            return Refusal.NOT_LEADER
        if self._transfer_to is not None:
            return Refusal.TRANSFERRING
        if not self._knows_commit():
            return Refusal.NOTHING_COMMITTED
        if self.log.membership_index > self.commit_index:
            return Refusal.CHANGE_PENDING
        return None

    def _change(self, membership: Membership) -> Position:
        position = self._append_own(membership_entry(self.term, membership))
        # With fewer voters, what they hold may be a majority already.
        self._advance_commit()
        return position

    def _add_learner(self, node: str) -> Position | Refusal:
        refusal = self._change_refusal()
        if refusal is None and node in self.membership.nodes:
            refusal = Refusal.ALREADY_MEMBER
        if refusal is None and len(self.membership.nodes) >= NODES_MAX:
            refusal = Refusal.TOO_MANY_NODES
        return refusal or self._change(self.membership.with_learner(node))

    def _promote(self, node: str) -> Position | Refusal:
        refusal = self._change_refusal()
        if refusal is None and node in self.membership.voters:
            refusal = Refusal.ALREADY_MEMBER
        if refusal is None and node not in self.membership.learners:
            refusal = Refusal.NOT_MEMBER
        if refusal is None and not self._is_caught_up(node):
            refusal = Refusal.NOT_CAUGHT_UP
        return refusal or self._change(self.membership.with_voter(node))

    def _is_caught_up(self, node: str) -> bool:
        """A voter that lacks half of the log could stop the cluster from committing for long."""
        progress = self.peers[node]
        lag = self.log.last_index - progress.match_index
        heard = progress.contact_ms > self._now_ms - self.settings.election_max_ms
        knows_members = progress.match_index >= self.log.membership_index
        return heard and knows_members and lag <= self.settings.promotion_lag

    def _remove(self, node: str) -> Position | Refusal:
        refusal = self._change_refusal()
        if refusal is None and node not in self.membership.nodes:
            refusal = Refusal.NOT_MEMBER
        if refusal is None and self.membership.voters == (node,):
            refusal = Refusal.LAST_VOTER
        return refusal or self._change(self.membership.without(node))

    def _transfer(self, node: str) -> Refusal | None:
        if self.role is not Role.LEADER:
            return Refusal.NOT_LEADER
        if self._transfer_to is not None:
            return Refusal.TRANSFERRING
        if node == self.node:
            return Refusal.ALREADY_MEMBER
        if node not in self.membership.voters:
            return Refusal.NOT_MEMBER
        self._transfer_to = node
        self._transfer_deadline_ms = self._now_ms + self.settings.election_max_ms
        self._urge_successor(node, self.peers[node])
        self._feed_wanted = True
        return None
