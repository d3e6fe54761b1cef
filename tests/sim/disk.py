"""A disk that syncs late, forgets what it has not synced, and fails at times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sim.world import World
from warren.cluster.raft.effects import Persist
from warren.cluster.raft.types import Stored


@dataclass
class DiskHealth:
    """How the disk behaves at present."""

    sync_min_us: int = 100
    sync_max_us: int = 3_000
    #: How probable it is that a sync takes up to `stall_max_us`.
    stalls: float = 0.0
    stall_max_us: int = 500_000
    errors: float = 0.0


def with_persist(stored: Stored, persist: Persist) -> Stored:
    """The contents of a disk after a write."""
    if persist.snapshot is not None:
        return Stored(
            persist.hard_state,
            persist.snapshot,
            persist.base_index,
            persist.base_term,
            persist.entries,
        )
    kept = stored.entries[: persist.first_index - stored.base_index - 1]
    if len(kept) != persist.first_index - stored.base_index - 1:
        raise AssertionError("a write would leave a hole in the log")
    return Stored(
        persist.hard_state,
        stored.snapshot,
        stored.base_index,
        stored.base_term,
        kept + persist.entries,
    )


class FaultyDisk:
    """One node's disk. Writes are synced in order, some at a time; a crash loses the rest."""

    def __init__(self, world: World, stored: Stored) -> None:
        self.world = world
        self.stored = stored
        self.health = DiskHealth()
        self._queue: deque[Persist] = deque()
        self._life = 0
        self.truncations = 0
        self.writes_lost = 0
        self._busy = False

    def write(
        self, persist: Persist, done: Callable[[int], None], failed: Callable[[], None]
    ) -> None:
        self._queue.append(persist)
        if not self._busy:
            self._sync(done, failed)

    def crash(self) -> None:
        """Power is gone. Of what was not synced, the first few writes may have arrived."""
        count = self.world.random.randint(-len(self._queue), len(self._queue))
        if count > 0:
            self.arrived([self._queue.popleft() for _ in range(count)])
        self.writes_lost += len(self._queue)
        self._queue.clear()
        self._life += 1
        self._busy = False

    def arrived(self, persists: list[Persist]) -> None:
        """These writes are on the platter."""
        for persist in persists:
            last_index = self.stored.base_index + len(self.stored.entries)
            self.truncations += persist.snapshot is None and persist.first_index <= last_index
            self.stored = with_persist(self.stored, persist)

    def _sync(self, done: Callable[[int], None], failed: Callable[[], None]) -> None:
        self._busy = True
        dice, health = self.world.random, self.health
        batch = len(self._queue)
        delay = dice.randint(health.sync_min_us, health.sync_max_us)
        if health.stalls and dice.random() < health.stalls:
            delay = dice.randint(delay, health.stall_max_us)
        life = self._life

        def synced() -> None:
            if life != self._life:
                return
            if health.errors and dice.random() < health.errors:
                failed()
                return
            persists = [self._queue.popleft() for _ in range(batch)]
            self.arrived(persists)
            self._busy = False
            if self._queue:
                self._sync(done, failed)
            done(persists[-1].token)

        self.world.after(delay, synced)
