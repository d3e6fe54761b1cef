"""One simulated node: a Raft, its state machine and its disk. It may crash, pause and run fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.disk import FaultyDisk
from sim.ledger import Ledger
from sim.world import Violation
from warren.cluster.raft import codec
from warren.cluster.raft.effects import (
    Apply,
    Effect,
    Persist,
    ReadFailed,
    ReadReady,
    Restore,
    Role,
    RoleChanged,
    Send,
    SnapshotNeeded,
)
from warren.cluster.raft.messages import ReadContext
from warren.cluster.raft.raft import Raft
from warren.cluster.raft.types import EntryKind, ProtocolError, Stored
from warren.cluster.sessions import Outcome, Sessions

if TYPE_CHECKING:
    from sim.cluster import Cluster


class SimNode:
    """A process on a machine with its own clock."""

    def __init__(self, cluster: Cluster, name: str, stored: Stored) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.disk = FaultyDisk(self.world, stored)
        self.clock_rate = 1.0
        self.boot = 0
        self.is_up = False
        self._paused = False
        self._backlog: list[Callable[[], None]] = []
        self._tick_at = 0
        self.raft: Raft
        self.machine: Sessions
        self.applied_index = 0
        #: Who waits for an outcome: called with every outcome this node applies.
        self.on_outcome: Callable[[Outcome], None] = cluster.on_outcome
        self.reads: dict[ReadContext, Callable[[bool], None]] = {}

    # -- life

    def start(self) -> None:
        self.boot += 1
        self.is_up = True
        self._paused = False
        self._backlog = []
        self.reads = {}
        self.machine = self.cluster.sessions_class(Ledger())
        self.applied_index = 0
        self._tick_at = 0
        self.raft = self.cluster.raft_class(
            self.name,
            self.disk.stored,
            self.cluster.settings,
            self.world.random.randint,
            self.boot,
            self.now_ms,
        )
        self.world.note(f"start {self.name} term={self.raft.term} last={self.raft.log.last_index}")
        self.cluster.oracles.started(self)
        self.pump()

    def crash(self) -> None:
        if self.is_up:
            self.world.note(f"crash {self.name}")
            self.is_up = False
            self.disk.crash()
            self.cluster.oracles.crashed(self)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        """Everything that has come meanwhile comes now, after a look at the clock."""
        if not self._paused:
            return
        self._paused = False
        backlog, self._backlog = self._backlog, []
        if self.is_up:
            self._tick()
            for action in backlog:
                self._when_awake(action)

    @property
    def now_ms(self) -> int:
        return int(self.world.now_us * self.clock_rate) // 1000

    @property
    def is_leader(self) -> bool:
        return self.is_up and self.raft.role is Role.LEADER

    def _when_awake(self, action: Callable[[], None]) -> None:
        if self._paused:
            self._backlog.append(action)
        else:
            action()

    def _in_this_life(self, action: Callable[[], None]) -> Callable[[], None]:
        boot = self.boot

        def guarded() -> None:
            if self.is_up and self.boot == boot:
                action()

        return guarded

    # -- inputs

    def deliver(self, source: str, data: bytes) -> None:
        if self.is_up:
            self._when_awake(self._in_this_life(lambda: self._receive(source, data)))

    def _receive(self, source: str, data: bytes) -> None:
        self.world.note_bytes(data)
        try:
            self.raft.receive(source, codec.decode(data), self.now_ms)
        except ProtocolError as error:
            self.cluster.oracles.fail(f"{self.name} cannot believe {source}: {error}")
        self.pump()

    def _tick(self) -> None:
        self.raft.tick(self.now_ms)
        self.pump()

    def _schedule_tick(self) -> None:
        due_ms = max(self.raft.next_tick_ms, self.now_ms + 1)
        at = int(due_ms * 1000 / self.clock_rate) + 1000
        if self._tick_at <= self.world.now_us or at < self._tick_at:
            self._tick_at = at
            self.world.at(at, self._in_this_life(lambda: self._tick_due(at)))

    def _tick_due(self, at: int) -> None:
        if at == self._tick_at:
            self._tick_at = 0
            self._when_awake(self._in_this_life(self._tick))

    def read(self, done: Callable[[bool], None]) -> None:
        """Begin a read; `done(False)` if it failed."""
        floor = self.cluster.oracles.commit_max
        context = self.raft.read_index()
        if isinstance(context, tuple):
            self.cluster.read_floors[self.name, context] = floor
            self.reads[context] = done
            self.pump()
        else:
            done(False)

    # -- effects

    def pump(self) -> None:
        """Have the oracles look at the node, then carry out all effects."""
        while True:
            effects = self.raft.take_effects()
            self.cluster.oracles.saw(self, effects)
            self.cluster.oracles.look(self)
            if not effects:
                break
            for effect in effects:
                self._carry_out(effect)
        self._schedule_tick()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                data = codec.encode(effect.message)
                self.cluster.network.send(self.name, effect.to, data)
            case Persist():
                self.disk.write(effect, self._on_synced(), self._in_this_life(self.fail_disk))
            case Apply():
                self._apply(effect)
            case Restore():
                if effect.snapshot.index <= self.applied_index:
                    raise Violation(f"{self.name} restores what it has applied")
                self.machine.restore(effect.snapshot.data)
                self.applied_index = effect.snapshot.index
            case ReadReady():
                if self.applied_index < effect.index:
                    raise Violation(f"{self.name} answers a read before it is applied")
                self.cluster.oracles.read_ready(self, effect)
                self.reads.pop(effect.context)(True)
            case ReadFailed():
                self.reads.pop(effect.context)(False)
            case RoleChanged():
                self.world.note(f"{self.name} {effect.role.value} {effect.term} {effect.leader}")
            case SnapshotNeeded():
                delay = self.world.random.choice((0, 0, 5_000, 100_000))
                self.world.after(delay, self._in_this_life(self.take_snapshot))

    def take_snapshot(self) -> None:
        """Compact the log, as the owner does some time after it was asked to."""
        self.raft.compact(self.applied_index, self.machine.image())
        self.pump()

    def _on_synced(self) -> Callable[[int], None]:
        boot = self.boot

        def synced(token: int) -> None:
            if self.is_up and self.boot == boot:
                self._when_awake(self._in_this_life(lambda: self._persisted(token)))

        return synced

    def _persisted(self, token: int) -> None:
        self.raft.persisted(token)
        self.pump()

    def fail_disk(self) -> None:
        """A node whose disk has failed stops at once; it comes back with what was synced."""
        self.world.note(f"disk error {self.name}")
        self.crash()
        self.cluster.restart_later(self)

    def _apply(self, effect: Apply) -> None:
        if effect.first_index != self.applied_index + 1:
            raise Violation(f"{self.name} applies {effect.first_index} after {self.applied_index}")
        for entry in effect.entries:
            self.applied_index += 1
            self.cluster.oracles.applied(self, self.applied_index, entry)
            if entry.kind is EntryKind.COMMAND:
                self.on_outcome(self.machine.apply(self.applied_index, entry.data))
