"""Reads that are as good as asking the leader: ReadIndex, on the leader's and the asker's side.

A leader notes its commit index for a read and asks a majority, by a numbered round of heartbeats
sent after the read came, whether it still leads. The read is good from that index on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from warren.cluster.raft.messages import ReadContext


class WaitingRead(NamedTuple):
    """A read at the leader; `origin` None means the leader's own."""

    origin: str | None
    context: ReadContext
    commit_index: int
    round: int


class LeaderReads:
    """Reads that wait for a first commit of the leader's term, or for a majority's word."""

    def __init__(self) -> None:
        #: The number of the last round that was sent.
        self.round = 0
        self._early: list[tuple[str | None, ReadContext]] = []
        self._waiting: deque[WaitingRead] = deque()

    def __len__(self) -> int:
        return len(self._early) + len(self._waiting)

    @property
    def next_round_wanted(self) -> bool:
        """Whether a read waits for a round that has not been sent."""
        return bool(self._waiting) and self._waiting[-1].round > self.round

    @property
    def round_is_open(self) -> bool:
        """Whether a read waits for a round that is on its way."""
        return bool(self._waiting) and self._waiting[0].round <= self.round

    def add_early(self, origin: str | None, context: ReadContext) -> None:
        self._early.append((origin, context))

    def add(self, origin: str | None, context: ReadContext, index: int) -> None:
        self._waiting.append(WaitingRead(origin, context, index, self.round + 1))

    def take_early(self) -> list[tuple[str | None, ReadContext]]:
        early, self._early = self._early, []
        return early

    def confirmed(self, round_number: int) -> list[WaitingRead]:
        """A majority has answered this round: the reads that were waiting for it."""
        ready = []
        while self._waiting and self._waiting[0].round <= round_number:
            ready.append(self._waiting.popleft())
        return ready

    def own_contexts(self) -> list[ReadContext]:
        """The leader's own reads that are still open, for when it leads no more."""
        own = [context for origin, context in self._early if origin is None]
        return own + [read.context for read in self._waiting if read.origin is None]


class OwnReads:
    """This node's reads: those asked elsewhere, and those that wait to be applied."""

    def __init__(self, boot: int) -> None:
        self._boot = boot
        self._count = 0
        #: context -> when to give up
        self._asked: dict[ReadContext, int] = {}
        self._unapplied: list[tuple[int, ReadContext]] = []

    def __len__(self) -> int:
        return len(self._asked) + len(self._unapplied)

    def new_context(self) -> ReadContext:
        self._count += 1
        return (self._boot, self._count)

    def asked(self, context: ReadContext, until_ms: int) -> None:
        self._asked[context] = until_ms

    def answered(self, context: ReadContext) -> bool:
        """Whether this answer was still waited for."""
        return self._asked.pop(context, None) is not None

    def wait_for(self, index: int, context: ReadContext) -> None:
        self._unapplied.append((index, context))

    def applied(self, index: int) -> list[tuple[int, ReadContext]]:
        """All is applied up to here: the reads that can be answered."""
        if not self._unapplied:
            return []
        ready = [read for read in self._unapplied if read[0] <= index]
        if ready:
            self._unapplied = [read for read in self._unapplied if read[0] > index]
        return ready

    def expired(self, now_ms: int) -> list[ReadContext]:
        """Reads that were asked and not answered in time; they are forgotten."""
        if not self._asked:
            return []
        late = [context for context, until in self._asked.items() if until <= now_ms]
        for context in late:
            del self._asked[context]
        return late
