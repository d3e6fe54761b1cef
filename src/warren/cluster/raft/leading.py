"""The leader's side: feeding the peers and committing what a majority has synced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.cluster.raft.effects import Position, Refusal, Role
from warren.cluster.raft.electing import Electing
from warren.cluster.raft.log import ENTRY_OVERHEAD_BYTES
from warren.cluster.raft.messages import (
    Append,
    AppendReply,
    InstallSnapshot,
    SnapshotReply,
    TimeoutNow,
)
from warren.cluster.raft.progress import Mode, Progress
from warren.cluster.raft.reads import LeaderReads
from warren.cluster.raft.types import COMMAND_BYTES_MAX, Entry, EntryKind, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable


class Leading(Electing):
    """What a node does while it leads."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: Every other member, and who is about to leave.
        self.peers: dict[str, Progress] = {}
        self._reads = LeaderReads()
        self._heartbeat_ms = 0
        self._uncommitted_bytes = 0
        self._transfer_to: str | None = None
        self._transfer_deadline_ms = 0
        self._feed_wanted = False

    # -- beginning and end

    def _become_leader(self) -> None:
        self._become(Role.LEADER, self.node)
        self.peers = {}
        self._reads = LeaderReads()
        self._uncommitted_bytes = self._bytes_of(self.commit_index + 1, self.log.last_index)
        self._transfer_to = None
        self._append_own(Entry(self.term, EntryKind.NOOP, b""))
        self._match_peers_with_membership()
        self._heartbeat()

    def _stop_leading(self) -> None:
        for context in self._reads.own_contexts():
            self._fail_read(context)
        self._reads = LeaderReads()
        self.peers = {}
        self._transfer_to = None
        self._feed_wanted = False

    def _append_own(self, entry: Entry) -> Position:
        """Put an entry at the end. The peers get it with the next effects, along with others."""
        self.log.append((entry,))
        self._durability.appended(self.log.last_index)
        self._uncommitted_bytes += len(entry.data) + ENTRY_OVERHEAD_BYTES
        if entry.kind is EntryKind.MEMBERSHIP:
            self._match_peers_with_membership()
        self._feed_wanted = True
        return Position(self.term, self.log.last_index)

    def _bytes_of(self, first_index: int, last_index: int) -> int:
        entries = self.log.entries_from(first_index, last_index - first_index + 1)
        return sum([len(entry.data) + ENTRY_OVERHEAD_BYTES for entry in entries])

    def _match_peers_with_membership(self) -> None:
        """Every member is fed, and who is to leave until that is committed: it should know."""
        old = self.peers
        self.peers = {}
        for membership in reversed(self.log.memberships_since(self.commit_index)):
            for node in membership.nodes:
                if node != self.node and node not in self.peers:
                    known = old.get(node)
                    self.peers[node] = known or Progress(self.log.last_index, self._now_ms)

    def _propose(self, command: bytes) -> Position | Refusal:
        if self.role is not Role.LEADER:
            return Refusal.NOT_LEADER
        if self._transfer_to is not None:
            return Refusal.TRANSFERRING
        if len(command) > COMMAND_BYTES_MAX:
            return Refusal.TOO_LARGE
        if (
            self._uncommitted_bytes + len(command) > self.settings.uncommitted_bytes
            or self.log.last_index - self.commit_index >= self.settings.uncommitted_entries
        ):
            return Refusal.BUSY
        return self._append_own(Entry(self.term, EntryKind.COMMAND, command))

    # -- time

    def _lead_on(self) -> None:
        """A leader's tick: still a majority there? Then a heartbeat, when it is time."""
        if not self._majority_is_in_contact():
            self._become_follower(self.term, None)
            return
        if self._transfer_to is not None and self._now_ms >= self._transfer_deadline_ms:
            self._transfer_to = None
        if self._now_ms >= self._heartbeat_ms:
            self._heartbeat()

    def _majority_is_in_contact(self) -> bool:
        since = self._now_ms - self.settings.election_max_ms
        return self._count_voters(lambda progress: progress.contact_ms > since)

    def _count_voters(self, holds: Callable[[Progress], bool]) -> bool:
        """Whether something holds for a majority; it does for this node itself, if it votes."""
        count = 0
        for voter in self.membership.voters:
            progress = self.peers.get(voter)
            if voter == self.node or (progress is not None and holds(progress)):
                count += 1
        return count >= self.membership.majority

    def _heartbeat(self) -> None:
        self._heartbeat_ms = self._now_ms + self.settings.heartbeat_ms
        if self._reads.next_round_wanted:
            self._reads.round += 1
        for node, progress in self.peers.items():
            self._feed(node, progress, heartbeat=True)

    # -- feeding

    def _feed_all(self) -> None:
        self._feed_wanted = False
        for node, progress in self.peers.items():
            self._feed(node, progress, heartbeat=False)

    def _feed(self, node: str, progress: Progress, heartbeat: bool) -> None:
        if progress.mode is not Mode.SNAPSHOT and progress.next_index <= self.log.base_index:
            progress.start_snapshot(self.log.snapshot)
            self._send_chunk(node, progress)
        if progress.mode is Mode.SNAPSHOT:
            if heartbeat:
                self._send_entries(node, progress, 0, ())
                if self._now_ms - progress.chunk_sent_ms >= self.settings.election_min_ms:
                    self._send_chunk(node, progress)
        elif progress.mode is Mode.PROBE:
            if heartbeat or not progress.probe_sent:
                # The peer may be dead: entries go once, then only the question is repeated.
                entries = () if progress.probe_sent else self._batch(progress)
                progress.probe_sent = True
                self._send_entries(node, progress, progress.next_index - 1, entries)
        else:
            self._stream(node, progress, heartbeat)

    def _stream(self, node: str, progress: Progress, heartbeat: bool) -> None:
        sent = False
        window = self.settings.appends_in_flight
        while progress.next_index <= self.log.last_index and len(progress.in_flight) < window:
            entries = self._batch(progress)
            self._send_entries(node, progress, progress.next_index - 1, entries)
            progress.next_index += len(entries)
            progress.in_flight.append(progress.next_index - 1)
            sent = True
        if not sent and (heartbeat or progress.commit_sent < self.commit_index):
            self._send_entries(node, progress, progress.next_index - 1, ())

    def _batch(self, progress: Progress) -> tuple[Entry, ...]:
        settings = self.settings
        return self.log.batch(progress.next_index, settings.append_entries, settings.append_bytes)

    def _send_entries(
        self, node: str, progress: Progress, previous_index: int, entries: tuple[Entry, ...]
    ) -> None:
        term = self.log.term_at(previous_index) or 0
        progress.commit_sent = self.commit_index
        message = Append(
            self.term, previous_index, term, self.commit_index, self._reads.round, entries
        )
        self._send_now(node, message)

    def _send_chunk(self, node: str, progress: Progress) -> None:
        snapshot = progress.snapshot
        if snapshot is None:
            return
        offset = progress.chunk_offset
        progress.chunk_sent_ms = self._now_ms
        message = InstallSnapshot(
            self.term,
            snapshot.index,
            snapshot.term,
            snapshot.membership,
            len(snapshot.data),
            progress.checksum,
            offset,
            snapshot.data[offset : offset + self.settings.chunk_bytes],
        )
        self._send_now(node, message)

    # -- replies

    def _on_append_reply(self, peer: str, reply: AppendReply) -> None:
        progress = self.peers.get(peer)
        if self.role is not Role.LEADER or progress is None:
            return
        if reply.round > self._reads.round:
            raise ProtocolError("an answer to a round that was not asked yet")
        if reply.accepted and reply.index > self.log.last_index:
            raise ProtocolError("a peer has entries that its leader does not have")
        progress.contact_ms = self._now_ms
        if reply.accepted:
            if progress.matched(reply.index):
                self._advance_commit()
            if self.role is Role.LEADER:
                self._urge_successor(peer, progress)
            self._feed_wanted = self.role is Role.LEADER
        else:
            fallback = self.log.last_not_after(reply.hint_index, reply.hint_term)
            if progress.refused(reply.index, fallback):
                self._feed_wanted = True
        if reply.round > progress.round and self.role is Role.LEADER:
            progress.round = reply.round
            self._round_answered()

    def _round_answered(self) -> None:
        raise NotImplementedError

    def _own_term_committed(self) -> None:
        raise NotImplementedError

    def _on_snapshot_reply(self, peer: str, reply: SnapshotReply) -> None:
        progress = self.peers.get(peer)
        if self.role is not Role.LEADER or progress is None:
            return
        progress.contact_ms = self._now_ms
        snapshot = progress.snapshot
        if snapshot is None or reply.index != snapshot.index:
            return
        if reply.offset > len(snapshot.data):
            raise ProtocolError("a peer wants a chunk beyond the snapshot")
        if reply.offset != progress.chunk_offset:
            progress.chunk_offset = reply.offset
            self._send_chunk(peer, progress)

    def _urge_successor(self, peer: str, progress: Progress) -> None:
        if peer == self._transfer_to and progress.match_index == self.log.last_index:
            self._send_now(peer, TimeoutNow(self.term))

    # -- committing

    def _advance_commit(self) -> None:
        """Commit what a majority of the voters has synced, the leader itself like any other."""
        if self.role is not Role.LEADER:
            return
        index = self._majority_match()
        if index > self.commit_index and self._may_commit(index):
            first = self.log.term_at(self.commit_index) != self.term
            self._uncommitted_bytes -= self._bytes_of(self.commit_index + 1, index)
            self._set_commit(index)
            self._feed_wanted = True
            if first:
                self._own_term_committed()
            if self.log.membership_index <= index:
                self._membership_committed()

    def _majority_match(self) -> int:
        """A majority of the voters has synced up to here."""
        matches = sorted([self._match_index(voter) for voter in self.membership.voters])
        return matches[(len(matches) - 1) // 2]

    def _match_index(self, voter: str) -> int:
        if voter == self.node:
            return self._durability.stable_index
        progress = self.peers.get(voter)
        return progress.match_index if progress is not None else 0

    def _may_commit(self, index: int) -> bool:
        """Entries of earlier terms are committed only along with one of this term.

        A majority may hold such an entry and a later leader still drop it.
        """
        return self.log.term_at(index) == self.term

    def _membership_committed(self) -> None:
        """Who has left hears of it now, or never; that may be this node itself."""
        if any(node not in self.membership.nodes for node in (self.node, *self.peers)):
            self._feed_all()
            self._match_peers_with_membership()
        if not self.is_voter:
            self._resign()

    def _resign(self) -> None:
        """This node is no voter any more: the one that has most is to lead."""
        voters = [node for node in self.membership.voters if node in self.peers]
        best = max(voters, key=lambda node: self.peers[node].match_index, default=None)
        if best is not None:
            self._send_now(best, TimeoutNow(self.term))
        self._become_follower(self.term, None)
