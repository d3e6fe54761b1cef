"""What is on the disk, what is on its way there, and what must not be said before it is.

Changes gather until the owner takes the effects; then they leave as one `Persist` with the next
token. A message is held until the token it depends on has come back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from warren.cluster.raft.effects import Persist, Send

if TYPE_CHECKING:
    from warren.cluster.raft.log import RaftLog
    from warren.cluster.raft.types import HardState

#: More messages than this do not wait for a disk: a message may be lost at any time, memory not.
HELD_MAX = 10_000


class Durability:
    """Counts tokens; knows the log only by its indexes."""

    def __init__(self, stable_index: int) -> None:
        #: The log up to here is on the disk as it is in memory.
        self.stable_index = stable_index
        self.done_token = 0
        self._issued_token = 0
        self._term_token = 0
        self._term_changed = False
        self._snapshot_changed = False
        self._changed_from: int | None = None
        #: [token, the last entry of the present log that it brings to the disk]
        self._on_the_way: deque[list[int]] = deque()
        self._held: list[tuple[int, Send]] = []

    @property
    def is_changed(self) -> bool:
        return self._term_changed or self._snapshot_changed or self._changed_from is not None

    @property
    def latest_token(self) -> int:
        """When this token is back, all that is in memory now is on the disk."""
        return self._issued_token + 1 if self.is_changed else self._issued_token

    @property
    def term_token(self) -> int:
        """When this token is back, term and vote are on the disk."""
        return self._issued_token + 1 if self._term_changed else self._term_token

    def term_changed(self) -> None:
        self._term_changed = True

    def appended(self, first_index: int) -> None:
        """Entries from here on are new."""
        if self._changed_from is None or first_index < self._changed_from:
            self._changed_from = first_index

    def truncated(self, from_index: int) -> None:
        """Entries from here on are others than before.

        A write under way may still bring the old ones to the disk; it must not count for the new
        ones at the same indexes.
        """
        self.stable_index = min(self.stable_index, from_index - 1)
        for write in self._on_the_way:
            write[1] = min(write[1], from_index - 1)
        self.appended(from_index)

    def snapshot_changed(self) -> None:
        """The snapshot is new, so the log's beginning is; both are to be written whole."""
        self._snapshot_changed = True

    def hold(self, token: int, send: Send) -> Send | None:
        """Keep a message until a token is back; given back at once if it is."""
        if token <= self.done_token:
            return send
        if len(self._held) < HELD_MAX:
            self._held.append((token, send))
        return None

    def take(self, hard_state: HardState, log: RaftLog) -> Persist | None:
        """All changes since the last time, as one thing to write."""
        if not self.is_changed:
            return None
        self._issued_token += 1
        if self._term_changed:
            self._term_token = self._issued_token
        whole = self._snapshot_changed
        first = self._changed_from if self._changed_from is not None else log.last_index + 1
        first = log.base_index + 1 if whole else max(first, log.base_index + 1)
        self._on_the_way.append([self._issued_token, log.last_index])
        self._term_changed = self._snapshot_changed = False
        self._changed_from = None
        return Persist(
            self._issued_token,
            hard_state,
            first,
            log.entries_from(first),
            log.snapshot if whole else None,
            log.base_index if whole else 0,
            log.base_term if whole else 0,
        )

    def persisted(self, token: int) -> list[Send]:
        """A token is back, and all before it; the messages that waited for them."""
        if not self.done_token <= token <= self._issued_token:
            raise ValueError(f"token {token} was not given out")
        self.done_token = token
        while self._on_the_way and self._on_the_way[0][0] <= token:
            self.stable_index = max(self.stable_index, self._on_the_way.popleft()[1])
        released = [send for waits_for, send in self._held if waits_for <= token]
        self._held = [held for held in self._held if held[0] > token]
        return released
