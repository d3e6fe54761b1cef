"""What the parts of a ring talk about: batches of operations, views and roles."""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec

#: No index, epoch, nonce or queue number is beyond this; larger ones are damage.
NUMBER_MAX = 2**53


class ProtocolError(ValueError):
    """A peer said what no correct peer can say. It has changed nothing."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Operations of one epoch that follow each other. What they say is the queue's business."""

    first: int
    last: int
    epoch: int
    data: bytes


class View(Protocol):
    """Who holds a queue, as the cluster has agreed (`cluster.metadata.View`)."""

    @property
    def epoch(self) -> int: ...
    @property
    def master(self) -> str | None: ...
    @property
    def in_sync(self) -> tuple[str, ...]:
        """Those that have every confirmed message, the oldest first."""

    @property
    def learners(self) -> tuple[str, ...]: ...
    @property
    def unclean(self) -> int:
        """The last epoch that began with a replica which may have lacked messages; 0 for none."""


class Role(enum.Enum):
    """What a replica is to its queue."""

    #: Not part of the view, or the queue has no master at present.
    NONE = "none"
    MASTER = "master"
    MIRROR = "mirror"
    LEARNER = "learner"


def ring_of(view: View) -> tuple[str, ...]:
    """The master, then its mirrors by age; what the last one says goes to the master."""
    if view.master is None:
        return ()
    return (view.master, *(node for node in view.in_sync if node != view.master))
