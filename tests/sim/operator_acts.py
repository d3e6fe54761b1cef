"""What operators of a cluster do over months, here within seconds and in the midst of trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.wide_faults import WideOperator
from warren.management.errors import ApiError
from warren.management.mirror_links import check_new_link, check_old_link
from warren.management.rebalancer import read_order
from warren.management.rebalancing import STRATEGIES

if TYPE_CHECKING:
    from sim.operated_node import OperatedCluster, OperatedNode

PAUSES_S = (0.0, 0.0, 0.0, 0.05)


class ClusterOperator(WideOperator):
    """Drains and revives, wants mirrors by name, moves masters, one or all."""

    cluster: OperatedCluster  # type: ignore[assignment]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._moves += [
            (3, self._drain),
            (4, self._revive),
            (4, self._add_link),
            (3, self._remove_link),
            (5, self._rebalance),
            (4, self._transfer_master),
        ]

    # -- out of service and back

    def _drain(self, node: Any) -> None:
        others = set(node.product.homes.nodes_in_service()) - {node.name}
        if others:
            self.drain(node, node.name, True)

    def _revive(self, node: Any) -> None:
        drained = sorted(node.product.homes.drained)
        if drained:
            self.drain(node, self.world.random.choice(drained), False)

    def drain(self, node: OperatedNode, name: str, drained: bool) -> None:
        """Have it agreed on."""
        self.world.note(f"{name} is to be {'drained' if drained else 'revived'}")
        errand = node.in_turn(lambda: node.errand(node.member.drain(name, drained)))
        self._orders.append((node, node.boot, errand))
        self.cluster.ledger.counts["drained" if drained else "revived"] += 1

    # -- mirrors by name

    def _any_queue(self, node: OperatedNode) -> Any:
        return node.engine.vhosts["/"].queues.get(self.world.random.choice(self.queues))

    def _add_link(self, node: Any) -> None:
        queue, name = self._any_queue(node), self.world.random.choice(list(self.cluster.nodes))
        try:
            check_new_link(node.context, queue, name)
        except ApiError as error:
            self.world.note(f"no mirror: {error}")
            return
        self.world.note(f"{queue.name} is to have a mirror on {name}")
        self.cluster.ledger.counts["links"] += 1
        self._order(node, lambda: node.engine.add_mirror_link("/", queue.name, name))

    def _remove_link(self, node: Any) -> None:
        queue = self._any_queue(node)
        links = queue.vhost.mirror_links.get(queue.name, ())
        if not links:
            return
        name = self.world.random.choice(links)
        try:
            check_old_link(node.engine, queue, name)
        except ApiError as error:
            self.world.note(f"the mirror stays: {error}")
            return
        self.world.note(f"{queue.name} needs no mirror on {name}")
        self._order(node, lambda: node.engine.remove_mirror_link("/", queue.name, name))

    # -- masters

    def _rebalance(self, _node: Any) -> None:
        leader: Any = self.cluster.leader
        if leader is None or leader not in self.cluster.ready:
            return
        dice = self.world.random
        order = read_order({"strategy": dice.choice(STRATEGIES), "pause_s": dice.choice(PAUSES_S)})
        self.world.note(f"rebalance on {leader.name}: {order}")
        self.cluster.ledger.counts["rebalancings"] += 1
        leader.run_task(leader.rebalancer.order(order))

    def _transfer_master(self, _node: Any) -> None:
        """To anybody: whoever may not be is refused."""
        dice = self.world.random
        name, to = dice.choice(self.queues), dice.choice(list(self.cluster.nodes))
        for node in self.cluster.ready:
            queue = node.engine.vhosts["/"].queues.get(name)
            if queue is not None and not queue.is_remote:
                self.world.note(f"{name} is to go from {node.name} to {to}")
                self.cluster.ledger.counts["transfers"] += 1
                node.run_task(node.transfer(name, to))
