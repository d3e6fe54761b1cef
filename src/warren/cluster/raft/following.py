"""The follower's side: taking entries and snapshots from the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.cluster.raft.core import Core
from warren.cluster.raft.effects import Role
from warren.cluster.raft.messages import Append, AppendReply, InstallSnapshot, SnapshotReply
from warren.cluster.raft.snapshots import SnapshotReceiver
from warren.cluster.raft.types import ProtocolError

if TYPE_CHECKING:
    from warren.cluster.raft.types import Snapshot


class Following(Core):
    """What a node does with what its leader sends."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._receiver = SnapshotReceiver()

    def _on_append(self, leader: str, message: Append) -> None:
        self._check_append(leader, message)
        self._follow(leader)
        index = message.previous_index + len(message.entries)
        if not self._has_entry(message.previous_index, message.previous_term):
            self._refuse_append(leader, message)
            return
        self._take_entries(message)
        self._set_commit(self._commit_allowed_by(message, index))
        stable = self._durability.stable_index
        if index > stable and not message.entries:
            # A slow disk must not look like a dead node.
            self._send_after_term(leader, self._accepted(stable, message.round))
        if index > stable:
            self._send_after_all(leader, self._accepted(index, message.round))
        else:
            self._send_after_term(leader, self._accepted(index, message.round))

    def _check_append(self, leader: str, message: Append) -> None:
        """Refuse what no correct leader sends, before anything is changed."""
        if self.role is Role.LEADER or (self.leader or leader) != leader:
            raise ProtocolError(f"a second leader in term {message.term}")
        term = message.previous_term
        for entry in message.entries:
            if entry.term < term:
                raise ProtocolError("entries whose terms go down")
            term = entry.term
        if term > message.term:
            raise ProtocolError("entries of a term that is still to come")
        terms = (message.previous_term, *(entry.term for entry in message.entries))
        for index, term in enumerate(terms, message.previous_index):
            if index > self.commit_index:
                break
            if self.log.term_at(index) not in (None, term):
                raise ProtocolError(f"entry {index} is committed and cannot be another")

    def _follow(self, leader: str) -> None:
        self._leader_contact_ms = self._now_ms
        self._become_follower(self.term, leader)
        self._reset_deadline()

    def _has_entry(self, index: int, term: int) -> bool:
        """Whether the log is the leader's up to here. What the base stands for is committed."""
        return index <= self.log.base_index or self.log.term_at(index) == term

    def _take_entries(self, message: Append) -> None:
        """Append what is new. Only a contradiction drops entries of ours: an append may be old."""
        index = message.previous_index
        for number, entry in enumerate(message.entries):
            index += 1
            if index <= self.log.base_index:
                continue
            ours = self.log.term_at(index)
            if ours == entry.term:
                continue
            if ours is not None:
                self.log.truncate(index)
                self._durability.truncated(index)
            self._durability.appended(index)
            self.log.append(message.entries[number:])
            break

    def _commit_allowed_by(self, message: Append, index: int) -> int:
        """Beyond the entries of this very message, our log may not be the leader's."""
        return min(message.commit, index)

    def _accepted(self, index: int, round_number: int) -> AppendReply:
        return AppendReply(self.term, True, index, round_number, 0, 0)

    def _refuse_append(self, leader: str, message: Append) -> None:
        hint = self.log.last_not_after(
            min(message.previous_index, self.log.last_index), message.previous_term
        )
        # The base is committed, so it is in the leader's log.
        term = self.log.term_at(hint) or 0
        reply = AppendReply(self.term, False, message.previous_index, message.round, hint, term)
        self._send_after_term(leader, reply)

    def _on_install_snapshot(self, leader: str, chunk: InstallSnapshot) -> None:
        if self.role is Role.LEADER or (self.leader or leader) != leader:
            raise ProtocolError(f"a second leader in term {chunk.term}")
        self._follow(leader)
        if chunk.index <= self.commit_index:
            # Everything in it is here already, and committed means equal.
            self._receiver.clear()
            self._send_after_all(leader, self._accepted(self.commit_index, 0))
            return
        snapshot = self._receiver.take(chunk)
        if snapshot is None:
            reply = SnapshotReply(self.term, chunk.index, self._receiver.received_bytes)
            self._send_after_term(leader, reply)
            return
        self._install(snapshot)
        self._send_after_all(leader, self._accepted(snapshot.index, 0))

    def _install(self, snapshot: Snapshot) -> None:
        if self.log.term_at(snapshot.index) != snapshot.term:
            self._durability.truncated(self.commit_index + 1)
        self.log.restore(snapshot)
        self._durability.snapshot_changed()
        self._snapshot_asked = False
        self._set_commit(snapshot.index)
