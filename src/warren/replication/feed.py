"""What a replica knows about one that it feeds: the next in the ring, or a learner."""

from __future__ import annotations

from collections import deque


class Feed:
    """Begins with a greeting that was answered and ends with the epoch or the next greeting."""

    __slots__ = (
        "began_anew",
        "chunks_in_flight",
        "cursor",
        "gap_upto",
        "in_flight",
        "in_flight_bytes",
        "is_copied",
        "is_full",
        "is_learner",
        "is_reading",
        "next_index",
        "node",
        "nonce",
        "persisted",
        "told_commit",
        "told_stable",
    )

    def __init__(
        self,
        node: str,
        nonce: int,
        next_index: int,
        gap: tuple[int, int],
        is_learner: bool,
        began_anew: bool,
    ) -> None:
        self.node = node
        #: Of the greeting; the session of a copy.
        self.nonce = nonce
        self.next_index = next_index
        self.is_learner = is_learner
        #: Its copy was empty when this began.
        self.began_anew = began_anew
        #: What the peer has on its disk, and whether that lacks nothing; told by learners.
        self.persisted = 0
        self.is_full = False
        #: Copied up to here of what is to be copied.
        self.cursor, self.gap_upto = gap
        self.is_copied = self.cursor >= self.gap_upto
        self.is_reading = False
        self.chunks_in_flight = 0
        self.told_stable = -1
        self.told_commit = -1
        #: Of a learner: (last index, bytes) of what was sent and is not on its disk.
        self.in_flight: deque[tuple[int, int]] = deque()
        self.in_flight_bytes = 0

    def sent(self, last: int, size: int) -> None:
        self.next_index = last + 1
        if self.is_learner:
            self.in_flight.append((last, size))
            self.in_flight_bytes += size

    def has(self, persisted: int) -> None:
        """A learner's disk is so far."""
        self.persisted = persisted
        while self.in_flight and self.in_flight[0][0] <= persisted:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
