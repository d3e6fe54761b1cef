"""More trouble: policies of all kinds, losses of all who have everything, and bits turned round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.broker_faults import BrokerNemesis, Operator, policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.wide_cluster import WideCluster, WideNode
    from warren.cluster.metadata import View


class WideOperator(Operator):
    """Policies say more, and in some schedules always the same of some things."""

    cluster: WideCluster  # type: ignore[assignment]

    def definitions(self) -> list[dict[str, Any]]:
        dice, plan = self.world.random, self.cluster.plan
        more: dict[str, Any] = {}
        if dice.random() < 0.4:
            more["ha-sync-batch-size"] = dice.choice((1, 2, 50))
        if dice.random() < 0.4:
            more["ha-sync-strategy"] = dice.choice(("full", "incremental", "event"))
        if dice.random() < 0.3:
            more["ha-max-lag"] = dice.choice((300, 1_000))
        if dice.random() < 0.5:
            more |= plan.governing
        if plan.theme == "unclean" and dice.random() < 0.95:
            more["ha-promote-on-failure"] = "always"
            more["ha-promote-on-shutdown"] = dice.choice(("always", "when-synced"))
            more["ha-sync-mode"] = dice.choice(("automatic", "manual", "manual"))
        if plan.theme == "floor":
            sync = dice.choice(("automatic", "automatic", "manual"))
            floor = {"ha-mode": "all", "ha-sync-mode": sync, "ha-min-in-sync": plan.floor}
            return [{**more, **floor}]
        if dice.random() < 0.2:
            more["ha-min-in-sync"] = dice.choice((1, 2))
        bodies = super().definitions()
        if plan.theme == "flips":
            # Damage is to be made good by somebody else.
            bodies = [{"ha-mode": "all"}, {"ha-mode": "exactly", "ha-params": dice.randint(2, 3)}]
            bodies = [{**body, "ha-sync-mode": "automatic"} for body in bodies]
        return [{**body, **more} for body in bodies]

    def _clear_policy(self, node: Any) -> None:
        if self.cluster.plan.theme not in {"floor", "flips"}:
            super()._clear_policy(node)


class WideNemesis(BrokerNemesis):
    """See the module's text."""

    cluster: WideCluster  # type: ignore[assignment]

    def _more_blows(self) -> list[tuple[int, Callable[[], None]]]:
        theme = self.cluster.plan.theme
        own: dict[str, list[tuple[int, Callable[[], None]]]] = {
            "unclean": [(60, self._bury)],
            "flips": [(20, self._turn_bits)],
        }
        return [*super()._more_blows(), *own.get(theme, [])]

    # -- those who have everything

    def _views(self) -> dict[str, View]:
        """As they are agreed on, if nothing that would change them is under way; else none."""
        leader = self.cluster.leader
        if leader is None or leader.raft.commit_index != leader.raft.log.last_index:
            return {}
        return dict(leader.member.views)  # type: ignore[attr-defined]

    def _bury(self) -> None:
        """All who have everything of a queue are gone for longer than anybody waits for them."""
        views = list(self._views().values())
        if any(view.learners and view.in_sync for view in views):
            self._strike_in_sync()
            return
        # Nobody lacks anything: one replica is to have all, and then others to be without it.
        masters = [view.master for view in views if view.master is not None]
        if masters:
            name = self.world.random.choice(masters)
            self._want({"ha-mode": "nodes", "ha-params": [name]})
            self.world.after(400_000, lambda: self._want({"ha-mode": "all"}))
            self.world.after(self.world.random.randint(500, 900) * 1000, self._strike_in_sync)

    def _want(self, body: dict[str, Any]) -> None:
        nodes = self.cluster.ready
        if nodes and not self.stopped:
            always = {"ha-promote-on-failure": "always", "ha-promote-on-shutdown": "always"}
            wanted = policy({**body, **always, "ha-sync-mode": "manual"})
            nodes[0].order(lambda: nodes[0].engine.set_policy(wanted))

    def _strike_in_sync(self) -> None:
        views = [view for view in self._views().values() if view.learners and view.in_sync]
        if not views or self.stopped:
            return
        view = self.world.random.choice(views)
        in_order = self.world.chance(0.3)
        for name in view.in_sync:
            node = self.cluster.nodes[name]
            if in_order and len(view.in_sync) == 1:
                node.stop()
            else:
                node.crash()
            if not node.is_absent:
                node.is_absent = True
                self.world.after(self.world.random.randint(4_500, 7_000) * 1000, _back(node))

    # -- bits

    def _turn_bits(self) -> None:
        """On one node only, while it is down, and only what others have as well."""
        node = self.cluster.nodes["n1"]
        node.crash()
        self.world.after(self.world.random.randint(300, 600) * 1000, lambda: self._turn(node))
        self.cluster.restart_later(node, 700, 2_500)

    def _turn(self, node: WideNode) -> None:
        views = self._views()
        known = self.cluster.leader.engine.vhosts["/"].queues if views else {}  # type: ignore
        numbers = [str(queue.number) for queue in known.values()]
        is_elsewhere = bool(numbers) and all(
            number in views and set(views[number].in_sync) - {node.name} for number in numbers
        )
        if node.is_up or self.stopped or not is_elsewhere:
            return
        dice = self.world.random
        for _ in range(dice.choice((1, 1, 3))):
            name = dice.choice(node.platter.names())
            size = node.platter.size(name)
            if size:
                bit = dice.randrange(size * 8)
                node.platter.flip_bit(name, bit)
                self.world.note(f"{node.name}: bit {bit} of {name} is turned round")
                self.cluster.ledger.counts["bits"] += 1


def _back(node: WideNode) -> Callable[[], None]:
    def act() -> None:
        node.is_absent = False
        node.start()

    return act
