"""Blows that meet one rule each: what random trouble comes to in one of thousands of schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.wide_faults import WideNemesis, WideOperator

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from warren.cluster.metadata import View

#: Longer than the others wait for a node that says nothing.
CUT_OFF_MS = (2_200, 3_200)
#: How much of the end of a log is damaged: what is there nothing has replaced yet.
TAIL_BYTES = 6_000


class AimedOperator(WideOperator):
    """Policies stay as the aim needs them."""

    def definitions(self) -> list[dict[str, Any]]:
        if self.cluster.plan.theme == "alone":
            return [{"ha-mode": "exactly", "ha-params": 1}]
        return [{"ha-mode": "all", "ha-sync-mode": "automatic"}]

    def _clear_policy(self, node: Any) -> None: ...


class AimedNemesis(WideNemesis):
    """Besides all else, and more often."""

    def _more_blows(self) -> list[tuple[int, Callable[[], None]]]:
        aims: dict[str, Callable[[], None]] = {
            "alone": self._cut_off_alone,
            "expiry": self._cut_off_master,
            "held": self._kill_master,
            "dark": self._damage_in_the_dark,
        }
        return [*super()._more_blows(), (60, aims[self.cluster.plan.theme])]

    # -- a master that the others take for dead, and that is not

    def _cut_off_alone(self) -> None:
        """Nobody else has the queue: it has no master meanwhile, and then the same as before."""
        self._cut_off([view for view in self._views().values() if len(view.in_sync) == 1])

    def _cut_off_master(self) -> None:
        """Another becomes master; what the old one has wanted meanwhile is agreed on later."""
        self._cut_off([view for view in self._views().values() if len(view.in_sync) > 1])

    def _cut_off(self, views: list[View]) -> None:
        masters = sorted({view.master for view in views if view.master is not None})
        if not masters:
            return
        name = self.world.random.choice(masters)
        others = [other for other in self.cluster.nodes if other != name]
        network = self.cluster.network
        network.heal()
        network.part([name], others)
        self.world.note(f"{name} is cut off")
        self.world.after(self.world.random.randint(*CUT_OFF_MS) * 1000, network.heal)

    # -- damage that comes to light when all begin anew

    def _damage_in_the_dark(self) -> None:
        """The power fails everywhere, and one disk does not have all of it any more.

        Nobody could say who was in sync for longer than the others.
        """
        node, views = self.cluster.nodes["n1"], self._views().values()
        if not views or not all(set(view.in_sync) - {node.name} for view in views):
            return
        self.world.note("the power fails")
        for each in self.cluster.nodes.values():
            each.crash()
        logs = [name for name in node.platter.names() if name.endswith(".wal")]
        size = node.platter.size(logs[-1]) if logs else 0
        if size:
            first = max(0, size - TAIL_BYTES) * 8
            bit = self.world.random.randrange(first, size * 8)
            node.platter.flip_bit(logs[-1], bit)
            self.world.note(f"{node.name}: bit {bit} of {logs[-1]} is turned round")
            self.cluster.ledger.counts["bits"] += 1
        for each in self.cluster.nodes.values():
            self.cluster.restart_later(each, 20, 300)
