"""The store against its model through any operations and restarts, as short as they get."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from store_bench import Bench, Failed
from store_model import GRAVES
from store_node import Plan
from store_schedules import SHAPES

from warren.store.faulty_disk import Faults, FaultyDisk, PowerCut
from warren.store.upkeep import UpkeepSettings

SIZES = st.sampled_from([0, 10, 200, 3000])


class StoreMachine(RuleBasedStateMachine):
    """Everything a broker does to its store, and everything that can end it."""

    @initialize(
        seed=st.integers(0, 1 << 16),
        segment_bytes=st.sampled_from([4096, 16384]),
        inline_chunks=st.sampled_from([0, 32]),
        compact_below=st.sampled_from([0.25, 0.95]),
    )
    def begin(
        self, seed: int, segment_bytes: int, inline_chunks: int, compact_below: float
    ) -> None:
        settings = UpkeepSettings(
            checkpoint_bytes=5000,
            dead_bytes=1,
            patience_ticks=1,
            compact_below=compact_below,
            waste_bytes=1,
            inline_chunks=inline_chunks,
            indexes_a_tick=1,
        )
        self.disk = FaultyDisk(seed)
        self.bench = Bench(self.disk, Plan(segment_bytes, seed, settings))
        for shape in (GRAVES, *SHAPES):
            self.bench.create(shape)

    def queue(self, n: int) -> int:
        queues = self.bench.open_queues
        return queues[n % len(queues)]

    # -- what clients do ---------------------------------------------------------------------------

    @precondition(lambda self: self.bench.open_queues)
    @rule(
        chosen=st.sets(st.integers(0, 7), min_size=1, max_size=3),
        count=st.sampled_from([1, 1, 3, 20, 450]),
        persistent=st.booleans(),
        size=SIZES,
        priority=st.integers(0, 4),
    )
    def publish(
        self, chosen: set[int], count: int, persistent: bool, size: int, priority: int
    ) -> None:
        queues = sorted({self.queue(n) for n in chosen})
        for _ in range(count):
            self.bench.publish(queues, persistent, size if count < 100 else 10, priority)

    @precondition(lambda self: self.bench.open_queues)
    @rule(n=st.integers(0, 7), no_ack=st.booleans(), count=st.integers(1, 40))
    def get(self, n: int, no_ack: bool, count: int) -> None:
        for _ in range(count):
            if not self.bench.get(self.queue(n), no_ack):
                break

    @precondition(lambda self: self.bench.by_slot)
    @rule(n=st.integers(0, 100), how=st.sampled_from(["ack", "reject", "requeue"]))
    def settle(self, n: int, how: str) -> None:
        held = sorted(self.bench.by_slot)
        self.bench.settle(*held[n % len(held)], how)

    @precondition(lambda self: any(self.bench.delivered.values()))
    @rule(
        n=st.integers(0, 100),
        multiple=st.booleans(),
        how=st.sampled_from(["ack", "reject", "requeue"]),
    )
    def settle_delivery(self, n: int, multiple: bool, how: str) -> None:
        held = [(q, tag) for q, tags in self.bench.delivered.items() for tag in tags]
        self.bench.settle_tag(*held[n % len(held)], multiple, how)

    @precondition(lambda self: self.bench.open_queues)
    @rule(n=st.integers(0, 7), prefetch=st.integers(0, 5))
    def consume(self, n: int, prefetch: int) -> None:
        queue_id = self.queue(n)
        if queue_id in self.bench.consumers:
            self.bench.cancel(queue_id)
        elif self.bench.queues[queue_id].shape.ttl_ms < 0:
            self.bench.consume(queue_id, prefetch)

    @precondition(lambda self: self.bench.open_queues)
    @rule(n=st.integers(0, 7), delete=st.booleans())
    def purge_or_delete(self, n: int, delete: bool) -> None:
        (self.bench.delete if delete else self.bench.purge)(self.queue(n))

    @rule()
    def declare_again(self) -> None:
        there = {self.bench.queues[i].shape for i in self.bench.open_queues}
        for shape in (GRAVES, *SHAPES):
            if shape not in there:
                self.bench.create(shape)

    @rule(ms=st.sampled_from([1, 600]))
    def pass_time(self, ms: int) -> None:
        self.bench.pass_time(ms)

    # -- what the store does -----------------------------------------------------------------------

    @rule()
    def end_turn(self) -> None:
        self.bench.turn()

    @rule()
    def write(self) -> None:
        self.bench.turn()
        self.bench.step()

    @rule(times=st.integers(1, 5), write=st.booleans())
    def keep_up(self, times: int, write: bool) -> None:
        for _ in range(times):
            self.bench.tick()
            if write:
                self.bench.step()

    @precondition(lambda self: self.bench.open_queues)
    @rule(n=st.integers(0, 7), keep=st.sampled_from([0, 5]), indexes=st.integers(0, 2))
    def page_out(self, n: int, keep: int, indexes: int) -> None:
        queue = self.bench.node.queues[self.queue(n)]
        queue.page_out(keep)
        queue.write_indexes(indexes)

    # -- what ends it ------------------------------------------------------------------------------

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        """Between two operations."""
        if power:
            self.disk.cut_power()
        self.come_back(clean=False)

    @rule(
        operation=st.integers(1, 12),
        power=st.booleans(),
        where=st.sampled_from(["write", "checkpoint", "upkeep", "stop"]),
    )
    def crash_inside(self, operation: int, power: bool, where: str) -> None:
        """In the middle of something that touches the disk."""
        self.disk.cut_at = self.disk.operations + operation
        clean = False
        try:
            self.bench.turn()
            if where == "stop":
                self.bench.stop()
                clean = True
            elif where == "checkpoint":
                self.bench.begin_checkpoint()
            for _ in range(4 * (where in {"checkpoint", "upkeep"})):
                self.bench.step()
                self.bench.tick()
            if not clean:
                self.bench.step()
        except PowerCut:
            pass
        if power:
            self.disk.cut_power()
        self.come_back(clean)

    @rule(short=st.booleans(), sync=st.booleans())
    def fail(self, short: bool, sync: bool) -> None:
        """The disk fails, the process ends."""
        self.disk.faults = Faults(
            write_error=0.0 if sync else 1.0, short_write=float(short), sync_error=float(sync)
        )
        try:
            self.bench.turn()
            self.bench.step()
            self.bench.tick()
        except Failed:
            pass
        self.come_back(clean=False)

    @rule()
    def stop(self) -> None:
        self.bench.stop()
        self.come_back(clean=True)

    def come_back(self, clean: bool) -> None:
        self.disk.cut_at = None
        self.disk.faults = Faults()
        self.bench.restart(clean)
        self.bench.catch_up()

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def all_is_counted(self) -> None:
        self.bench.check()

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.settle_down()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
