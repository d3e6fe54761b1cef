"""Times and bounds of a Raft; the same on all nodes of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from warren.cluster.raft.types import APPEND_ENTRIES_MAX, CHUNK_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Settings:
    """The defaults find a new leader within a second of the old one's death."""

    heartbeat_ms: int = 60
    election_min_ms: int = 300
    election_max_ms: int = 600
    #: An append is cut after so many bytes; it holds one entry at least.
    append_bytes: int = 256 << 10
    append_entries: int = APPEND_ENTRIES_MAX
    #: Appends on their way to one peer.
    appends_in_flight: int = 32
    #: What a leader takes on before the first of it is committed.
    uncommitted_bytes: int = 32 << 20
    uncommitted_entries: int = 64 << 10
    reads_waiting: int = 10_000
    apply_entries: int = 256
    chunk_bytes: int = 256 << 10
    #: A snapshot is due after so much was applied.
    snapshot_entries: int = 10_000
    snapshot_bytes: int = 32 << 20
    #: So many entries before the snapshot stay, for peers that are a little behind.
    entries_kept: int = 1_000
    #: A learner this close to the leader's end may become a voter.
    promotion_lag: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ms * 2 <= self.election_min_ms <= self.election_max_ms:
            raise ValueError("an election must wait for at least two heartbeats")
        if not 0 < self.append_entries <= APPEND_ENTRIES_MAX:
            raise ValueError(f"append_entries must be 1 to {APPEND_ENTRIES_MAX}")
        if not 0 < self.chunk_bytes <= CHUNK_BYTES_MAX:
            raise ValueError(f"chunk_bytes must be 1 to {CHUNK_BYTES_MAX}")
        if min(self.appends_in_flight, self.apply_entries, self.snapshot_entries) < 1:
            raise ValueError("a bound below one lets nothing through")
