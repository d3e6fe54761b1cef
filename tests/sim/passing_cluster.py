"""Brokers with queues that need not outlive them, and what of it may be gone, and when.

A transient message, or queue, ends when all replicas that are in sync were down at once; as long as
one of them has been there all the time it stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.broker_cluster import BrokerCluster, Watch
from sim.broker_ledger import Ledger, Publish, name_of
from sim.broker_node import BrokerNode

if TYPE_CHECKING:
    from warren.cluster.member_effects import ViewsChanged

#: A replica that is in sync: the node, its life, and how often it was out of sync before.
Stay = tuple[str, int, int]


class PassingNode(BrokerNode):
    """Tells when a queue is gone."""

    cluster: PassingCluster

    def _build(self) -> None:
        super()._build()
        self.engine.listeners.append(self._on_event)

    def _on_event(self, event: str, details: dict[str, Any]) -> None:
        if event == "queue.deleted":
            self.cluster.watch.deleted(details["name"])


class PassingWatch(Watch):
    """As the other; and who has had every queue for how long."""

    cluster: PassingCluster

    def __init__(self, cluster: PassingCluster) -> None:
        super().__init__(cluster)
        #: queue -> the newest view of it
        self._newest: dict[str, Any] = {}
        #: (queue, node) -> how often it was out of sync
        self._times_out: dict[tuple[str, str], int] = {}
        #: node -> the newest life of it that is agreed on
        self._registered: dict[str, int] = {}

    def views_changed(self, node: BrokerNode, effect: ViewsChanged) -> None:
        super().views_changed(node, effect)
        for name, known in node.member.nodes.items():
            self._registered[name] = max(known.incarnation, self._registered.get(name, 0))
        for key, view in effect.views.items():
            queue = node.product.queue_views.queue(int(key))
            if queue is None or view is None:
                continue
            known = self._newest.get(queue.name)
            if known is None or view.epoch > known.epoch:
                self._newest[queue.name] = view
                # Without a master those who are in sync are down, or taken for it.
                there = view.in_sync if view.master is not None else ()
                for name in set(self.cluster.nodes) - set(there):
                    at = (queue.name, name)
                    self._times_out[at] = self._times_out.get(at, 0) + 1

    def stays(self, queue: str) -> set[Stay]:
        """Who is in sync with a queue, by the newest view that anybody knows.

        Who starts has no part in a view before it is registered, so nothing is confirmed by that
        life: what a client is told then is the word of an earlier one, which a gateway that slept
        passes on late.
        """
        view = self._newest.get(queue)
        if view is None or view.master is None:
            return set()
        nodes = [self.cluster.nodes[name] for name in view.in_sync]
        return {
            (node.name, node.boot, self._times_out.get((queue, node.name), 0))
            for node in nodes
            if node.is_up and self._registered.get(node.name) == node.boot
        }

    def is_going(self, queue: str) -> bool:
        """Whether all were down at once, and who came first has asked for the end of the queue."""
        there = [node.engine.vhosts["/"].queues.get(queue) for node in self.cluster.ready]
        return any(it is not None and it.dropping is not None for it in there)

    def deleted(self, queue: str) -> None:
        """A node has no such queue any more."""
        ledger = self.cluster.ledger
        if queue not in ledger.gone:
            self.cluster.world.note(f"{queue} is gone")
            ledger.queue_gone(queue)


class PassingLedger(Ledger):
    """As the other; what need not outlive its replicas is missed while one of them is there."""

    def __init__(self, cluster: PassingCluster) -> None:
        super().__init__(cluster.world)
        self._cluster = cluster
        self.transient: set[str] = set()
        #: Queues that are gone.
        self.gone: set[str] = set()
        #: Queues some of whose consumers never acknowledge.
        self.auto_acked: set[str] = set()
        self._stays: dict[bytes, set[Stay]] = {}

    def answered(self, publish: Publish, state: str) -> None:
        was_sent = publish.state == "sent"
        super().answered(publish, state)
        watch = self._cluster.watch
        if state == "confirmed" and was_sent:
            self._stays[publish.name] = (
                set() if watch.is_going(publish.queue) else watch.stays(publish.queue)
            )

    def queue_gone(self, queue: str) -> None:
        self.gone.add(queue)
        self.counts["queues gone"] += 1
        if queue not in self.transient:
            self.fail(f"{queue} is gone")
        self._check(queue, set())

    def check_lost(self, left: dict[str, set[bytes]]) -> None:
        for queue, names in left.items():
            if queue not in self.auto_acked and queue not in self.gone:
                self._check(queue, names)

    def _check(self, queue: str, left: set[bytes]) -> None:
        there = self._cluster.watch.stays(queue)
        for name, it in self.published.items():
            if it.queue != queue or it.state != "confirmed" or it.is_settled or name in left:
                continue
            if it.persistent and queue not in self.transient:
                self.fail(f"{name!r} was confirmed and is lost")
            if kept := self._stays[name] & there:
                self.fail(f"{name_of(it.body)!r} is gone, and {sorted(kept)} had it all the time")
            self.counts["passed"] += 1


class PassingCluster(BrokerCluster):
    """See the module's text."""

    nodes: dict[str, PassingNode]  # type: ignore[assignment]
    node_type = PassingNode
    ledger: PassingLedger
    watch: PassingWatch

    def __init__(self, seed: int, founders: int, spares: int = 0, **limits: Any) -> None:
        super().__init__(seed, founders, spares, **limits)
        self.watch = PassingWatch(self)
        self.ledger = PassingLedger(self)
