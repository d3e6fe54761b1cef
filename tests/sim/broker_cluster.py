"""A cluster of simulated brokers, and what is looked at after every turn of every node."""

from __future__ import annotations

import base64
import hashlib
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.broker_ledger import Ledger
from sim.broker_node import BrokerNode, complaints
from sim.broker_store import plan_upkeep
from sim.member_cluster import MemberCluster, Promises
from sim.network import Network
from sim.world import Violation
from warren.model.errors import AmqpError
from warren.store.upkeep import UpkeepSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.member_node import MemberNode
    from warren.cluster.member_effects import ViewsChanged

_SALT = bytes(4)
#: What is kept of the password guest; without dice.
GUEST_HASH = base64.b64encode(_SALT + hashlib.sha256(_SALT + b"guest").digest()).decode()


class BrokerNetwork(Network):
    """The same cuts hold for links, which keep the order of their frames."""

    def is_one_way_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def link_delay(self) -> int:
        dice, weather = self.world.random, self.weather
        delay = dice.randint(weather.delay_min_us // 2, weather.delay_max_us)
        if weather.straggling and dice.random() < weather.straggling / 4:
            delay = dice.randint(delay, weather.straggle_max_us // 4)
        return delay


@dataclass(frozen=True, slots=True)
class StorePlan:
    """What stays the same through all lives of the stores."""

    segment_bytes: int
    salt: int
    upkeep: UpkeepSettings


class FewPromises(Promises):
    """Definitions are the product's own here; the simulator of members has the rest."""

    def defined(self, node: MemberNode) -> None: ...


class Watch:
    """Oracles of rings, and where blows are aimed at."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self.cluster = cluster
        #: (number, epoch) -> who serves
        self._masters: dict[tuple[int, int], str] = {}
        #: (number, epoch) -> the view
        self._views: dict[tuple[str, int], Any] = {}
        self.counts: Counter[str] = Counter()
        #: Called with what happens: (what, node).
        self.aim: Callable[[str, BrokerNode], None] | None = None

    def turn(self, node: BrokerNode) -> None:
        """A turn of a node is over."""
        if complaints.heard:
            raise Violation(f"{node.name} complains: {complaints.heard[0]}")
        for number, mirror in node.engine.mirrors.by_number.items():
            replica = mirror.replica
            if replica is None or not mirror.log.acts:
                continue
            master = self._masters.setdefault((number, replica.epoch), node.name)
            if master != node.name:
                raise Violation(
                    f"{master} and {node.name} are masters of {number} in {replica.epoch}"
                )

    def views_changed(self, node: BrokerNode, effect: ViewsChanged) -> None:
        for key, view in effect.views.items():
            if view is None:
                continue
            if self._views.setdefault((key, view.epoch), view) != view:
                raise Violation(f"{node.name} is told of another view {view.epoch} of {key}")
            self.cluster.world.note(
                f"{node.name} view {key}: {view.epoch} {view.master} {view.in_sync}"
                f" {view.learners}{' planned' if effect.planned else ''}"
            )
            self.tell(f"view {'planned' if effect.planned else ''}", node)

    def proposed(self, node: BrokerNode, command: Any) -> None:
        self.tell(f"propose {type(command).__name__}", node)

    def tell(self, what: str, node: BrokerNode) -> None:
        self.counts[what] += 1
        if self.aim is not None:
            self.aim(what, node)


class BrokerCluster(MemberCluster):
    """As `MemberCluster`, with brokers for members."""

    nodes: dict[str, BrokerNode]  # type: ignore[assignment]
    node_type: type[MemberNode] = BrokerNode

    def __init__(self, seed: int, founders: int, spares: int = 0, **limits: Any) -> None:
        dice = random.Random(seed)
        self.store_plan = StorePlan(
            dice.choice((8192, 32768, 262144)), dice.getrandbits(32), plan_upkeep(dice)
        )
        super().__init__(seed, founders, spares, **limits)
        complaints.heard.clear()
        self.network = BrokerNetwork(self.world, self._deliver)
        self.promises = FewPromises(self)
        self.ledger = Ledger(self.world)
        self.watch = Watch(self)

    @property
    def ready(self) -> list[BrokerNode]:
        return [node for node in self.nodes.values() if node.is_ready and not node.is_paused]

    def heal(self) -> None:
        for node in self.nodes.values():
            # Before it starts: one that was stopped may have met none of its disk's faults yet.
            node.platter.faults = type(node.platter.faults)()
        super().heal()
        for node in self.nodes.values():
            # One that waits to be rid of its masters stops when others are there, and no earlier.
            node.is_wanted_again = node.is_stopping
            node.sync_max_us = 3_000

    def agree(self, step: Callable[[BrokerNode], object], within_ms: int = 20_000) -> None:
        """Have a change made, on whichever node can; again until it is known to be made."""
        until = self.world.now_us + within_ms * 1000
        while True:
            for node in self.ready[:1]:
                errand = node.order(lambda node=node: step(node))
                if errand is None:
                    return
                if self.run_until(lambda errand=errand: errand.is_done, 5_000):
                    with suppress(AmqpError):
                        errand.result()
                        return
            if self.world.now_us >= until:
                raise Violation("a definition is not agreed on")
            self.run_ms(20)

    def found(self) -> None:
        """User, virtual host, permissions."""
        self.agree(
            lambda node: node.engine.directory.put_user(
                "guest", GUEST_HASH, "rabbit_password_hashing_sha256", ("administrator",)
            )
        )
        self.agree(lambda node: node.engine.add_vhost("/"))
        self.agree(
            lambda node: node.engine.directory.set_permissions("guest", "/", ".*", ".*", ".*")
        )
