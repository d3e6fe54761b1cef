"""Times and bounds of a member; the same on all nodes of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.cluster.raft.settings import Settings
from warren.cluster.sessions import WINDOW


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The defaults are those of docs/internals/cluster.md."""

    raft: Settings = field(default_factory=Settings)
    #: Proposals on their way; the others wait their turn.
    in_flight: int = WINDOW // 2
    #: Proposals that wait, before new ones are refused.
    waiting: int = 100_000
    #: A proposal that was not seen applied goes to the leader again, each time a bit later.
    retry_ms: int = 500
    retry_max_ms: int = 2_000
    #: A change that has waited for so long, and there is no majority, is given up.
    give_up_ms: int = 20_000
    #: A node that was silent for so long is down.
    silent_ms: int = 2_000
    #: Without a leader for so long, the node has no quorum.
    quorum_ms: int = 3_000
    #: A gap like this in its own time means that the node was suspended.
    suspended_ms: int = 3_000
    #: Others' silence does not count while this node itself was held up for longer.
    held_up_ms: int = 300
    #: How often a member looks after things that no message reminds it of.
    tick_ms: int = 100
    #: How often nodes tell each other how far they have applied, when nothing changes.
    applied_ms: int = 300
    #: How often a node that is no member asks to be one, and how soon a failed read is repeated.
    join_ms: int = 500
    read_ms: int = 50

    def __post_init__(self) -> None:
        if not 0 < self.in_flight <= WINDOW:
            raise ValueError(f"in_flight must be 1 to {WINDOW}")
