"""Times and bounds of a replica."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ReplicaSettings:
    """Policies may change those that are named after a key of theirs, of a running replica too."""

    #: With fewer replicas in sync nothing is confirmed (`ha-min-in-sync`).
    min_in_sync: int = 1
    #: Learners get a copy without being told (`ha-sync-mode`).
    sync_automatically: bool = True
    #: A mirror that has not moved for so long is out of sync (`ha-max-lag`).
    max_lag_ms: int = 5_000
    #: What may be written and not committed, before publishers are held back.
    window_bytes: int = 16 << 20
    #: As `max_lag_ms`, for a mirror whose link is broken.
    down_lag_ms: int = 1_500
    #: A commit that nothing else carries goes alone after this time.
    commit_ms: int = 5
    #: A greeting that nobody has answered is repeated, later every time.
    hello_ms: int = 50
    hello_max_ms: int = 1_000
    #: How often a mirror tells the master how far it is while something is not committed.
    report_ms: int = 500
    #: A proposal whose outcome has not been seen is made again.
    propose_ms: int = 2_000
    #: Operations in one frame, unless a single one is larger.
    batch_bytes: int = 256 << 10
    #: What a learner may be sent ahead of what it has on its disk.
    learner_window_bytes: int = 1 << 20
    #: Pieces of a copy: their size, and how many may be on their way.
    chunk_bytes: int = 64 << 10
    chunks_in_flight: int = 4
    #: What learners are given (`ha-sync-strategy`): `incremental`, what they miss; `full`, all,
    #: even if they have most of it; `event`, what the log still has, and never a copy.
    sync_strategy: str = "incremental"
    #: Publishers are told when the master has it on its own disk (`ha-replication` async), as long
    #: as no more operations than this, and none older than this, are not on all the others'
    #: (`ha-max-lag-messages`, `ha-max-lag-ms`): what a failover may take back.
    confirms_early: bool = False
    lag_operations_max: int = 10_000
    lag_ms_max: int = 1_000
    #: False outside of the hours of `ha-replication-window`: the master keeps nobody in sync and
    #: feeds no learner, and learners ask for nothing.
    feeds_mirrors: bool = True
