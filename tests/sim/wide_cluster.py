"""Brokers that come and go for good, put aside what is cut off, and ask each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from sim.broker_cluster import BrokerCluster, FewPromises, Watch
from sim.broker_ledger import name_of
from sim.broker_node import BrokerNode
from sim.disk import FaultyDisk as RaftDisk
from sim.wide_ledger import WideLedger
from sim.world import Violation
from warren.cluster import member_effects as effects
from warren.cluster.raft.types import Stored
from warren.engine.salvaging import message_of
from warren.management.mirrors import position_of
from warren.management.peers import PeerAnswer
from warren.store.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sim.member_node import MemberNode
    from sim.wide_plan import Plan
    from warren.cluster.member_effects import ViewsChanged
    from warren.cluster.metadata import View
    from warren.management.peers import Question


class SimSalvage:
    """What a node has put aside; it is on a disk of its own, which fails at times."""

    def __init__(self, node: WideNode) -> None:
        self._node = node

    def keep_messages(self, name: str, lines: Iterable[bytes], note: Mapping[str, Any]) -> str:
        node = self._node
        if node.world.chance(0.1):
            raise OSError("nothing can be put aside")
        names = [name_of(bytes(message_of(line).body)) for line in lines]
        node.world.note(f"{node.name} puts aside {len(names)} of {note['queue']}: {name}")
        ledger = node.cluster.ledger
        ledger.salvaged.update((note["queue"], each) for each in names)
        ledger.counts["put aside"] += len(names)
        return name


class WideNode(BrokerNode):
    """See the module's text."""

    cluster: WideCluster

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        #: It is not there (yet, or any more), and nothing but an operator starts it.
        self.is_absent = False
        self.reads_on = True
        self.told_unclean: list[str] = []

    def start(self) -> None:
        if not self.is_absent:
            super().start()

    async def _stop(self) -> None:
        await super()._stop()
        # It may have taken longer than whoever was to start it again has waited.
        self.cluster.restart_later(self, 100, 1_500)

    def wipe(self) -> None:
        """As a new machine of the same name; a later life than any before."""
        self.platter = FaultyDisk(self.world.random.getrandbits(32))
        self.disk = RaftDisk(self.world, Stored())

    def _build(self) -> None:
        super()._build()
        self.engine.mirrors.salvage = SimSalvage(self)
        self.product.questions.answerer = self._answer
        self.told_unclean = []
        self.engine.listeners.append(self._on_event)
        if self.store.damages:
            self.cluster.ledger.counts["damaged"] += 1

    async def _answer(self, question: Question) -> PeerAnswer:
        """How far a replica is; nodes ask each other for nothing else here."""
        queue = self.engine.vhosts["/"].queues.get(question.path.split("/")[3])
        if queue is None:
            return PeerAnswer(404, b"{}")
        told = position_of(self.engine, queue)
        return PeerAnswer(200, json.dumps({"epoch": told.epoch, "last": told.last}).encode())

    def _on_event(self, event: str, details: dict[str, Any]) -> None:
        if event == "queue.promoted_unclean":
            self.told_unclean.append(details["name"])
        elif event == "queue.deleted":
            self.cluster.watch.deleted(self, details["name"])

    def _do(self, effect: effects.MemberEffect) -> None:
        self.told_unclean.clear()
        super()._do(effect)
        if isinstance(effect, effects.ViewsChanged):
            self.cluster.watch.views_told(self, effect, self.told_unclean)


class WideWatch(Watch):
    """As the other; and promotions that may lose something are told on every node."""

    cluster: WideCluster

    def __init__(self, cluster: WideCluster) -> None:
        super().__init__(cluster)
        self._unclean: set[tuple[str, int]] = set()
        #: queue -> when it was first seen to be gone
        self.deleted_us: dict[str, int] = {}

    def turn(self, node: BrokerNode) -> None:
        super().turn(node)
        for mirror in node.engine.mirrors.by_number.values():
            queue = mirror.queue
            if queue.single_active and mirror.log.acts:
                self._check_active(node, queue)

    def _check_active(self, node: BrokerNode, queue: Any) -> None:
        """One of the consumers at the master is given messages, and no other.

        What clients see tells less: what a master has sent to a node that was cut off comes to a
        consumer there when another, elsewhere, is the active one.
        """
        if (queue.active is None) is bool(queue.consumers):
            raise Violation(f"{queue.name} on {node.name} has {queue.active} of {queue.consumers}")
        for consumer in queue.consumers:
            if consumer.available and consumer is not queue.active:
                raise Violation(f"{queue.name} on {node.name} gives to one that is not active")

    def views_told(self, node: WideNode, effect: ViewsChanged, told: list[str]) -> None:
        for key, view in effect.views.items():
            if view is None or view.unclean != view.epoch:
                continue
            queue = node.product.queue_views.queue(int(key))
            if queue is None:
                continue
            if queue.name not in told:
                raise Violation(f"{node.name} says nothing of the loss of {queue.name}")
            if (key, view.epoch) not in self._unclean:
                self._unclean.add((key, view.epoch))
                self.cluster.ledger.promoted_unclean(queue.name)

    def newest_view(self, number: int) -> View | None:
        """That any node has heard of."""
        views = [view for (key, _), view in self._views.items() if int(key) == number]
        return max(views, key=lambda view: view.epoch, default=None)

    def deleted(self, node: WideNode, queue: str) -> None:
        now_us = self.cluster.world.now_us
        if self.deleted_us.setdefault(queue, now_us) == now_us:
            self.cluster.world.note(f"{node.name} has no {queue} any more")
        if queue in self.cluster.ledger.plans:
            raise Violation(f"{now_us} {node.name} has deleted {queue}")


class WidePromises(FewPromises):
    """A node that was given up while it was down may come back before that is agreed on."""

    cluster: WideCluster  # type: ignore[assignment]

    def refused(self, node: MemberNode, reason: str) -> None:
        wide = cast("WideNode", node)
        if wide.name not in self.cluster.given_up:
            super().refused(node, reason)
        wide.is_absent = True
        self.cluster.world.after(0, wide.crash)


class WideCluster(BrokerCluster):
    """Spares are not there at first."""

    nodes: dict[str, WideNode]  # type: ignore[assignment]
    node_type: type[MemberNode] = WideNode
    ledger: WideLedger
    watch: WideWatch

    def __init__(self, seed: int, plan: Plan, **limits: Any) -> None:
        super().__init__(seed, plan.founders, plan.spares, **limits)
        self.plan = plan
        self.promises = WidePromises(self)
        self.ledger = WideLedger(self.world, {it.name: it for it in plan.queues})
        self.ledger.disks_with = self.disks_with
        self.watch = WideWatch(self)
        #: Nodes that an operator wanted to be forgotten.
        self.given_up: set[str] = set()
        for node in list(self.nodes.values())[plan.founders :]:
            node.is_absent = True

    def disks_with(self, name: bytes) -> int:
        """How many disks have a message for sure, those of nodes that are down included."""
        wanted = name + b" "
        return sum(
            any(wanted in file.durable for file in node.platter._files.values())
            for node in self.nodes.values()
        )
