"""What must hold at every moment, whatever happens. Seen from above, by nobody's own account."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sim.world import Violation
from warren.cluster.raft.effects import Effect, Persist, ReadReady, Restore, Role, RoleChanged, Send
from warren.cluster.raft.messages import Append, InstallSnapshot, VoteReply, VoteRequest
from warren.cluster.raft.types import Entry, EntryKind, membership_of

if TYPE_CHECKING:
    from sim.cluster import Cluster
    from sim.node import SimNode


class _Seen:
    """What the oracles saw of a node last."""

    def __init__(self) -> None:
        self.term = 0
        self.commit = 0
        self.leads_in = 0
        self.last_index = 0
        self.last_term = 0


class Oracles:
    """The promises of Raft, checked after every event."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._seen: dict[str, _Seen] = {}
        self.leaders: dict[int, str] = {}
        self._votes: dict[tuple[str, int], str] = {}
        self._said_term: dict[str, int] = {}
        #: (index, term) -> (term before, entry): equal here means equal in all before, too.
        self._entries: dict[tuple[int, int], tuple[int, Entry]] = {}
        #: index -> entry
        self.committed: dict[int, Entry] = {}
        #: index -> the term in which it was
        self.committed_in: dict[int, int] = {}
        self.commit_max = 0
        #: What happened how often: a schedule in which nothing happens proves nothing.
        self.counts: Counter[str] = Counter()

    def fail(self, what: str) -> None:
        raise Violation(f"seed {self.cluster.world.seed} at {self.cluster.world.now_us} us: {what}")

    # -- lives

    def started(self, node: SimNode) -> None:
        seen = self._seen[node.name] = _Seen()
        seen.term = node.raft.term
        if node.raft.term < self._said_term.get(node.name, 0):
            self.fail(f"{node.name} has forgotten its term")

    def crashed(self, node: SimNode) -> None:
        self._seen[node.name] = _Seen()

    # -- effects

    def saw(self, node: SimNode, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.counts[type(effect.message).__name__] += 1
                self._saw_send(node.name, effect)
            elif isinstance(effect, Persist):
                self._saw_entries(node, effect)
            elif isinstance(effect, Restore):
                self.counts["restored"] += 1
            elif isinstance(effect, RoleChanged) and effect.role is Role.LEADER:
                self._saw_leader(node, effect.term)

    def _saw_send(self, name: str, send: Send) -> None:
        message = send.message
        settings = self.cluster.settings
        if isinstance(message, Append) and len(message.entries) > settings.append_entries:
            self.fail(f"{name} sends too many entries at once")
        if isinstance(message, InstallSnapshot) and len(message.data) > settings.chunk_bytes:
            self.fail(f"{name} sends too large a chunk")
        asks = isinstance(message, VoteRequest)
        if isinstance(message, VoteRequest | VoteReply) and message.preliminary:
            return
        self._said_term[name] = max(message.term, self._said_term.get(name, 0))
        vote = name if asks else None
        if isinstance(message, VoteReply) and message.granted:
            vote = send.to
        if vote is not None:
            earlier = self._votes.setdefault((name, message.term), vote)
            if earlier != vote:
                self.fail(f"{name} votes for {earlier} and {vote} in term {message.term}")

    def _saw_entries(self, node: SimNode, persist: Persist) -> None:
        """Log matching: same index and term, same entry and same predecessor."""
        index = persist.first_index - 1
        before = node.raft.log.term_at(index) or 0
        for entry in persist.entries:
            index += 1
            found = self._entries.setdefault((index, entry.term), (before, entry))
            if found != (before, entry):
                self.fail(f"{node.name}: entry {index} of term {entry.term} differs")
            before = entry.term
            if entry.kind is EntryKind.MEMBERSHIP and index > node.raft.log.snapshot.index:
                old = set(node.raft.log.membership_at(index - 1).voters)
                if old and len(old ^ set(membership_of(entry).voters)) > 1:
                    self.fail(f"{node.name}: entry {index} changes more than one voter")

    def _saw_leader(self, node: SimNode, term: int) -> None:
        """Election safety and leader completeness.

        Votes that were on their way for long make a leader of a term that is over: it may lack what
        was committed in later ones since, and commits nothing (`rings:11000286`).
        """
        other = self.leaders.setdefault(term, node.name)
        if other != node.name:
            self.fail(f"{other} and {node.name} both lead in term {term}")
        for index in range(max(1, self.commit_max - 20), self.commit_max + 1):
            if self.committed_in[index] <= term:
                self._has_committed(node, index)

    def _has_committed(self, node: SimNode, index: int) -> None:
        log = node.raft.log
        if index > log.base_index and log.term_at(index) != self.committed[index].term:
            self.fail(f"{node.name} leads without the committed entry {index}")

    # -- state

    def look(self, node: SimNode) -> None:
        raft, seen = node.raft, self._seen[node.name]
        if raft.term < seen.term:
            self.fail(f"{node.name} goes back to term {raft.term}")
        seen.term = raft.term
        if raft.commit_index < seen.commit:
            self.fail(f"{node.name} commits less than before")
        if raft.commit_index > seen.commit:
            self._saw_commit(node, seen.commit)
            seen.commit = raft.commit_index
        log = raft.log
        if raft.role is Role.LEADER:
            if seen.leads_in == raft.term and (
                log.last_index < seen.last_index
                or log.term_at(seen.last_index) not in (None, seen.last_term)
            ):
                self.fail(f"{node.name} leads and changes its log")
            seen.leads_in, seen.last_index = raft.term, log.last_index
            seen.last_term = log.last_term
        else:
            seen.leads_in = 0

    def _saw_commit(self, node: SimNode, before: int) -> None:
        """State-machine safety, and that a majority can lose its power now."""
        raft = node.raft
        first = max(before, raft.log.base_index)
        if raft.commit_index > raft.log.last_index:
            self.fail(f"{node.name} commits what it does not have")
        for index in range(first + 1, raft.commit_index + 1):
            entry = raft.log.entry_at(index)
            if index not in self.committed and entry.kind is EntryKind.MEMBERSHIP:
                self._count_change(node, index)
            known = self.committed.setdefault(index, entry)
            self.committed_in.setdefault(index, raft.term)
            if known != entry:
                self.fail(f"{node.name} commits another entry {index}")
        if raft.commit_index > self.commit_max:
            self.commit_max = raft.commit_index
            self._is_durable(node, raft.commit_index)
            for other in self.cluster.nodes.values():
                if other.is_leader and other.raft.term > raft.term:
                    self._has_committed(other, raft.commit_index)

    def _count_change(self, node: SimNode, index: int) -> None:
        if index > node.raft.log.snapshot.index + 1:
            before = node.raft.log.membership_at(index - 1)
            after = node.raft.log.membership_at(index)
            added = len(after.voters) - len(before.voters)
            self.counts[{1: "promoted", 0: "learner", -1: "removed"}[added]] += 1

    def _is_durable(self, node: SimNode, index: int) -> None:
        entry = self.committed[index]
        membership = node.raft.membership
        holders = 0
        for voter in membership.voters:
            stored = self.cluster.nodes[voter].disk.stored
            at = index - stored.base_index - 1
            holders += index <= stored.snapshot.index or (
                0 <= at < len(stored.entries) and stored.entries[at] == entry
            )
        if holders < membership.majority:
            self.fail(f"entry {index} is committed but on {holders} disks only")

    def applied(self, node: SimNode, index: int, entry: Entry) -> None:
        if self.committed.get(index) != entry:
            self.fail(f"{node.name} applies at {index} what was not committed there")
        stored = node.disk.stored
        if index > stored.base_index + len(stored.entries):
            self.fail(f"{node.name} applies {index}, which a restart would take back")

    def read_ready(self, node: SimNode, effect: ReadReady) -> None:
        floor = self.cluster.read_floors.pop((node.name, effect.context))
        if effect.index < floor:
            self.fail(f"{node.name} reads at {effect.index}, but {floor} was committed before")
