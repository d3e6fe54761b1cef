"""Elections: asking beforehand, asking, voting."""

from __future__ import annotations

from typing import Any

from warren.cluster.raft.effects import Role
from warren.cluster.raft.following import Following
from warren.cluster.raft.messages import TimeoutNow, VoteReply, VoteRequest


class Electing(Following):
    """How a node becomes a leader, or helps another to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._votes: dict[str, bool] = {}
        self._own_vote_token = 0

    def _give_up_leader(self) -> None:
        """Soon, but not at the same moment as the others who know it too."""
        self._become(Role.FOLLOWER, None)
        soon = self._now_ms + self._pick(0, self.settings.election_min_ms // 2)
        self._deadline_ms = min(self._deadline_ms, soon)

    def _campaign(self) -> None:
        """The leader is silent: ask the others whether they would vote for this node."""
        self._reset_deadline()
        if not self._may_campaign():
            self._become(Role.FOLLOWER, None)
            return
        self._become(Role.PRECANDIDATE, None)
        self._votes = {self.node: True}
        self._ask_for_votes(self.term + 1, preliminary=True, transfer=False)
        self._count_votes()

    def _may_campaign(self) -> bool:
        """A voter may, and one whose removal is not committed yet.

        The others may need the end of its log to be able to commit at all, the removal included.
        """
        return any(
            self.node in membership.voters
            for membership in self.log.memberships_since(self.commit_index)
        )

    def _stand_for_election(self, transfer: bool) -> None:
        """Vote for itself in a new term and ask the others, all of it once that is on the disk."""
        self._reset_deadline()
        self._enter_term(self.term + 1, self.node)
        self._become(Role.CANDIDATE, None)
        self._votes = {}
        self._own_vote_token = self._durability.term_token
        self._ask_for_votes(self.term, preliminary=False, transfer=transfer)

    def _ask_for_votes(self, term: int, preliminary: bool, transfer: bool) -> None:
        last_index, last_term = self.log.last_index, self.log.last_term
        request = VoteRequest(term, last_index, last_term, preliminary, transfer)
        for voter in self.membership.voters:
            if voter != self.node:
                self._send_after_term(voter, request)

    def _count_own_vote(self) -> None:
        """The node's vote for itself is on the disk, if this token is."""
        if self.role is Role.CANDIDATE and self._durability.done_token >= self._own_vote_token:
            self._votes[self.node] = True
            self._count_votes()

    def _count_votes(self) -> None:
        granted = [voter for voter in self.membership.voters if self._votes.get(voter)]
        if len(granted) < self.membership.majority:
            return
        if self.role is Role.PRECANDIDATE:
            self._stand_for_election(transfer=False)
        elif self.role is Role.CANDIDATE:
            self._become_leader()

    def _become_leader(self) -> None:
        raise NotImplementedError

    def _on_vote_request(self, candidate: str, request: VoteRequest) -> None:
        granted = self._may_vote_for(candidate, request)
        if granted and not request.preliminary:
            if self.vote != candidate:
                self._enter_term(self.term, candidate)
            self._reset_deadline()
        term = request.term if granted else self.term
        self._send_after_term(candidate, VoteReply(term, granted, request.preliminary))

    def _may_vote_for(self, candidate: str, request: VoteRequest) -> bool:
        """A node that knows no members has never been in the cluster, or has lost its disk."""
        if not self.membership.voters:
            return False
        if request.preliminary:
            if request.term <= self.term:
                return False
        elif request.term != self.term or self.vote not in (None, candidate):
            return False
        return self.log.is_up_to_date(request.last_index, request.last_term)

    def _on_vote_reply(self, voter: str, reply: VoteReply) -> None:
        role = Role.PRECANDIDATE if reply.preliminary else Role.CANDIDATE
        if self.role is not role:
            return
        if reply.granted and reply.term != self.term + reply.preliminary:
            return
        self._votes[voter] = reply.granted
        self._count_votes()

    def _on_timeout_now(self, leader: str, _: TimeoutNow) -> None:
        if self.role is Role.FOLLOWER and self.leader == leader and self._may_campaign():
            self._stand_for_election(transfer=True)
