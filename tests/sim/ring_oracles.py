"""What must hold for mirrored queues at every moment, and of the whole history at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sim.ring_model import Entry

if TYPE_CHECKING:
    from sim.ring_cluster import RingCluster
    from sim.ring_queue import SimQueue
    from warren.cluster.metadata import View

Message = tuple[str, int]


class _Queue:
    """What is known of one queue from above."""

    def __init__(self) -> None:
        self.views: dict[int, View] = {}
        self.latest: View | None = None
        #: index -> (entry, epoch of the master that committed it)
        self.committed: dict[int, Entry] = {}
        self.committed_in: dict[int, int] = {}
        self.commit_max = 0
        self.commit_epoch = 0
        self.masters: dict[int, tuple[str, int]] = {}
        self.served: list[int] = []
        self.attempted: set[Message] = set()
        self.confirmed: dict[str, int] = {}
        #: Of every message: the flags of its deliveries.
        self.sent: dict[Message, list[bool]] = {}
        #: (consumer, publisher) -> the last that was consumed for the first time
        self.consumed: dict[tuple[str, str], int] = {}


class RingOracles:
    """Sees everything, also what is on the disks of nodes that are down."""

    def __init__(self, cluster: RingCluster) -> None:
        self.cluster = cluster
        self.queues = {name: _Queue() for name in cluster.queue_names}
        self.counts: Counter[str] = Counter()

    def fail(self, what: str) -> None:
        self.cluster.oracles.fail(what)

    # -- views and disks

    def opened(self, queue: SimQueue) -> None:
        """A replica begins with what its disk has."""

    def view(self, name: str, view: View) -> None:
        seen = self.queues[name]
        if seen.views.setdefault(view.epoch, view) != view:
            self.fail(f"{name} has two views in epoch {view.epoch}")
        if seen.latest is None or view.epoch > seen.latest.epoch:
            if seen.latest is not None and set(view.in_sync) - set(seen.latest.in_sync):
                self.counts["expanded"] += 1
            seen.latest = view
            self.counts["views"] += 1
            self._check_disks(name)

    def _check_disks(self, name: str) -> None:
        """Whoever counts as in sync has all that is committed, on its disk, and lacks nothing."""
        seen = self.queues[name]
        index = seen.commit_max
        if seen.latest is None or not index:
            return
        epoch = seen.committed[index][0]
        for member in seen.latest.in_sync:
            copy = self.cluster.nodes[member].ring_disk.copies[name]
            if copy.gap[0] < copy.gap[1]:
                self.fail(f"{member} is in sync in {name} but lacks messages on its disk")
            if copy.last < index or (copy.base < index and copy.lineage.epoch_at(index) != epoch):
                self.fail(
                    f"{name} is committed up to {index} but {member}, in sync, has not written it"
                )

    def adopted(self, queue: SimQueue) -> None:
        replica, seen = queue.replica, self.queues[queue.name]
        if not replica.is_master:
            return
        self.counts["masters"] += 1
        epoch, node = replica.epoch, queue.node
        if seen.masters.setdefault(epoch, (node.name, node.boot)) != (node.name, node.boot):
            self.fail(f"{queue.name} has two masters in epoch {epoch}")
        for index in range(queue.log.first_retained, seen.commit_max + 1):
            if seen.committed_in[index] < epoch and (
                index >= queue.log.last_index or queue.log.entry(index) != seen.committed[index]
            ):
                self.fail(f"{node.name}, master of {queue.name}, lacks the committed {index}")

    def serves(self, queue: SimQueue, epoch: int) -> None:
        self.counts["serves"] += 1

    # -- logs

    def truncated(self, queue: SimQueue, after: int) -> None:
        """Not what is committed; unless that was done without this node, in a later epoch.

        One that was held up may still act on an answer of an epoch in which it was not.
        """
        self.counts["truncated"] += 1
        seen, name = self.queues[queue.name], queue.node.name
        is_in_sync = seen.latest is not None and name in seen.latest.in_sync
        for index in range(max(after + 1, queue.log.first_retained), queue.log.last_index + 1):
            if seen.committed.get(index) == queue.log.entry(index) and (
                is_in_sync or seen.committed_in[index] <= queue.replica.epoch
            ):
                self.fail(f"{name} truncates the committed {index} of {queue.name}")

    def commits(self, queue: SimQueue, index: int) -> None:
        replica, seen = queue.replica, self.queues[queue.name]
        if index > queue.log.last_index:
            self.fail(f"{queue.node.name} commits {index} of {queue.name}, which it does not have")
        if not replica.is_master:
            if index > seen.commit_max:
                self.fail(f"{queue.node.name} applies {index} of {queue.name} uncommitted")
            return
        if replica.epoch < seen.commit_epoch and index > seen.commit_max:
            # A token that was late may still come, but says nothing that the next does not know.
            self.fail(f"{queue.node.name} commits in {replica.epoch}, after {seen.commit_epoch}")
        seen.commit_epoch = max(replica.epoch, seen.commit_epoch)
        for number in range(max(queue.log.first_retained, seen.commit_max + 1), index + 1):
            seen.committed[number] = queue.log.entry(number)
            seen.committed_in[number] = replica.epoch
        if index > seen.commit_max:
            seen.commit_max = index
            self._check_disks(queue.name)

    def applied(self, queue: SimQueue, index: int, entry: Entry) -> None:
        self.counts["applied"] += 1
        committed = self.queues[queue.name].committed.get(index)
        if committed != entry:
            self.fail(
                f"{queue.node.name} applies {entry} at {index} of {queue.name}, not {committed}"
            )

    def look(self, queue: SimQueue) -> None:
        replica = queue.replica
        if replica.commit_index > replica.last_index:
            self.fail(f"{queue.node.name} has committed more of {queue.name} than it has")

    # -- clients

    def attempted(self, name: str, key: str, sequence: int) -> None:
        self.queues[name].attempted.add((key, sequence))

    def confirmed(self, queue: SimQueue, key: str, sequence: int) -> None:
        confirmed = self.queues[queue.name].confirmed
        confirmed[key] = max(sequence, confirmed.get(key, 0))

    def sent(self, queue: SimQueue, index: int, message: Message, redelivered: bool) -> None:
        seen = self.queues[queue.name]
        self.counts["delivered"] += 1
        if message not in seen.attempted:
            self.fail(f"{queue.name} delivers {message}, which nobody has published")
        flags = seen.sent.setdefault(message, [])
        flags.append(redelivered)
        if flags.count(False) > 1:
            self.fail(f"{message} of {queue.name} comes again and does not say so")

    def consumed(
        self, name: str, consumer: str, key: str, sequence: int, redelivered: bool
    ) -> None:
        if redelivered:
            self.counts["redelivered"] += 1
            return
        last = self.queues[name].consumed
        if sequence <= last.get((consumer, key), 0):
            self.fail(f"{consumer} gets {key} {sequence} of {name} out of order")
        last[consumer, key] = sequence

    # -- the end

    def reckon(self) -> None:
        for name, seen in self.queues.items():
            for key, upto in seen.confirmed.items():
                for sequence in range(1, upto + 1):
                    if (key, sequence) not in seen.sent:
                        self.fail(f"{key} {sequence} of {name} was confirmed and is lost")
                self.counts["confirmed"] += upto
            self._check_equal(name, seen)

    def _check_equal(self, name: str, seen: _Queue) -> None:
        assert seen.latest is not None
        logs = [self.cluster.nodes[node].queues[name].log for node in seen.latest.in_sync]
        pictures = [log.state.picture() for log in logs]
        if any(picture != pictures[0] for picture in pictures):
            self.fail(f"the replicas of {name} differ: {pictures}")
        first = max(log.first_retained for log in logs)
        for index in range(first, seen.commit_max + 1):
            if any(log.entry(index) != seen.committed[index] for log in logs):
                self.fail(f"the logs of {name} differ at {index}")
