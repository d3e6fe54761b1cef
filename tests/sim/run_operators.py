"""One schedule whose operators drain nodes, want mirrors by name, rebalance and transfer masters.

In the end what they wanted last is so: nodes that are drained have neither masters nor clients,
and mirrors are where they were asked for. Then all nodes are revived, and all else is reckoned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.broker_faults import set_policy
from sim.operated_node import OperatedCluster
from sim.operator_acts import ClusterOperator
from sim.run_broker import LAST_POLICY, RECOVERY_MS
from sim.run_wide import WideSchedule
from sim.wide_plan import Plan, QueuePlan

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from sim.run_broker import BrokerResult
    from sim.world import World


class OperatorSchedule(WideSchedule):
    """From a seed."""

    namespace = 1 << 43
    cluster_class = OperatedCluster
    operator_class = ClusterOperator
    cluster: OperatedCluster
    operator: ClusterOperator

    def __init__(self, seed: int, seen: Callable[[World], None] | None = None) -> None:
        super().__init__(seed, seen)
        # Operators here are what the trouble is about.
        self.operator.every_us = self.dice.choice((30_000, 80_000, 200_000))
        self.nemesis.every_us = self.dice.choice((150_000, 400_000, 800_000))

    def _make_plan(self, dice: random.Random) -> Plan:
        theme = dice.choice(("plain", "plain", "plain", "members"))
        names = [f"ha.{number}" for number in range(1, dice.choice((2, 3, 4, 5)))]
        return Plan(
            theme,
            founders=dice.choice((3, 3, 4)),
            spares=1 if theme == "members" else 0,
            queues=tuple(
                QueuePlan(
                    name,
                    priority_max=dice.choice((0, 0, 0, 2)),
                    is_single_active=dice.random() < 0.2,
                )
                for name in names
            ),
        )

    # -- the end

    def reckon(self) -> None:
        self._check_drained()
        self._check_links()
        self._revive_all()
        set_policy(self.cluster, LAST_POLICY)
        super().reckon()

    def _drained(self) -> set[str]:
        node = self.cluster.ready[0]
        return set(node.product.homes.drained) & set(self.present())

    def _agree_on_drain(self, name: str, drained: bool) -> None:
        """Again, until it is so."""
        cluster = self.cluster
        for _ in range(20):
            if not cluster.run_until(lambda: bool(cluster.ready), RECOVERY_MS):
                break
            self.operator.drain(cluster.ready[0], name, drained)
            if cluster.run_until(lambda: (name in self._drained()) is drained, 2_000):
                return
        self.fail(f"{name} cannot be {'drained' if drained else 'revived'}")

    def _check_drained(self) -> None:
        """Those that are drained, and one more if there is none, lose all their masters."""
        self.settle_policy()
        cluster, names = self.cluster, list(self.present())
        if len(self._drained()) >= len(names):
            self._agree_on_drain(self.dice.choice(names), False)
        if not self._drained():
            self._agree_on_drain(self.dice.choice(names), True)
        self._settle(self._drain_problems)
        cluster.ledger.counts["drained in the end"] += len(self._drained())

    def _settle(self, problems: Callable[[], list[str]]) -> None:
        """Some copies were cancelled, and stay so until somebody wants them again."""
        cluster = self.cluster
        if not cluster.run_until(lambda: not problems(), 2_000):
            self.operator.sync_all()
        if not cluster.run_until(lambda: not problems(), RECOVERY_MS):
            self.fail("\n".join(problems()))

    def _drain_problems(self) -> list[str]:
        found: list[str] = []
        present = self.present()
        if not all(node.is_ready for node in present.values()):
            return ["not all are ready"]
        drained = self._drained()
        for name, node in present.items():
            if name in drained:
                status = node.product.draining.status()
                if (status.state, status.connections) != ("drained", 0):
                    found.append(f"{name} is not drained: {status}")
                found += [f"{name} has {it.queue.name}" for it in node.engine.mirrors.mastered()]
            for queue, view in self._views_of(node):
                if view is None or view.master in drained or view.master is None:
                    found.append(f"{name}: {queue.name} {view}")
        return found

    def _views_of(self, node: Any) -> list[tuple[Any, Any]]:
        queues = [node.engine.vhosts["/"].queues[name] for name in self.queues]
        return [(queue, node.engine.views.get(queue.number)) for queue in queues]

    # -- mirrors by name

    def _check_links(self) -> None:
        """Whatever the policy: where they are asked for, and elsewhere by the policy alone."""
        cluster, dice = self.cluster, self.dice
        names = [name for name in self.present() if name not in self._drained()]
        definition = dice.choice(
            (None, None, {"ha-mode": "exactly", "ha-params": 1, "ha-sync-mode": "manual"})
        )
        if definition is None:
            cluster.agree(lambda node: node.engine.clear_policy("/", "ha"))
        else:
            set_policy(cluster, definition)
        self.links = {
            queue: set(dice.sample(names, min(len(names), dice.randint(0, 2))))
            for queue in self.queues
        }
        for queue, wanted in self.links.items():
            for name in cluster.nodes:
                self._agree_on_link(queue, name, name in wanted)
        self._settle(self._link_problems)
        cluster.ledger.counts["links in the end"] += sum(map(len, self.links.values()))

    def _agree_on_link(self, queue: str, name: str, wanted: bool) -> None:
        def step(node: Any) -> None:
            links = node.engine.vhosts["/"].mirror_links.get(queue, ())
            if (name in links) is not wanted:
                engine = node.engine
                act = engine.add_mirror_link if wanted else engine.remove_mirror_link
                act("/", queue, name)

        self.cluster.agree(step)

    def _link_problems(self) -> list[str]:
        found = []
        for name, node in self.present().items():
            for queue, view in self._views_of(node):
                links = self.links[queue.name]
                if set(queue.vhost.mirror_links.get(queue.name, ())) != links:
                    found.append(f"{name}: {queue.name} has other links than {links}")
                elif view is None or not links <= set(view.in_sync):
                    found.append(f"{name}: {queue.name} is not on {links}: {view}")
                elif len(set(view.wanted) - links) > 1:
                    found.append(f"{name}: {queue.name} is on more than {links}: {view}")
        return found

    def _revive_all(self) -> None:
        for name in sorted(self._drained()):
            self._agree_on_drain(name, False)


def run_operators(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return OperatorSchedule(seed, seen).run()
