"""Links between nodes: connections that keep the order of frames, and break with all on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.world import World

if TYPE_CHECKING:
    from sim.network import Network

RETRY_US = 50_000


class _Link:
    def __init__(self) -> None:
        self.is_up = False
        self.number = 0
        self.last_arrival_us = 0


class Links:
    """One connection for each pair and direction."""

    def __init__(
        self,
        world: World,
        network: Network,
        names: list[str],
        is_up: Callable[[str], bool],
        deliver: Callable[[str, str, Any], None],
        tell: Callable[[str, str, bool], None],
    ) -> None:
        self.world, self.network = world, network
        self._is_up, self._deliver, self._tell = is_up, deliver, tell
        self._links = {(a, b): _Link() for a in names for b in names if a != b}
        self._names = names
        self.broken = 0

    def start(self) -> None:
        for pair in self._links:
            self._connect(pair)

    def send(self, source: str, target: str, what: Any) -> bool:
        link = self._links[source, target]
        if not link.is_up:
            return False
        weather = self.network.weather
        dice = self.world.random
        if self.network.is_cut(source, target):
            self._break((source, target), dice.randint(100_000, 1_500_000))
            return False
        if weather.loss and dice.random() < weather.loss * 0.02:
            self._break((source, target), dice.randint(1_000, 20_000))
            return False
        delay = dice.randint(weather.delay_min_us, weather.delay_max_us)
        if weather.straggling and dice.random() < weather.straggling * 0.1:
            delay = dice.randint(delay, weather.straggle_max_us)
        at = max(self.world.now_us + delay, link.last_arrival_us)
        link.last_arrival_us = at
        number = link.number
        self.world.at(at, lambda: self._arrive(source, target, number, what))
        return True

    def _arrive(self, source: str, target: str, number: int, what: Any) -> None:
        link = self._links[source, target]
        if link.number != number or not link.is_up:
            return
        if self.network.is_cut(source, target):
            self._break((source, target), self.world.random.randint(100_000, 1_500_000))
        else:
            self._deliver(source, target, what)

    def node_gone(self, name: str) -> None:
        """A process has ended: its connections are reset."""
        for pair, link in self._links.items():
            if name in pair and link.is_up:
                self._break(pair, self.world.random.randint(200, 20_000))

    def _break(self, pair: tuple[str, str], noticed_us: int) -> None:
        link = self._links[pair]
        if not link.is_up:
            return
        self.broken += 1
        link.is_up = False
        link.number += 1

        def notice() -> None:
            self._tell(pair[0], pair[1], False)
            self._tell(pair[1], pair[0], False)
            self._connect(pair)

        self.world.after(noticed_us, notice)

    def _connect(self, pair: tuple[str, str]) -> None:
        source, target = pair
        link = self._links[pair]
        if link.is_up:
            return
        if self._is_up(source) and self._is_up(target) and not self.network.is_cut(source, target):
            link.is_up = True
            link.last_arrival_us = self.world.now_us
            self._tell(source, target, True)
            self._tell(target, source, True)
        else:
            delay = self.world.random.randint(RETRY_US, 4 * RETRY_US)
            self.world.after(delay, lambda: self._connect(pair))
