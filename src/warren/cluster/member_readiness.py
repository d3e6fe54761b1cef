"""Whether a node may serve clients: it is in touch, has caught up, and counts as alive.

Doubt comes with a start, a suspension, a time without a leader, and with being declared down. It
goes when a read, begun after that, has found everything that was committed applied here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.cluster.member_settings import MemberSettings
    from warren.cluster.raft.messages import ReadContext
    from warren.cluster.raft.raft import Raft

_NEVER_MS = -(1 << 60)


class Readiness:
    """Kept by a member, which tells it of everything that may raise a doubt."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.is_checked = False
        self._read: ReadContext | None = None
        self._read_again_ms = _NEVER_MS
        #: When a leader was last in touch, or this node led with a majority.
        self._quorum_at_ms = _NEVER_MS

    def in_touch(self, at_ms: int) -> None:
        self._quorum_at_ms = max(self._quorum_at_ms, at_ms)

    def has_quorum(self, now_ms: int) -> bool:
        return now_ms - self._quorum_at_ms <= self._settings.quorum_ms

    def doubt(self) -> None:
        """Nothing that was known of the others before can be relied on."""
        self.is_checked = False
        self._read = None
        self._read_again_ms = _NEVER_MS

    def check(self, raft: Raft, now_ms: int) -> None:
        """Begin a read, if one is needed and none is under way."""
        if self.is_checked or self._read is not None or now_ms < self._read_again_ms:
            return
        read = raft.read_index()
        if isinstance(read, tuple):
            self._read = read
        else:
            self._read_again_ms = now_ms + self._settings.read_ms

    def read_ready(self, context: ReadContext) -> None:
        if context == self._read:
            self._read = None
            self.is_checked = True

    def read_failed(self, context: ReadContext, now_ms: int) -> None:
        if context == self._read:
            self._read = None
            self._read_again_ms = now_ms + self._settings.read_ms
