"""What every node does whatever its role: keep term and log, hold messages back, apply.

The state machine of Raft is one class, written role by role: `Core`, then `Following`,
`Electing`, `Leading`, `Reading`, `Changing`, and `Raft`, which has the inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cluster.raft.durability import Durability
from warren.cluster.raft.effects import (
    Apply,
    Effect,
    ReadFailed,
    ReadReady,
    Restore,
    Role,
    RoleChanged,
    Send,
    SnapshotNeeded,
)
from warren.cluster.raft.log import RaftLog
from warren.cluster.raft.reads import OwnReads
from warren.cluster.raft.types import HardState, Membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.cluster.raft.messages import Message, ReadContext
    from warren.cluster.raft.settings import Settings
    from warren.cluster.raft.types import Stored


class Core:
    """State and helpers that all roles share."""

    def __init__(
        self,
        node: str,
        stored: Stored,
        settings: Settings,
        pick: Callable[[int, int], int],
        boot: int,
        now_ms: int,
    ) -> None:
        """`pick(low, high)` throws the dice; `boot` is a number no earlier life of the node had."""
        self.node = node
        self.settings = settings
        self._pick = pick
        self.log = RaftLog(stored)
        self.term = stored.hard_state.term
        self.vote = stored.hard_state.vote
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self._announced: tuple[Role, int, str | None] = (Role.FOLLOWER, self.term, None)
        self.commit_index = self.log.snapshot.index
        self.applied_index = self.log.snapshot.index
        self._applied_bytes = 0
        self._snapshot_asked = False
        self._now_ms = now_ms
        self._leader_contact_ms = now_ms
        self._deadline_ms = 0
        self._durability = Durability(self.log.last_index)
        self._own_reads = OwnReads(boot)
        self._effects: list[Effect] = []
        if self.log.snapshot.index:
            self._effects.append(Restore(self.log.snapshot))
        self._reset_deadline()

    @property
    def membership(self) -> Membership:
        """The members by the last entry in the log, committed or not."""
        return self.log.membership

    @property
    def is_voter(self) -> bool:
        return self.node in self.membership.voters

    @property
    def stable_index(self) -> int:
        """The log up to here is on this node's disk."""
        return self._durability.stable_index

    @property
    def leader_contact_ms(self) -> int:
        """When a leader was last heard, by whoever was none itself."""
        return self._leader_contact_ms

    # -- saying things

    def _send_now(self, to: str, message: Message) -> None:
        """For what depends on nothing but the term, which a leader has synced long ago."""
        self._effects.append(Send(to, message))

    def _send_after_term(self, to: str, message: Message) -> None:
        """For what says in which term the node is and whom it voted for."""
        self._send_after(self._durability.term_token, to, message)

    def _send_after_all(self, to: str, message: Message) -> None:
        """For what says what is in the log."""
        self._send_after(self._durability.latest_token, to, message)

    def _send_after(self, token: int, to: str, message: Message) -> None:
        send = self._durability.hold(token, Send(to, message))
        if send is not None:
            self._effects.append(send)

    # -- roles and terms

    def _become(self, role: Role, leader: str | None) -> None:
        self.role, self.leader = role, leader
        if (role, self.term, leader) != self._announced:
            self._announced = (role, self.term, leader)
            self._effects.append(RoleChanged(role, self.term, leader))

    def _enter_term(self, term: int, vote: str | None) -> None:
        self.term, self.vote = term, vote
        self._durability.term_changed()

    def _become_follower(self, term: int, leader: str | None) -> None:
        """Follow, in this term or a later one; whoever led or campaigned does so no more."""
        led = self.role is Role.LEADER
        if term > self.term:
            self._enter_term(term, None)
        if led:
            self._stop_leading()
        if self.role is not Role.FOLLOWER:
            self._reset_deadline()
        self._become(Role.FOLLOWER, leader)

    def _stop_leading(self) -> None:
        raise NotImplementedError

    def _reset_deadline(self) -> None:
        low, high = self.settings.election_min_ms, self.settings.election_max_ms
        self._deadline_ms = self._now_ms + self._pick(low, high)

    def _hears_leader(self) -> bool:
        """Whether there is a leader that this node must not help to unseat."""
        if self.role is Role.LEADER:
            return True
        silence = self._now_ms - self._leader_contact_ms
        return self.leader is not None and silence < self.settings.election_min_ms

    # -- committing and applying

    def _set_commit(self, index: int) -> None:
        if index > self.commit_index:
            self.commit_index = index
            self._apply_committed()

    def _apply_committed(self) -> None:
        """Apply what is committed and on this node's own disk: a restart takes nothing back."""
        up_to = min(self.commit_index, self._durability.stable_index)
        if self.log.snapshot.index > self.applied_index:
            if up_to < self.log.snapshot.index:
                return
            self._effects.append(Restore(self.log.snapshot))
            self.applied_index = self.log.snapshot.index
            self._applied_bytes = 0
        while self.applied_index < up_to:
            count = min(self.settings.apply_entries, up_to - self.applied_index)
            entries = self.log.entries_from(self.applied_index + 1, count)
            self._effects.append(Apply(self.applied_index + 1, entries))
            self.applied_index += count
            self._applied_bytes += sum([len(entry.data) for entry in entries])
        for index, context in self._own_reads.applied(self.applied_index):
            self._effects.append(ReadReady(context, index))
        self._ask_for_snapshot()

    def _ask_for_snapshot(self) -> None:
        due = (
            self.applied_index - self.log.snapshot.index >= self.settings.snapshot_entries
            or self._applied_bytes >= self.settings.snapshot_bytes
        )
        if due and not self._snapshot_asked:
            self._snapshot_asked = True
            self._effects.append(SnapshotNeeded(self.applied_index))

    def _read_is_good(self, context: ReadContext, index: int) -> None:
        """This node's own read may be answered once `index` is applied."""
        self._own_reads.wait_for(index, context)
        self._apply_committed()

    def _fail_read(self, context: ReadContext) -> None:
        self._effects.append(ReadFailed(context))

    def _hard_state(self) -> HardState:
        return HardState(self.term, self.vote)
