"""What every replica does whatever its role: adopt views, and keep what it knows of its own log.

A replica is one class, written part by part: `Core`, then `Feeding` (the way down the ring and to
learners), `Mirroring` (the way from upstream), `Mastering`, and `Replica`, which has the inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.replication import effects, frames
from warren.replication.types import Role, ring_of

if TYPE_CHECKING:
    from warren.replication.log_port import LogPort
    from warren.replication.settings import ReplicaSettings
    from warren.replication.types import View

NEVER_MS = 1 << 60


class Core:
    """State and helpers that all parts share."""

    def __init__(
        self, node: str, queue: int, log: LogPort, settings: ReplicaSettings, now_ms: int
    ) -> None:
        """`log` is as it was found on the disk; nothing of it waits to be written."""
        self.node = node
        self.queue = queue
        self.log = log
        self.settings = settings
        #: The view that the replica acts in; None before the first, and while it changes.
        self.adopted: View | None = None
        self.role = Role.NONE
        self.ring: tuple[str, ...] = ()
        self.commit_index = log.applied_index
        self._effects: list[effects.Effect] = []
        self._now_ms = now_ms
        #: No epoch up to this one is adopted any more.
        self._promised = log.max_epoch
        self._next: View | None = None
        #: This process has been the master without interruption.
        self._holds_office = False
        #: The log is known to be a beginning of the master's.
        self._is_matched = False
        #: What is on the disk of the log as it is now; counts for others once it is matched.
        self._persisted = log.last_index
        self._is_full_on_disk = log.gap[0] >= log.gap[1]
        self._generation = log.generation
        #: All mirrors before this one in the ring have this on their disks.
        self._stable_above = 0

    # -- looking

    @property
    def epoch(self) -> int:
        """The epoch that the replica acts in, or 0."""
        return self.adopted.epoch if self.adopted is not None else 0

    @property
    def is_master(self) -> bool:
        return self.role is Role.MASTER

    @property
    def is_matched(self) -> bool:
        """Whether the log is known to be a beginning of the master's."""
        return self._is_matched

    @property
    def last_index(self) -> int:
        return self.log.last_index

    @property
    def persisted_index(self) -> int:
        """What others may rely on."""
        return min(self._persisted, self.log.last_index) if self._is_matched else 0

    @property
    def stable_index(self) -> int:
        """What this replica and all mirrors before it in the ring have on their disks.

        The master leaves itself out, so that mirrors need not hear of its disk: it looks there
        itself before it commits.
        """
        if self.role is Role.MASTER:
            return self.log.last_index
        return min(self._stable_above, self.persisted_index)

    # -- views

    def _may_adopt(self, view: View, registered: bool) -> bool:
        """Never twice, and never one that began before this life of the node.

        What was forwarded and not written is lost in a crash: who acted in an epoch before could
        not but contradict itself.
        """
        return registered and view.epoch > self._promised

    def view(self, view: View, registered: bool) -> None:
        """The cluster has agreed on a view.

        `registered`: the nodes' table of that same moment has this node in its present incarnation.
        """
        if not self._may_adopt(view, registered):
            return
        self._promised = view.epoch
        self._next = view
        if self._holds_office and view.master != self.node:
            self._holds_office = False
            self._effects.append(effects.Deposed(view.epoch))
        self._stand_back()
        self._effects.append(effects.AdoptEpoch(view.epoch))

    def epoch_persisted(self, epoch: int) -> None:
        """The epoch of an `AdoptEpoch` is on the disk."""
        view = self._next
        if view is None or view.epoch != epoch:
            return
        self._next = None
        self.adopted = view
        self.ring = ring_of(view)
        if view.master == self.node:
            self.role = Role.MASTER
        elif view.master is None:
            self.role = Role.NONE
        elif self.node in view.in_sync:
            self.role = Role.MIRROR
        elif self.node in view.learners:
            self.role = Role.LEARNER
        self._entered()

    def _stand_back(self) -> None:
        """Say and hear nothing until the next epoch is on the disk."""
        self.adopted = None
        self.role = Role.NONE
        self.ring = ()
        self._is_matched = False
        self._stable_above = 0

    def _entered(self) -> None:
        """A new epoch has begun for this replica."""
        raise NotImplementedError

    # -- helpers

    @property
    def _upstream(self) -> str | None:
        if self.role is Role.MIRROR:
            return self.ring[self.ring.index(self.node) - 1]
        if self.role is Role.LEARNER:
            return self.ring[0]
        return None

    @property
    def _downstream(self) -> str | None:
        """The next mirror; None at the end of the ring."""
        if self.role not in (Role.MASTER, Role.MIRROR):
            return None
        place = self.ring.index(self.node) + 1
        return self.ring[place] if place < len(self.ring) else None

    def _send(self, to: str, frame: frames.Frame) -> None:
        self._effects.append(effects.Send(to, frames.encode(self.queue, self.epoch, frame)))

    def _set_commit(self, index: int) -> bool:
        if index <= self.commit_index:
            return False
        self.commit_index = index
        self._effects.append(effects.Commit(index))
        return True
