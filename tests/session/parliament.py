"""Several engines that agree on definitions, with an agreement that the test drives by hand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pair import Client, make_bare_engine

from warren.engine.agreed import AgreedKeeper
from warren.engine.engine import Engine
from warren.engine.remote_queue import RemoteAmqpQueue
from warren.gateway.gateway import Gateway
from warren.model.errand import Errand


class FarQueue(RemoteAmqpQueue):
    """Stands for a queue whose home is another node; there is no link to it."""

    __slots__ = ()


class Others:
    """The cluster as one engine of a parliament sees it."""

    def __init__(self, parliament: Parliament) -> None:
        self.parliament = parliament
        self.asked: list[tuple[Any, ...]] = []
        self.gateways: dict[str, Gateway] = {}

    def living_nodes(self) -> Sequence[str]:
        return sorted(engine.settings.node_name for engine in self.parliament.engines)

    def linked_nodes(self) -> Sequence[str]:
        return self.living_nodes()

    def nodes_in_service(self) -> Sequence[str]:
        return self.living_nodes()

    def make_remote(self, *arguments: Any) -> Any:
        return FarQueue(self.gateway_to(arguments[-1]), *arguments)

    def gateway_to(self, home: str) -> Gateway:
        engine = self.parliament.engines[0]
        return self.gateways.setdefault(home, Gateway(engine.turn, engine.effects, home))

    def queue_moved(self, queue: Any, home_before: str) -> None:
        """Nothing waits for the home it had."""

    def queue_deleted(self, queue: Any) -> None:
        """Nothing waits for its home."""

    def request(self, home: str, verb: str, arguments: tuple[Any, ...]) -> Errand:
        self.asked.append((home, verb, *arguments))
        errand = Errand()
        self.parliament.requests.append(errand)
        return errand

    def pick(self, count: int) -> int:
        return count - 1


class Parliament:
    """`propose` gathers; `settle` has all engines apply it, and the proposers go on."""

    def __init__(self, count: int = 3) -> None:
        self.pending: list[tuple[bytes, Errand]] = []
        self.requests: list[Errand] = []
        self.index = 0
        self.clients: list[Client] = []
        #: What each node has written to its log.
        self.records: list[list[bytes]] = [[] for _ in range(count)]
        self.engines: list[Engine] = []
        self.keepers: list[AgreedKeeper] = []
        for number in range(count):
            self._add_node(number)
        self.do(lambda engine: engine.add_vhost("/"))
        self.do(lambda engine: engine.directory.add_user("guest", "guest", ("administrator",)))
        self.do(lambda e: e.directory.set_permissions("guest", "/", ".*", ".*", ".*"))

    def _add_node(self, number: int) -> None:
        engine = make_bare_engine(node_name=f"n{number}")
        engine.cluster = Others(self)
        self.engines.append(engine)
        self.keepers.append(self.keeper(engine, self.records[number]))
        self.keepers[number].attach()

    def keeper(self, engine: Engine, records: list[bytes]) -> AgreedKeeper:
        return AgreedKeeper(engine, records.append, self.propose, logging.getLogger("silent"))

    def propose(self, command: bytes) -> Errand:
        errand = Errand()
        self.pending.append((command, errand))
        return errand

    def do(self, action: Any, node: int = 0) -> None:
        """One operator's change, agreed on."""
        from warren.model.errors import Postponed

        try:
            action(self.engines[node])
        except Postponed:
            self.settle()

    def client(self, node: int) -> Client:
        client = Client(self.engines[node], channels=1)
        self.clients.append(client)
        return client

    def settle(self) -> None:
        """Until nobody waits for anything."""
        while self.pending:
            command, errand = self.pending.pop(0)
            self.index += 1
            for keeper in self.keepers:
                keeper.apply_agreed([(self.index, command)])
            errand.finish()
            self.go_on()

    def go_on(self) -> None:
        for engine in self.engines:
            engine.run_effects()
            actions = engine.resuming.copy()
            engine.resuming.clear()
            for action in actions:
                action()
        for client in self.clients:
            client.send(b"")

    def are_equal(self) -> bool:
        """Whether all nodes hold the same definitions, byte for byte."""
        return len({keeper.snapshot() for keeper in self.keepers}) == 1
