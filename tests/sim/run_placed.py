"""One schedule of policies that flip while nodes come and go: where do the mirrors end up?"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sim.member_cluster import MemberCluster, MemberNemesis
from sim.member_node import MemberNode
from sim.placed_node import PlacedNode, wish_in
from sim.run import RECOVERY_MS, settings_for
from sim.run_members import recover
from sim.world import World
from warren.cluster import member_effects as effects
from warren.cluster.metadata import View


@dataclass(frozen=True, slots=True)
class PlacedResult:
    """What a schedule saw."""

    seed: int
    fingerprint: str
    events: int
    virtual_ms: int
    commits: int
    strikes: int
    queues: int
    counts: Counter[object]


class PlacedCluster(MemberCluster):
    """What all nodes are told of views is the same."""

    nodes: dict[str, PlacedNode]  # type: ignore[assignment]
    node_type: type[MemberNode] = PlacedNode
    #: No more trouble.
    is_calm = False

    def __init__(self, seed: int, founders: int, spares: int, **limits: object) -> None:
        #: index -> what was told of views there
        self._told: dict[int, dict[str, View | None]] = {}
        super().__init__(seed, founders, spares, **limits)  # type: ignore[arg-type]

    def view_oracle(self, node: PlacedNode, effect: effects.ViewsChanged) -> None:
        """An image tells of more than the entry does."""
        known = self._told.setdefault(effect.index, {})
        for key, view in effect.views.items():
            if known.setdefault(key, view) != view:
                self.oracles.fail(f"{node.name} is told of another view at {effect.index}")
            self.promises.counts["unclean" if view is not None and view.unclean else "views"] += 1


MODES = ("all -", "none", "exactly 1", "exactly 2", "exactly 2", "exactly 3", "exactly 9")


#: More would take longer to settle than the recovery may.
QUEUES_MAX = 20


class Operator:
    """Declares, deletes, and cannot make up its mind about the policy."""

    def __init__(self, cluster: PlacedCluster, every_us: int) -> None:
        self.cluster, self.world, self.every_us = cluster, cluster.world, every_us
        self.count = 0
        self.queues = 0
        self.stopped = False

    def start(self) -> None:
        self.world.after(self.world.random.randint(0, self.every_us), self._step)

    def _step(self) -> None:
        if self.stopped:
            return
        dice = self.world.random
        self.world.after(dice.randint(self.every_us // 2, self.every_us * 3 // 2), self._step)
        awake = self.cluster.up
        if awake:
            node = dice.choice(awake)
            for _ in range(dice.choice((1, 1, 3))):
                self.count += 1
                node.propose(f"o/{self.count} {self._whim()}".encode())
            node._when_awake(node._in_this_life(node.pump))

    def _whim(self) -> str:
        dice = self.world.random
        names = list(self.cluster.nodes)
        if (dice.random() < 0.35 and self.queues < QUEUES_MAX) or not self.queues:
            self.queues += 1
            return f"declare {self.queues} {dice.choice(names)}"
        if dice.random() < 0.15:
            return f"delete {dice.randint(1, self.queues)}"
        listed = "+".join(dice.sample([*names, "x", "y"], dice.randint(1, 3)))
        promote = dice.choice(("", "", "always"))
        return f"policy {dice.choice((*MODES, f'nodes {listed}'))} {promote}"


def run_placed(seed: int, seen: Callable[[World], None] | None = None) -> PlacedResult:
    """Run one schedule; Violation if anything is wrong."""
    dice = random.Random(seed)
    settings = settings_for(dice)
    cluster = PlacedCluster(
        seed, dice.choice((1, 3, 3, 5)), dice.choice((0, 0, 1, 2)), settings=settings
    )
    if seen is not None:
        seen(cluster.world)
    operator = Operator(cluster, dice.choice((20_000, 100_000, 400_000)))
    nemesis = MemberNemesis(cluster, dice.choice((100_000, 250_000, 600_000)), False)
    cluster.start()
    operator.start()
    nemesis.start()
    cluster.run_ms(6_000)
    nemesis.stop()
    cluster.heal()
    operator.stopped = cluster.is_calm = True
    recover(cluster)
    settle(cluster)
    return PlacedResult(
        seed,
        cluster.world.fingerprint,
        cluster.world.events,
        cluster.world.now_us // 1000,
        cluster.oracles.commit_max,
        nemesis.strikes,
        operator.queues,
        Counter[object](cluster.promises.counts),
    )


def settle(cluster: PlacedCluster) -> None:
    """Every queue has its mirrors where the last policy wants them, all in sync."""
    first = cluster.nodes["n1"]
    if not cluster.run_until(lambda: not problems(cluster, first), RECOVERY_MS):
        cluster.oracles.fail("\n".join(problems(cluster, first)))
    # And that is the end of it.
    epochs = {key: view.epoch for key, view in first.member.views.items()}
    cluster.run_ms(2_000)
    if epochs != {key: view.epoch for key, view in first.member.views.items()}:
        cluster.oracles.fail("views go on changing for nothing")
    others = list(cluster.nodes.values())
    if not cluster.run_until(
        lambda: all(node.member.views == first.member.views for node in others), RECOVERY_MS
    ):
        cluster.oracles.fail("not all have the same views")


def problems(cluster: PlacedCluster, node: PlacedNode) -> list[str]:
    found = [
        f"the view of queue {key} is left over"
        for key in node.member.views
        if int(key) not in node.placed
    ]
    names = set(cluster.nodes)
    for number, queue in node.placed.items():
        view, wish = node.member.views.get(str(number)), wish_in(queue)
        if view is None:
            if wish.mode is not None or queue.born_mirrored:
                found.append(f"queue {number} has no view")
            continue
        listed = names & set(wish.names)
        if wish.mode == "all":
            is_good = set(view.wanted) == names
        elif wish.mode == "nodes" and listed:
            is_good = set(view.wanted) == listed
        elif wish.mode == "exactly":
            is_good = len(view.wanted) == min(wish.count, len(names))
        else:
            is_good = view.wanted == (view.master,)
        if not is_good or set(view.in_sync) != set(view.wanted):
            found.append(f"queue {number}: {wish} and {view}")
    return found
