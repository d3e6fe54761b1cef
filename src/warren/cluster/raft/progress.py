"""What a leader knows of one peer's log, and how it feeds it."""

from __future__ import annotations

import enum
import zlib
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.cluster.raft.types import Snapshot


class Mode(enum.Enum):
    """How a peer is fed."""

    #: Where the logs part is unknown: one append at a time until one is taken.
    PROBE = "probe"
    #: Appends follow each other without waiting for replies.
    STREAM = "stream"
    #: The entries it needs are gone: it gets a snapshot, chunk by chunk.
    SNAPSHOT = "snapshot"


class Progress:
    """One peer, seen from the leader."""

    def __init__(self, next_index: int, now_ms: int) -> None:
        self.mode = Mode.PROBE
        #: The peer has synced the leader's log up to here.
        self.match_index = 0
        self.next_index = next_index
        #: The highest commit index that was sent.
        self.commit_sent = 0
        self.probe_sent = False
        #: The last index of every append on its way.
        self.in_flight: deque[int] = deque()
        self.contact_ms = now_ms
        #: The last read round that the peer answered.
        self.round = 0
        self.snapshot: Snapshot | None = None
        self.checksum = 0
        self.chunk_offset = 0
        self.chunk_sent_ms = 0

    def start_snapshot(self, snapshot: Snapshot) -> None:
        self.mode = Mode.SNAPSHOT
        self.snapshot = snapshot
        self.checksum = zlib.crc32(snapshot.data)
        self.chunk_offset = 0
        self.in_flight.clear()

    def probe_from(self, next_index: int) -> None:
        """Look from here where the logs part."""
        self.mode = Mode.PROBE
        self.next_index = next_index
        self.probe_sent = False
        self.snapshot = None
        self.in_flight.clear()

    def matched(self, index: int) -> bool:
        """The peer has synced up to `index`; whether that is news."""
        while self.in_flight and self.in_flight[0] <= index:
            self.in_flight.popleft()
        is_news = index > self.match_index
        self.match_index = max(self.match_index, index)
        if self.mode is Mode.SNAPSHOT:
            if self.snapshot is not None and index >= self.snapshot.index:
                self.probe_from(index + 1)
                self.mode = Mode.STREAM
        elif self.mode is Mode.PROBE and index + 1 >= self.next_index:
            self.mode = Mode.STREAM
        self.next_index = max(self.next_index, self.match_index + 1)
        return is_news

    def refused(self, index: int, fallback: int) -> bool:
        """The peer's log has no such entry at `index`; whether that is news and not an old reply.

        `fallback` is the last index where the logs may still agree.
        """
        if index <= self.match_index or self.mode is Mode.SNAPSHOT:
            return False
        if self.mode is Mode.STREAM:
            self.probe_from(self.match_index + 1)
            return True
        if index != self.next_index - 1:
            return False
        self.probe_from(max(self.match_index, min(index - 1, fallback)) + 1)
        return True
