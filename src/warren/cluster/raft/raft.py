"""Raft, as its owner sees it: inputs are calls, outputs are the effects taken after each of them.

No socket, clock, disk or dice: the same inputs lead to the same effects. The owner calls an input,
takes the effects, and carries them out in order; a `Persist` may be carried out later than the
others, as long as all are synced in the order of their tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cluster.raft.changing import Changing
from warren.cluster.raft.effects import Effect, Position, Refusal, Role
from warren.cluster.raft.messages import (
    Append,
    AppendReply,
    InstallSnapshot,
    Message,
    ReadContext,
    ReadReply,
    ReadRequest,
    SnapshotReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from warren.cluster.raft.types import SNAPSHOT_BYTES_MAX, ProtocolError, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.cluster.raft.settings import Settings
    from warren.cluster.raft.types import Membership, Stored


class Raft(Changing):
    """One node's part in the agreement."""

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
        super().__init__(node, stored, settings, pick, boot, now_ms)

    def take_effects(self) -> list[Effect]:
        """What is to be done; call it after every input, or after several."""
        if self._feed_wanted and self.role is Role.LEADER:
            self._feed_all()
        persist = self._durability.take(self._hard_state(), self.log)
        if persist is not None:
            self._effects.append(persist)
        effects, self._effects = self._effects, []
        return effects

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do, at the latest."""
        return self._heartbeat_ms if self.role is Role.LEADER else self._deadline_ms

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._now_ms = max(now_ms, self._now_ms)
        for context in self._own_reads.expired(self._now_ms):
            self._fail_read(context)
        if self.role is Role.LEADER:
            self._lead_on()
        elif self._now_ms >= self._deadline_ms:
            self._campaign()

    def persisted(self, token: int) -> None:
        """Everything up to this `Persist` is on the disk, synced."""
        self._effects.extend(self._durability.persisted(token))
        self._count_own_vote()
        self._advance_commit()
        self._apply_committed()

    def receive(self, sender: str, message: Message, now_ms: int) -> None:
        """A message has come. ProtocolError if no correct node can have sent it."""
        if sender == self.node:
            raise ProtocolError("a message from this node itself")
        self._now_ms = max(now_ms, self._now_ms)
        if message.term > self.term:
            if not self._heeds_later_term(message):
                return
        elif message.term < self.term:
            self._answer_from_the_past(sender, message)
            return
        self._handle(sender, message)

    def leader_gone(self, node: str, now_ms: int) -> None:
        """The process of a node has ended, as the owner knows: do not wait for its silence.

        Were that wrong, it would cost an election and nothing else.
        """
        self._now_ms = max(now_ms, self._now_ms)
        if self.role is Role.FOLLOWER and self.leader == node:
            self._give_up_leader()

    def propose(self, command: bytes) -> Position | Refusal:
        """Have a command committed. Being refused later shows by another entry at that index."""
        return self._propose(command)

    def read_index(self) -> ReadContext | Refusal:
        """Begin a read: `ReadReady` or `ReadFailed` with the same context follows."""
        return self._read()

    def add_learner(self, node: str) -> Position | Refusal:
        """Let a node have the log, without a vote."""
        return self._add_learner(node)

    def promote(self, node: str) -> Position | Refusal:
        """Give a learner that has caught up a vote."""
        return self._promote(node)

    def remove(self, node: str) -> Position | Refusal:
        """Let a member go; the leader itself goes once that is committed."""
        return self._remove(node)

    def transfer_leader(self, node: str) -> Refusal | None:
        """Hand leadership to a voter; it is taken back if that one is not leader in time."""
        return self._transfer(node)

    def compact(self, index: int, image: bytes) -> None:
        """`image` is the state machine after `index`: forget the entries it stands for."""
        if index > self.applied_index:
            raise ValueError(f"there can be no image of entry {index} here")
        if len(image) > SNAPSHOT_BYTES_MAX:
            raise ValueError(f"an image of {len(image)} bytes is too large")
        self._snapshot_asked = False
        self._applied_bytes = 0
        term = self.log.term_at(index)
        if index <= self.log.snapshot.index or term is None:
            return  # A leader's snapshot has overtaken this one.
        snapshot = Snapshot(index, term, self._membership_for_snapshot(index), image)
        self.log.compact(snapshot, self.settings.entries_kept)
        self._durability.snapshot_changed()

    def _membership_for_snapshot(self, index: int) -> Membership:
        return self.log.membership_at(index)

    def _heeds_later_term(self, message: Message) -> bool:
        """Enter the later term of a message, unless it must not count; whether to handle it."""
        if isinstance(message, VoteRequest):
            if self._hears_leader() and not message.transfer:
                return False
            if message.preliminary:
                return True
        elif isinstance(message, VoteReply) and message.preliminary and message.granted:
            return True
        self._become_follower(message.term, None)
        return True

    def _answer_from_the_past(self, sender: str, message: Message) -> None:
        """Whoever lags behind in terms and waits for a reply is told the present one."""
        if isinstance(message, VoteRequest):
            self._send_after_term(sender, VoteReply(self.term, False, message.preliminary))
        elif isinstance(message, Append | InstallSnapshot):
            self._send_after_term(sender, AppendReply(self.term, False, 0, 0, 0, 0))

    def _handle(self, sender: str, message: Message) -> None:
        match message:
            case Append():
                self._on_append(sender, message)
            case AppendReply():
                self._on_append_reply(sender, message)
            case VoteRequest():
                self._on_vote_request(sender, message)
            case VoteReply():
                self._on_vote_reply(sender, message)
            case InstallSnapshot():
                self._on_install_snapshot(sender, message)
            case SnapshotReply():
                self._on_snapshot_reply(sender, message)
            case TimeoutNow():
                self._on_timeout_now(sender, message)
            case ReadRequest():
                self._on_read_request(sender, message)
            case ReadReply():
                self._on_read_reply(sender, message)
