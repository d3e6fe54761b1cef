"""A few replicas on a bench: frames and syncs happen when a scenario says so, in any order."""

from __future__ import annotations

from collections import deque
from typing import Any

from sim.ring_cluster import Rules
from sim.ring_model import Copy, ModelLog, Op
from warren.cluster.metadata import View
from warren.replication import effects
from warren.replication.replica import Replica
from warren.replication.settings import ReplicaSettings

Write = tuple[str, tuple[Any, ...], int, int, bool]


class BenchNode:
    """A replica, its log and its disk."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.name = bench, name
        self.disk = Copy(bench.rules.state)
        self.started: deque[list[Write]] = deque()
        self.start()

    def start(self) -> None:
        """A new process, with what the disk has."""
        self.writes: list[Write] = []
        self.started.clear()
        self.log: ModelLog = self.bench.rules.log(self.disk.clone(), 1_000, self._write)
        self.replica: Replica = self.bench.rules.replica(
            self.name, 7, self.log, self.bench.settings, self.bench.now_ms
        )
        self.said: list[effects.Effect] = []

    def _write(self, kind: str, what: tuple[Any, ...]) -> None:
        is_full = self.log.gap[0] >= self.log.gap[1]
        self.writes.append((kind, what, self.log.generation, self.log.last_index, is_full))

    def begin_sync(self) -> None:
        """What has been written so far is on its way to the disk."""
        self.started.append(self.writes)
        self.writes = []

    def end_sync(self) -> None:
        """The oldest sync that was begun is over."""
        writes = self.started.popleft()
        for kind, what, *_ in writes:
            getattr(self.disk, kind)(*what)
        if writes:
            self.replica.persisted(*writes[-1][2:])
        for kind, what, *_ in writes:
            if kind == "adopt":
                self.replica.epoch_persisted(what[0])
        self.pump()

    def sync(self) -> None:
        self.begin_sync()
        while self.started:
            self.end_sync()

    def do(self, *ops: Op) -> None:
        """The master's queue does something."""
        self.replica.appended(self.log.append_ops(self.replica.epoch, list(ops)))
        self.pump()

    def pump(self) -> None:
        for effect in self.replica.take_effects():
            match effect:
                case effects.Send(to, frame):
                    self.bench.wire(self.name, to).append(frame)
                case effects.AdoptEpoch(epoch):
                    self.log._record("adopt", epoch)
                case effects.Commit(index):
                    self.log.apply(index)
                case _:
                    self.said.append(effect)

    def told(self, kind: type[effects.Effect]) -> list[Any]:
        return [effect for effect in self.said if isinstance(effect, kind)]

    def read_chunk(self, number: int = -1) -> None:
        """Answer a `ReadChunk`, the last one if not said otherwise."""
        asked = self.told(effects.ReadChunk)[number]
        cursor, data, is_last = self.log.read_chunk(asked.after, asked.upto, asked.bytes_max)
        self.replica.chunk_read(asked.learner, asked.session, cursor, data, is_last)
        self.pump()


class Bench:
    """Nodes a, b, c, ... and the wires between them."""

    def __init__(self, names: str, rules: Rules | None = None, **settings: Any) -> None:
        self.rules = rules or Rules()
        self.settings = ReplicaSettings(**settings)
        self.now_ms = 0
        self._wires: dict[tuple[str, str], deque[bytes]] = {}
        #: Wires that carry nothing at present.
        self.held: set[tuple[str, str]] = set()
        self.nodes = {name: BenchNode(self, name) for name in names}

    def __getitem__(self, name: str) -> BenchNode:
        return self.nodes[name]

    def wire(self, source: str, target: str) -> deque[bytes]:
        return self._wires.setdefault((source, target), deque())

    def view(
        self, epoch: int, in_sync: str, learners: str = "", to: str = "", unclean: int = 0
    ) -> None:
        """A view whose master is the first in sync, told to these nodes or to all of it."""
        wanted = tuple(in_sync + learners)
        view = View(epoch, in_sync[0], tuple(in_sync), tuple(learners), wanted, unclean)
        for name in to or in_sync + learners:
            self.nodes[name].replica.view(view, True)
            self.nodes[name].pump()

    def take(self, source: str, target: str, number: int = 0) -> None:
        """Deliver one frame of a wire."""
        wire = self.wire(source, target)
        frame = wire[number]
        del wire[number]
        self.give(source, target, frame)

    def give(self, source: str, target: str, frame: bytes) -> None:
        node = self.nodes[target]
        node.replica.receive(source, frame, self.now_ms)
        node.pump()

    def settle(self, without: str = "") -> None:
        """Everything that can happen happens, but to these nodes."""
        for _ in range(500):
            is_busy = False
            for (source, target), wire in list(self._wires.items()):
                if source in without or target in without or (source, target) in self.held:
                    continue
                while wire:
                    is_busy = True
                    self.take(source, target)
            for name, node in self.nodes.items():
                if name not in without and node.writes:
                    is_busy = True
                    node.sync()
            if not is_busy:
                return
        raise AssertionError("no end")

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        for node in self.nodes.values():
            node.replica.tick(self.now_ms)
            node.pump()
