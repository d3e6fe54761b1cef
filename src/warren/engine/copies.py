"""The pace of copies: how fast new mirrors are filled, so that live traffic does not notice.

A copy is read and sent in small pieces, one after the other among all copies of a node, and only
so many bytes a slice of time: more while nobody publishes to this node's queues. With
`mirroring_sync_max_throughput` no more than that a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.mirror import Mirror
    from warren.replication.effects import ReadChunk

#: So many bytes go out a slice, in all copies together.
SLICE_MS = 5
SLICE_BYTES = 192 * 1024
#: ... and so many when nothing has been published for a while.
IDLE_SLICE_BYTES = 2 * 1024 * 1024
IDLE_MS = 200


class Copies:
    """See the module's text."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wanted: deque[tuple[Mirror, ReadChunk]] = deque()
        self._is_due = False
        #: When the next slice may begin.
        self._next_ms = 0
        #: The newest publish in the node's log, and when it was seen to be another one.
        self._newest = 0
        self._busy_ms = 0
        self._bytes_per_s_max = engine.settings.sync_bytes_per_s_max

    def want(self, mirror: Mirror) -> Callable[[ReadChunk], None]:
        """What a mirror calls to have a piece of its copy read and sent."""

        def wanted(effect: ReadChunk) -> None:
            self._wanted.append((mirror, effect))
            self._arm()

        return wanted

    def _arm(self) -> None:
        if not self._is_due:
            self._is_due = True
            # Not in the middle of what wants it.
            due_ms = max(self._next_ms, self._engine.clock.now_ms() + 1)
            self._engine.timers.at(due_ms, self._go_on)

    def _go_on(self, now_ms: int) -> None:
        # It stays due until the end: a piece that is sent has the next one wanted at once, and that
        # one is to wait until this one is paid for.
        self._next_ms = now_ms + SLICE_MS
        try:
            self._send(now_ms)
        finally:
            self._is_due = False
        if self._wanted:
            self._arm()

    def _send(self, now_ms: int) -> None:
        limit = self._bytes_per_s_max
        room, sent = self._room(now_ms), 0
        while self._wanted and sent < room:
            mirror, effect = self._wanted.popleft()
            if mirror.replica is not None:
                sent += mirror.chunk_read(
                    effect.learner, effect.session, effect.after, effect.upto, effect.bytes_max
                )
            if limit:
                # What was sent is paid for in time.
                self._next_ms = max(self._next_ms, now_ms + sent * 1000 // limit)
                break

    def _room(self, now_ms: int) -> int:
        """How many bytes may go out now."""
        journal = self._engine.journal
        newest = 0 if journal is None else journal.commit_mark
        if newest != self._newest:
            self._newest, self._busy_ms = newest, now_ms
        return SLICE_BYTES if now_ms < self._busy_ms + IDLE_MS else IDLE_SLICE_BYTES
