"""Brokers with what operators use: nodes that are drained, masters that are moved and rebalanced.

The rebalancer, the transfers and the draining are the product's own; what they ask of a node, its
management API and its listeners is simulated.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from sim.broker_node import silent
from sim.wide_cluster import WideCluster, WideNode, WideWatch
from sim.world import Violation
from warren.cluster.metadata_commands import Handover
from warren.management.errors import ApiError
from warren.management.peers import PeerAnswer
from warren.management.rebalancer import Order, Rebalancer
from warren.management.rebalancing import Move
from warren.management.transferring import transfer
from warren.model.errors import Postponed

if TYPE_CHECKING:
    from sim.broker_node import BrokerNode
    from warren.management.peers import Question

#: When whoever was told to go is cut off.
GOODBYE_US = 5_000


class SimContext:
    """What the rebalancer and transfers ask of a node's management."""

    def __init__(self, node: OperatedNode) -> None:
        self._node = node
        self.engine = node.engine
        self.node_name = node.name
        self.peers = self
        self.ask = node.product.questions.ask

    def running(self) -> Sequence[str]:
        """Those that can be asked."""
        return sorted(self._node.links.dialled)

    def drained_nodes(self) -> frozenset[str]:
        return self._node.product.homes.drained

    def cluster_control(self) -> Any:
        drained = self.drained_nodes()
        members = [
            SimpleNamespace(
                name=name,
                is_drained=name in drained,
                role="leader" if name == self._node.raft.leader else "follower",
            )
            for name in self._node.member.nodes
        ]
        return SimpleNamespace(status=lambda: SimpleNamespace(members=members))

    def act(self, action: Callable[[], Any]) -> Any:
        return self._node.in_turn(action)

    async def agree(self, action: Callable[[], Any]) -> None:
        try:
            self.act(action)
        except Postponed as later:
            over = asyncio.Event()
            later.errand.when_done(over.set)
            await over.wait()
            later.errand.result()


class WatchedRebalancer(Rebalancer):
    """What it plans is looked at in the moment when it is planned."""

    async def _plan(self, order: Order) -> list[Move]:
        moves = await super()._plan(order)
        engine = self._context.engine
        for move in moves:
            view = engine.views[engine.vhosts[move.vhost].queues[move.name].number]
            if move.target not in view.in_sync:
                raise Violation(f"{move} goes to one that is not synchronised: {view}")
        return moves


class OperatedNode(WideNode):
    """See the module's text."""

    cluster: OperatedCluster

    def _build(self) -> None:
        super()._build()
        shell: Any = self.product._node
        self.shell = shell
        shell.is_open = shell.is_suspended = False
        shell.suspend_clients, shell.resume_clients = self._suspend, self._resume
        self.product.draining._log = silent
        self.context = SimContext(self)
        dice = random.Random(self.world.random.getrandbits(32))
        self.rebalancer = WatchedRebalancer(self.context, dice)  # type: ignore[arg-type]
        self.rebalancer._log = silent

    # -- clients

    @property
    def lets_clients_in(self) -> bool:
        return super().lets_clients_in and not self.shell.is_suspended

    def _ready_changed(self, ready: bool) -> None:
        self.shell.is_open = ready
        super()._ready_changed(ready)

    async def _suspend(self, reason: str) -> None:
        self.world.note(f"{self.name} sends its clients away")
        self.shell.is_suspended = True
        self.in_turn(lambda: self.engine.close_all(reason))
        for client in list(self.clients):
            self.world.after(GOODBYE_US, client.hang_up_of(self.boot))
        while self.clients:
            await asyncio.sleep(0.005)

    def _resume(self) -> None:
        self.world.note(f"{self.name} lets clients in again")
        self.shell.is_suspended = False

    async def _stop(self) -> None:
        self.product.draining.stop()
        await self.rebalancer.stop()
        await super()._stop()

    # -- what others, and operators, want of it

    async def _answer(self, question: Question) -> PeerAnswer:
        if question.path == "/rebalance/facts":
            return PeerAnswer(200, msgspec.json.encode(self.rebalancer.facts()))
        if not question.path.endswith("/actions"):
            return await super()._answer(question)
        name = unquote(question.path.split("/")[3])
        try:
            await self.transfer(name, json.loads(question.body)["node"])
        except ApiError as error:
            return PeerAnswer(400, str(error).encode())
        return PeerAnswer(204, b"")

    async def transfer(self, name: str, node: str) -> None:
        """Raises ApiError."""
        queue = self.engine.vhosts["/"].queues.get(name)
        if queue is None or queue.is_remote:
            raise ApiError(503, "unavailable", f"queue '{name}' is elsewhere")
        await transfer(self.context, queue, node)  # type: ignore[arg-type]

    def run_task(self, work: Any) -> None:
        """For as long as this life lasts; what an operator is refused is refused."""

        async def go() -> None:
            try:
                await work
            except ApiError as error:
                self.world.note(f"{self.name} refuses: {error}")

        with self.loop.running():
            task = self.loop.create_task(go())
        task.add_done_callback(lambda it: None if it.cancelled() else it.result())


class OperatedWatch(WideWatch):
    """Masters go to whoever has everything; a drained node has no clients."""

    def turn(self, node: BrokerNode) -> None:
        super().turn(node)
        assert isinstance(node, OperatedNode)
        draining = node.product.draining
        if not draining.is_wanted or not node.engine.connections:
            return
        if draining.status().state == "drained":
            raise Violation(
                f"{node.name} is drained, and has {len(node.engine.connections)} clients"
            )

    def proposed(self, node: BrokerNode, command: Any) -> None:
        if isinstance(command, Handover):
            view = self._views[(command.queue, command.epoch)]
            if command.node not in view.in_sync:
                raise Violation(f"{node.name} hands over to one that is not in sync: {command}")
            self.counts["handovers"] += 1
        super().proposed(node, command)


class OperatedCluster(WideCluster):
    """See the module's text."""

    nodes: dict[str, OperatedNode]  # type: ignore[assignment]
    node_type = OperatedNode

    def __init__(self, *arguments: Any, **limits: Any) -> None:
        super().__init__(*arguments, **limits)
        self.watch = OperatedWatch(self)
