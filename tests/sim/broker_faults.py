"""Trouble for whole brokers: what nodes and networks get, and what operators want meanwhile."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sim.member_cluster import MemberNemesis
from warren.model.policy import Policy
from warren.store.faulty_disk import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.broker_cluster import BrokerCluster
    from sim.broker_node import BrokerNode
    from warren.model.errand import Errand


def policy(definition: dict[str, Any]) -> Policy:
    return Policy("/", "ha", "^ha", definition)


def set_policy(cluster: BrokerCluster, definition: dict[str, Any]) -> None:
    cluster.agree(lambda node: node.engine.set_policy(policy(definition)))


class Operator:
    """Changes policies, moves masters, synchronises and cancels, all in quick succession."""

    def __init__(self, cluster: BrokerCluster, queues: list[str], every_us: int) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.queues, self.every_us = queues, every_us
        self.is_stopped = False
        #: What was ordered and not answered: node, its life, and the errand.
        self._orders: list[tuple[BrokerNode, int, Errand]] = []
        self._moves = [
            (3, self._set_policy),
            (1, self._clear_policy),
            (3, self._transfer),
            (2, self._sync),
            (1, self._cancel),
        ]

    def definitions(self) -> list[dict[str, Any]]:
        names = list(self.cluster.nodes)
        dice = self.world.random
        some = dice.sample(names, dice.randint(1, len(names)))
        sync = dice.choice(("automatic", "automatic", "manual"))
        bodies: list[dict[str, Any]] = [
            {"ha-mode": "all"},
            {"ha-mode": "exactly", "ha-params": dice.randint(1, 3)},
            {"ha-mode": "nodes", "ha-params": some},
        ]
        return [{**body, "ha-sync-mode": sync} for body in bodies]

    def start(self) -> None:
        self.world.after(self.world.random.randint(0, self.every_us), self._step)

    def stop(self) -> None:
        self.is_stopped = True

    def _step(self) -> None:
        if self.is_stopped:
            return
        dice = self.world.random
        self.world.after(dice.randint(self.every_us // 4, self.every_us * 2), self._step)
        moves = [move for weight, move in self._moves for _ in range(weight)]
        move = dice.choice(moves)
        for _ in range(dice.choice((1, 1, 1, 4))):
            nodes = self.cluster.ready
            if nodes:
                self.world.note(f"operator {move.__name__}")
                move(dice.choice(nodes))

    def _set_policy(self, node: BrokerNode) -> None:
        wanted = policy(self.world.random.choice(self.definitions()))
        self.world.note(str(wanted.definition))
        self._order(node, lambda: node.engine.set_policy(wanted))

    def _order(self, node: BrokerNode, step: Callable[[], object]) -> None:
        errand = node.order(step)
        if errand is not None:
            self._orders.append((node, node.boot, errand))

    @property
    def is_answered(self) -> bool:
        """Whether nothing that was ordered can still come to be."""
        self._orders = [
            (node, boot, errand)
            for node, boot, errand in self._orders
            if node.is_up and node.boot == boot and not errand.is_done
        ]
        return not self._orders

    def _clear_policy(self, node: BrokerNode) -> None:
        self._order(node, lambda: node.engine.clear_policy("/", "ha"))

    def _mastered(self) -> list[tuple[BrokerNode, Any]]:
        return [
            (node, mirror)
            for node in self.cluster.ready
            for mirror in node.engine.mirrors.mastered()
        ]

    def _transfer(self, _node: BrokerNode) -> None:
        for node, mirror in self._mastered():
            others = [] if mirror.view is None else list(mirror.view.in_sync)
            if node.name in others and len(others) > 1 and self.world.chance(0.6):
                others.remove(node.name)
                to = self.world.random.choice(others)
                node.in_turn(partial(node.engine.mirrors.hand_over, mirror.queue, to))

    def _sync(self, _node: BrokerNode) -> None:
        self.sync_all()

    def sync_all(self) -> None:
        for node, mirror in self._mastered():
            node.in_turn(partial(node.engine.mirrors.sync, mirror.queue))

    def _cancel(self, _node: BrokerNode) -> None:
        for node, mirror in self._mastered():
            node.in_turn(partial(node.engine.mirrors.cancel_sync, mirror.queue))


class BrokerNemesis(MemberNemesis):
    """The trouble of members, planned stops, store faults, and blows at steps of the protocol."""

    cluster: BrokerCluster  # type: ignore[assignment]

    def _more_blows(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            *super()._more_blows(),
            (5, self._stop),
            (2, self._slow_store),
            (2, self._store_error),
            (4, self._kill_master),
            (5, self._aim),
        ]

    def stop(self) -> None:
        super().stop()
        self.cluster.watch.aim = None

    def _someone(self) -> BrokerNode:
        return cast("BrokerNode", self._victim())

    def _masters(self) -> list[BrokerNode]:
        return [
            node
            for node in self.cluster.nodes.values()
            if node.is_up and node.engine.mirrors.mastered()
        ]

    def _stop(self) -> None:
        node = self._someone()
        node.stop()
        self.cluster.restart_later(node, 1_000, 3_000)

    def _kill_master(self) -> None:
        masters = self._masters()
        if masters:
            self._kill_one(self.world.random.choice(masters))

    def _slow_store(self) -> None:
        self._someone().sync_max_us = self.world.random.choice((1_000, 20_000, 300_000))

    def _store_error(self) -> None:
        dice, node = self.world.random, self._someone()
        if not node.is_up:
            return
        node.platter.faults = Faults(
            write_error=dice.choice((0.0, 0.5)), sync_error=dice.choice((0.5, 1.0))
        )

    def _aim(self) -> None:
        """The next time that something happens, somebody dies of it, at once or soon after."""
        dice = self.world.random
        what = dice.choice(
            ("view", "view planned", "propose Expand", "propose Shrink", "propose Handover")
        )
        delay = dice.choice((0, 0, 1_000, 10_000))
        is_other = dice.random() < 0.4

        def aim(happened: str, node: BrokerNode) -> None:
            if not happened.startswith(what):
                return
            self.cluster.watch.aim = None
            victim = dice.choice(list(self.cluster.nodes.values())) if is_other else node
            self.world.note(f"aimed at {what}: {victim.name}")
            self.world.after(delay, lambda: self._kill_one(victim))

        self.cluster.watch.aim = aim
