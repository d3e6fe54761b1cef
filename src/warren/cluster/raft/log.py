"""The log in memory: entries after a base, and the memberships that they set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cluster.raft.types import Entry, EntryKind, Membership, Snapshot, Stored, membership_of

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What an entry costs beside its data.
ENTRY_OVERHEAD_BYTES = 16


class RaftLog:
    """Entries base_index+1 to last_index. Base and snapshot stand for all that was before."""

    def __init__(self, stored: Stored) -> None:
        snapshot = stored.snapshot
        last_index = stored.base_index + len(stored.entries)
        if not stored.base_index <= snapshot.index <= last_index:
            raise ValueError("the stored log does not meet its snapshot")
        self.snapshot = snapshot
        self.base_index = stored.base_index
        self.base_term = stored.base_term
        self._entries: list[Entry] = list(stored.entries)
        #: (index, membership) in order; the first one is that of the snapshot.
        self._memberships = [(snapshot.index, snapshot.membership)]
        self._note_memberships(snapshot.index + 1)

    @property
    def last_index(self) -> int:
        return self.base_index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base_term

    @property
    def membership(self) -> Membership:
        """The members by the last entry that says so, committed or not."""
        return self._memberships[-1][1]

    @property
    def membership_index(self) -> int:
        return self._memberships[-1][0]

    def term_at(self, index: int) -> int | None:
        """The term of an entry; None where the log has none (any more)."""
        if self.base_index < index <= self.last_index:
            return self._entries[index - self.base_index - 1].term
        return self.base_term if index == self.base_index else None

    def entry_at(self, index: int) -> Entry:
        return self._entries[index - self.base_index - 1]

    def entries_from(self, first_index: int, count_max: int | None = None) -> tuple[Entry, ...]:
        """The entries from an index on, which must be after the base."""
        at = first_index - self.base_index - 1
        end = None if count_max is None else at + count_max
        return tuple(self._entries[at:end])

    def batch(self, first_index: int, count_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries for one message: one at least if there is one, then as many as fit."""
        entries = self.entries_from(first_index, count_max)
        size = 0
        for number, entry in enumerate(entries):
            size += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if size > bytes_max and number:
                return entries[:number]
        return entries

    def append(self, entries: Sequence[Entry]) -> None:
        first = self.last_index + 1
        self._entries.extend(entries)
        self._note_memberships(first)

    def truncate(self, from_index: int) -> None:
        """Drop this entry and all after it, and the memberships they set."""
        del self._entries[from_index - self.base_index - 1 :]
        while self._memberships[-1][0] >= from_index:
            self._memberships.pop()

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Whether a candidate with such a log has all that this one may have committed."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def last_not_after(self, index: int, term: int) -> int:
        """The last place up to `index` whose term is `term` or less: before it logs may agree.

        It lets a leader skip whole terms instead of going back entry by entry.
        """
        index = min(index, self.last_index)
        while index > self.base_index and self._entries[index - self.base_index - 1].term > term:
            index -= 1
        return index

    def compact(self, snapshot: Snapshot, keep: int) -> None:
        """Let the snapshot stand for the entries up to its index, but keep the last few."""
        base = max(self.base_index, snapshot.index - keep)
        term = self.term_at(base)
        if term is None:
            raise ValueError(f"there is no entry {base} to end at")
        del self._entries[: base - self.base_index]
        self.base_index, self.base_term = base, term
        self._install(snapshot)

    def restore(self, snapshot: Snapshot) -> None:
        """Begin anew after a snapshot from elsewhere; what follows it in this log is kept.

        Only if this log has the snapshot's last entry, else it follows something different.
        """
        if self.term_at(snapshot.index) == snapshot.term:
            del self._entries[: snapshot.index - self.base_index]
        else:
            self._entries.clear()
        self.base_index, self.base_term = snapshot.index, snapshot.term
        self._install(snapshot)

    def membership_at(self, index: int) -> Membership:
        """The members as of an index, the snapshot's or a later one."""
        found = self._memberships[0][1]
        for at, membership in self._memberships:
            if at <= index:
                found = membership
        return found

    def memberships_since(self, index: int) -> list[Membership]:
        """The members as of an index, and all later changes of them."""
        later = [membership for at, membership in self._memberships if at > index]
        return [self.membership_at(index), *later]

    def _install(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._memberships = [(snapshot.index, snapshot.membership)]
        self._note_memberships(snapshot.index + 1)

    def _note_memberships(self, first_index: int) -> None:
        for index in range(first_index, self.last_index + 1):
            entry = self.entry_at(index)
            if entry.kind is EntryKind.MEMBERSHIP:
                self._memberships.append((index, membership_of(entry)))
