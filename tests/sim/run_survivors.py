"""One schedule in which half of the nodes or more are lost for good, and one goes on by itself.

An operator takes the others out of its log (`forget_cluster_node --offline`) and starts it; it
takes them out of the table of nodes, and fresh machines of their names join. The node that is
trusted has every queue in full, as an operator sees it, and the policy wants all of them there: so
nothing that was confirmed may be missing in the end. What the agreement has promised before, it
promised with those that are lost: oracles of Raft and of views begin anew with the survivor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.broker_faults import BrokerNemesis
from sim.oracles import Oracles
from sim.run_broker import RECOVERY_MS
from sim.run_wide import WideSchedule
from sim.wide_cluster import WideCluster, WideNode, WidePromises
from sim.wide_plan import Plan, QueuePlan
from warren.cluster.member_effects import Why
from warren.cluster.survivors import without
from warren.node.agreement import ProposalError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from sim.run_broker import BrokerResult
    from sim.world import World

#: How often the operator looks for a node that can be trusted, and for how long.
LOOK_MS, LOOKS_MAX = 300, 60
FORGET_MS = 5_000


class SurvivorCluster(WideCluster):
    """Its oracles can begin anew."""

    def begin_anew(self) -> None:
        """What was agreed on before was so for others, too."""
        self.oracles = Oracles(self)
        self.promises = WidePromises(self)
        self.watch._views.clear()
        self.watch._masters.clear()
        self.watch._unclean.clear()


class SurvivorSchedule(WideSchedule):
    """From a seed."""

    namespace = 1 << 44
    nemesis_class = BrokerNemesis  # type: ignore[assignment]
    cluster_class = SurvivorCluster
    cluster: SurvivorCluster

    def _make_plan(self, dice: random.Random) -> Plan:
        names = [f"ha.{number}" for number in range(1, dice.choice((2, 3, 4)))]
        queues = tuple(QueuePlan(name, priority_max=dice.choice((0, 0, 2))) for name in names)
        return Plan("plain", founders=dice.choice((2, 3, 3, 4)), spares=0, queues=queues)

    # -- the loss

    def make_peace(self) -> None:
        # A queue that a policy wants on one node only goes with that node.
        self.nemesis.stop()
        self.operator.stop()
        self.cluster.heal()
        self.settle_policy()
        self._trouble_some()
        survivor = self._trusted()
        self._lose_all_but(survivor)
        self._go_on_with(survivor)
        super().make_peace()

    def _trouble_some(self) -> None:
        """Nodes come and go until the moment when the operator looks."""
        cluster, dice = self.cluster, self.dice
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            node = dice.choice(list(cluster.nodes.values()))
            node.crash()
            cluster.restart_later(node)
            cluster.run_ms(dice.randint(0, 2_500))

    def _trusted(self) -> WideNode:
        """A node that has all queues in full, by the newest view that anybody has heard of."""
        for look in range(LOOKS_MAX):
            nodes = list(self.cluster.nodes.values())
            self.dice.shuffle(nodes)
            for node in nodes:
                if node.is_up and self._is_full(node):
                    return node
            if look == LOOKS_MAX // 3:
                # Some copies were cancelled.
                self.cluster.heal()
                self.operator.sync_all()
            self.cluster.run_ms(LOOK_MS)
        self.fail("no node has everything")
        raise AssertionError

    def _is_full(self, node: WideNode) -> bool:
        """The operator sees what the node that leads shows; the survivor has to know as much.

        What is at the end of its log and was perhaps not agreed on counts when it goes on alone:
        that it is down itself, say, so that others have everything and it does not.
        """
        if node.raft.log.last_index > node.applied_index:
            return False
        for name in self.queues:
            queue = node.engine.vhosts["/"].queues.get(name) if "/" in node.engine.vhosts else None
            if queue is None:
                return False
            newest = self.cluster.watch.newest_view(queue.number)
            if newest is None or node.name not in newest.in_sync:
                return False
            if node.engine.views.get(queue.number) != newest:
                return False
        return True

    def _lose_all_but(self, survivor: WideNode) -> None:
        cluster = self.cluster
        others = [node for node in cluster.nodes.values() if node is not survivor]
        cluster.world.note(f"all but {survivor.name} are lost for good")
        for node in others:
            node.is_absent = True
            node.crash()
            self.comings.forgotten.add(node.name)
        # Without a majority it may go on for a while, or end together with them.
        cluster.run_ms(self.dice.choice((0, 50, 700, 3_000)))
        if survivor.is_up:
            survivor.is_absent = True
            survivor.crash()
            cluster.run_ms(2_000)
        cluster.heal()

    # -- the survivor

    def _go_on_with(self, survivor: WideNode) -> None:
        cluster = self.cluster
        lost = [name for name in cluster.nodes if name != survivor.name]
        survivor.disk.stored = without(survivor.disk.stored, lost)
        cluster.begin_anew()
        survivor.is_absent = False
        survivor.start()
        if not cluster.run_until(lambda: survivor.is_ready, RECOVERY_MS):
            self.fail(f"{survivor.name} does not go on by itself")
        for name in lost:
            self._forget(survivor, name)
        cluster.ledger.counts["survived"] += 1
        for name in lost:
            if self.dice.random() < 0.7:
                self.comings._join(cluster.nodes[name])
                cluster.run_ms(self.dice.choice((0, 300)))

    def _forget(self, survivor: WideNode, name: str) -> None:
        """As the node does by itself when it serves; again until it counts as down."""
        cluster = self.cluster
        for _ in range(RECOVERY_MS // FORGET_MS * 4):
            errand: Any = survivor.errand(survivor.member.forget(name))
            if cluster.run_until(lambda errand=errand: errand.is_done, FORGET_MS):
                try:
                    errand.result()
                except ProposalError as error:
                    if error.why is Why.NOT_FOUND:
                        return
                else:
                    return
            cluster.run_ms(200)
        self.fail(f"{name} cannot be forgotten")


def run_survivors(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return SurvivorSchedule(seed, seen).run()
