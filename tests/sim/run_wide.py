"""One schedule of brokers with limits, lifetimes, priorities, losses, damage, and nodes that come
and go: what may be missing in the end is what a rule has taken, and nothing else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from sim.broker_actors import Consumer, Declarer
from sim.broker_faults import set_policy
from sim.run import settings_for
from sim.run_broker import RECOVERY_MS, BrokerResult, Schedule
from sim.wide_actors import TxConsumer, TxPublisher, Visitor, WideDrain, WidePublisher
from sim.wide_cluster import WideCluster
from sim.wide_faults import WideNemesis, WideOperator
from sim.wide_members import Comings
from sim.wide_plan import Plan, QueuePlan, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.broker_node import BrokerNode
    from sim.world import World

#: Seeds of these schedules are none of the others'.
NAMESPACE = 1 << 40
EXPIRING = "ha.expiring"


class WideSchedule(Schedule):
    """From a seed."""

    cluster: WideCluster
    namespace = NAMESPACE
    nemesis_class = WideNemesis
    operator_class = WideOperator
    cluster_class = WideCluster

    def __init__(self, seed: int, seen: Callable[[World], None] | None = None) -> None:
        dice = self.dice = random.Random(self.namespace + seed)
        self.seed = seed
        plan = self.plan = self._make_plan(dice)
        self.trouble_ms = plan.trouble_ms
        limits = settings_for(dice)
        self.cluster = self.cluster_class(self.namespace + seed, plan, settings=limits)
        if seen is not None:
            seen(self.cluster.world)
        self.cluster.world.note(str(plan))
        self.queues = [it.name for it in plan.queues]
        self.nemesis = self.nemesis_class(self.cluster, dice.choice(plan.every_us), False)
        every_us = dice.choice((50_000, 200_000, 600_000))
        if plan.theme == "unclean":
            every_us = 1_000_000
        self.operator = self.operator_class(self.cluster, self.queues, every_us)
        self.comings = Comings(self.cluster, dice.choice((300_000, 800_000)))
        self.visitor: Visitor | None = None
        self.actors: list[Any] = []
        self.arguments = {it.name: it.arguments for it in plan.queues}

    def _make_plan(self, dice: random.Random) -> Plan:
        return make_plan(dice)

    def set_up(self) -> None:
        cluster, dice, plan = self.cluster, self.dice, self.plan
        cluster.start()
        cluster.found()
        early = dice.randint(0, len(self.queues)) if plan.theme != "floor" else 0
        self._declare(self.queues[:early])
        set_policy(cluster, dice.choice(self.operator.definitions()))
        self._declare(self.queues[early:])
        if plan.expires_ms:
            self._begin_expiring()
        cluster.ledger.floor = plan.floor
        for queue in plan.queues:
            self._add_clients(queue)
        if plan.theme == "members":
            self.comings.start()

    def _add_clients(self, plan: QueuePlan) -> None:
        cluster, dice, queue = self.cluster, self.dice, plan.name
        for number in range(dice.choice((1, 1, 2))):
            kind = TxPublisher if dice.random() < 0.2 else WidePublisher
            every_us, window = dice.choice((5_000, 20_000, 60_000)), dice.choice((1, 5, 50))
            self.add(kind(cluster, f"{queue}.p{number}", queue, every_us=every_us, window=window))
        consumers = dice.choice((0, 1, 1, 2)) + plan.is_single_active
        for number in range(consumers):
            taker = TxConsumer if dice.random() < 0.2 else Consumer
            gets = dice.random() < 0.25 and not plan.is_single_active
            self.add(
                taker(
                    cluster,
                    f"{queue}.c{number}",
                    queue,
                    prefetch=dice.choice((1, 3, 20)),
                    gets=gets,
                    # With priorities a newer one overtakes, also what was prefetched meanwhile.
                    is_alone=consumers == 1,
                )
            )

    # -- a queue that goes when nobody uses it

    def _begin_expiring(self) -> None:
        cluster, dice, expires_ms = self.cluster, self.dice, self.plan.expires_ms
        declarer = Declarer(cluster, [EXPIRING], {EXPIRING: {"x-expires": expires_ms}})
        began_us = cluster.world.now_us
        declarer.start()
        if not cluster.run_until(lambda: not declarer.queues, 20_000):
            self.fail(f"{EXPIRING} cannot be declared")
        declarer.stop()
        declarer.close()
        until_us = cluster.world.now_us + dice.choice((0, self.trouble_ms * 1000))
        every_us = dice.choice((40_000, expires_ms * 300))
        name = f"{EXPIRING}.v"
        self.visitor = Visitor(cluster, name, EXPIRING, every_us=every_us, until_us=until_us)
        self.visitor.used_us = began_us
        self.add(self.visitor)

    def _check_expiring(self) -> None:
        if self.visitor is None:
            return
        cluster, visitor = self.cluster, self.visitor
        nodes = self.present().values()
        limit_ms = self.plan.expires_ms + RECOVERY_MS

        def is_gone() -> bool:
            return all(EXPIRING not in node.engine.vhosts["/"].queues for node in nodes)

        if not cluster.run_until(is_gone, limit_ms):
            self.fail(f"{EXPIRING} does not expire")
        unused_us = cluster.watch.deleted_us[EXPIRING] - visitor.used_us
        if unused_us < self.plan.expires_ms * 1000 - 1000:
            self.fail(f"{EXPIRING} was gone {unused_us} us after it was used")
        cluster.ledger.counts["queues expired"] += 1

    # -- the end

    def make_peace(self) -> None:
        cluster = self.cluster
        self.comings.is_stopped = True
        cluster.ledger.floor = 1
        self.nemesis.stop()
        self.operator.stop()
        cluster.heal()
        if not cluster.run_until(self._is_decided, RECOVERY_MS):
            self.fail(f"nobody knows who is there: {self.comings.leaving}")
        super().make_peace()

    def _is_decided(self) -> bool:
        """Who is down for long is back, and who is to go is gone or stays."""
        absent = {name for name, node in self.cluster.nodes.items() if node.is_absent}
        unborn = {name for name in absent if not self.cluster.nodes[name].boot}
        return not self.comings.leaving and absent <= self.comings.forgotten | unborn

    def present(self) -> dict[str, BrokerNode]:
        return {name: self.cluster.nodes[name] for name in self.comings.present()}

    def reckon(self) -> None:
        super().reckon()
        self._check_expiring()

    def drain(self) -> list[Any]:
        cluster = self.cluster
        drains = [WideDrain(cluster, f"drain.{queue}", queue) for queue in self.queues]
        for drain in drains:
            drain.start()
        if not cluster.run_until(lambda: all(it.is_done for it in drains), RECOVERY_MS):
            self.fail(f"cannot be drained: {[it.queue for it in drains if not it.is_done]}")
        for drain in drains:
            cluster.ledger.drained(drain.queue, drain.left)
        return drains


def run_wide(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return WideSchedule(seed, seen).run()
