"""A network that loses, doubles, delays, reorders and parts, as told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.world import World


@dataclass
class Weather:
    """How bad the network is at present."""

    delay_min_us: int = 200
    delay_max_us: int = 2_000
    loss: float = 0.0
    duplication: float = 0.0
    #: How probable it is that a message takes very long, so that others overtake it.
    straggling: float = 0.0
    straggle_max_us: int = 800_000


class Network:
    """Carries bytes between named nodes."""

    def __init__(self, world: World, deliver: Callable[[str, str, bytes], None]) -> None:
        self.world = world
        self.weather = Weather()
        self._deliver = deliver
        #: (from, to) pairs over which nothing goes.
        self._cut: set[tuple[str, str]] = set()
        self.sent = 0
        #: Sees every message first; True keeps it, and `release` lets it go on.
        self.intercept: Callable[[str, str, bytes], bool] | None = None

    def send(self, source: str, target: str, data: bytes) -> None:
        dice, weather = self.world.random, self.weather
        self.sent += 1
        if self.intercept is not None and self.intercept(source, target, data):
            return
        copies = 1
        if weather.loss and dice.random() < weather.loss:
            copies = 0
        if weather.duplication and dice.random() < weather.duplication:
            copies += 1
        for _ in range(copies):
            delay = dice.randint(weather.delay_min_us, weather.delay_max_us)
            if weather.straggling and dice.random() < weather.straggling:
                delay = dice.randint(delay, weather.straggle_max_us)
            self.world.after(delay, lambda: self._arrive(source, target, data))

    def _arrive(self, source: str, target: str, data: bytes) -> None:
        # What was on its way when the link was cut is lost as well.
        if (source, target) not in self._cut:
            self._deliver(source, target, data)

    def release(self, source: str, target: str, data: bytes) -> None:
        """Deliver a message that was kept."""
        self._arrive(source, target, data)

    def cut(self, source: str, target: str) -> None:
        """Nothing goes from one to the other any more; the way back stays."""
        self._cut.add((source, target))

    def is_cut(self, one: str, other: str) -> bool:
        """Whether a connection between two cannot be made: it takes both ways."""
        return (one, other) in self._cut or (other, one) in self._cut

    def part(self, one: Sequence[str], other: Sequence[str]) -> None:
        """Nothing goes between two sides, either way."""
        for a in one:
            for b in other:
                if a != b:
                    self.cut(a, b)
                    self.cut(b, a)

    def heal(self) -> None:
        self._cut.clear()
