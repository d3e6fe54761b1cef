"""Seeded schedules for the store's bench; also a command, for runs longer than a test's.

python tests/store/store_schedules.py --seeds 20000
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable

from store_bench import Bench, Failed
from store_model import GRAVES, Shape
from store_node import Plan

from warren.store.faulty_disk import Faults, FaultyDisk, PowerCut
from warren.store.upkeep import Done, UpkeepSettings, at_once

SHAPES = (
    Shape("plain"),
    Shape("levels", max_priority=3),
    Shape("brief", ttl_ms=500, dead_letters=True),
    Shape("counted", delivery_limit=2, dead_letters=True),
    Shape("short", max_length=12, dead_letters=True),
    Shape("nothing", max_length=0, dead_letters=True),
    Shape("memory", durable=False),
)
SIZES = (0, 0, 10, 30, 200, 700, 3000)


def make_plan(source: random.Random) -> Plan:
    return Plan(
        segment_bytes=source.choice([4096, 8192, 16384]),
        salt=source.getrandbits(32),
        upkeep=UpkeepSettings(
            checkpoint_bytes=source.choice([3000, 10_000, 40_000]),
            dead_bytes=source.choice([1, 20_000]),
            patience_ticks=source.choice([1, 3]),
            compact_below=source.choice([0.25, 0.6, 0.95]),
            waste_bytes=source.choice([1, 5000]),
            rest_waste_bytes=1,
            inline_chunks=source.choice([0, 1, 32]),
            indexes_a_tick=source.choice([1, 2]),
        ),
    )


class Schedule:
    """One store's story, from one seed."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.plan = make_plan(self.random)
        if plan is not None:
            plan.segment_bytes, plan.salt = self.plan.segment_bytes, self.plan.salt
            plan.upkeep = self.plan.upkeep
            self.plan = plan
        self.faults = Faults(
            write_error=self.random.choice([0, 0, 0, 0.01]),
            short_write=self.random.choice([0, 0.2]),
            sync_error=self.random.choice([0, 0, 0, 0.02]),
        )
        self.disk = FaultyDisk(seed)
        self.bench = Bench(self.disk, self.plan)
        self.crashes = 0
        self.stops = 0

    def go(self) -> Schedule:
        for _ in range(self.random.randrange(1, 4)):
            self.live()
        if self.random.random() < 0.3:
            self.bench.settle_down()
        return self

    def live(self) -> None:
        """One life, its end, and coming back."""
        self.disk.faults = self.faults
        way = self.random.random()
        if way < 0.75:
            self.disk.cut_at = self.disk.operations + self.random.randrange(
                1, self.random.choice([30, 100, 400])
            )
        clean = False
        self.bench.node.upkeep.aside = self.aside
        try:
            if self.random.random() < 0.3:
                self.bench.begin_checkpoint()
            self.bench.catch_up()
            self.ensure_queues()
            for _ in range(self.random.randrange(5, self.random.choice([60, 60, 200]))):
                self.act()
            if way > 0.85:
                if self.random.random() < 0.3:
                    self.disk.cut_at = self.disk.operations + self.random.randrange(1, 12)
                self.bench.stop()
                clean = True
                self.stops += 1
        except (PowerCut, Failed):
            pass
        self.crashes += not clean
        # A process that is killed leaves the files as they are; a power cut does not.
        if self.random.random() < (0.3 if clean else 0.7):
            self.disk.cut_power()
        self.come_back(clean)

    def aside(self, work: Callable[[], None], done: Done) -> None:
        """A checkpoint is written, and here the power goes more often than elsewhere."""
        if self.random.random() < 0.2:
            self.disk.cut_at = self.disk.operations + self.random.randrange(1, 10)
        at_once(work, done)

    def come_back(self, clean: bool) -> None:
        self.disk.cut_at = None
        self.disk.faults = Faults()
        while self.random.random() < 0.15:
            # The power goes while it recovers.
            self.disk.cut_at = self.disk.operations + self.random.randrange(1, 5)
            try:
                self.bench.restart(clean)
            except PowerCut:
                self.disk.cut_power()
                self.crashes += 1
            self.disk.cut_at = None
        self.bench.restart(clean)

    # -- what happens next -------------------------------------------------------------------------

    def ensure_queues(self) -> None:
        there = {self.bench.queues[i].shape for i in self.bench.open_queues}
        for shape in (GRAVES, *SHAPES):
            if shape not in there and self.random.random() < 0.8:
                self.bench.create(shape)

    def act(self) -> None:
        bench, source = self.bench, self.random
        queues = bench.open_queues
        if not queues:
            self.ensure_queues()
            return
        what = source.random()
        queue_id = source.choice(queues)
        if what < 0.30:
            self.publish(queues)
        elif what < 0.48:
            self.take(queue_id)
        elif what < 0.62:
            self.settle()
        elif what < 0.74:
            bench.turn()
            bench.step()
        elif what < 0.82:
            for _ in range(source.randrange(1, 4)):
                bench.tick()
                if source.random() < 0.5:
                    bench.step()
        elif what < 0.87:
            bench.node.queues[queue_id].page_out(source.choice([0, 0, 3, 50]))
        elif what < 0.90:
            bench.node.queues[queue_id].write_indexes(source.choice([1, 5]))
        elif what < 0.93:
            bench.pass_time(source.choice([1, 100, 600]))
        else:
            self.act_rarely(queue_id)

    def act_rarely(self, queue_id: int) -> None:
        bench, source = self.bench, self.random
        what = source.random()
        shape = bench.queues[queue_id].shape
        if what < 0.25:
            bench.check()
        elif what < 0.4:
            bench.purge(queue_id)
        elif what < 0.5:
            bench.delete(queue_id)
        elif what < 0.6:
            self.ensure_queues()
        elif queue_id in bench.consumers:
            bench.cancel(queue_id)
        elif shape.ttl_ms < 0:
            bench.consume(queue_id, source.choice([0, 1, 5, 20]))
        if what > 0.7:
            bench.turn()

    def publish(self, queues: list[int]) -> None:
        source = self.random
        count = source.choice([1, 1, 2, 5, 20])
        sizes = SIZES
        bulk = source.random() < 0.05
        if bulk:
            # Enough for whole chunks to leave memory.
            count, sizes = source.randrange(300, 600), SIZES[:3]
        chosen = source.sample(queues, min(len(queues), source.choice([1, 1, 1, 2, 3])))
        persistent = source.random() < 0.8
        change = source.choice([0, 0.02, 0.3])
        levels = source.choice([(0,), (0, 0, 1, 9)])
        for _ in range(count):
            if source.random() < change:
                persistent = not persistent
            self.bench.publish(chosen, persistent, source.choice(sizes), source.choice(levels))
        if bulk:
            self.press(chosen)

    def press(self, queue_ids: list[int]) -> None:
        """Memory is short: first their places are given out, then messages go, then chunks."""
        for _ in range(self.random.randrange(4)):
            for queue_id in queue_ids:
                self.bench.node.queues[queue_id].page_out(0)
            self.bench.turn()
            self.bench.step()

    def take(self, queue_id: int) -> None:
        no_ack = self.random.random() < 0.3
        for _ in range(self.random.choice([1, 3, 10, 60])):
            if self.bench.get(queue_id, no_ack) is False:
                self.bench.turn()
                self.bench.step()
                break

    def settle(self) -> None:
        source, bench = self.random, self.bench
        how = source.choice(["ack", "ack", "ack", "reject", "requeue"])
        for queue_id, held in bench.delivered.items():
            if held and source.random() < 0.5:
                tag = source.choice(sorted(held))
                bench.settle_tag(queue_id, tag, source.random() < 0.5, how)
                return
        for key in source.sample(sorted(bench.by_slot), min(len(bench.by_slot), 10)):
            bench.settle(*key, how)
        if source.random() < 0.5:
            bench.turn()


def run(seed: int, plan: Plan | None = None) -> Schedule:
    """Raises AssertionError with the seed in its notes."""
    schedule = None
    try:
        schedule = Schedule(seed, plan)
        return schedule.go()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep-going", action="store_true")
    options = parser.parse_args()
    began_s, failed, crashes = time.process_time(), 0, 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            crashes += run(seed).crashes
        except Exception:
            failed += 1
            traceback.print_exc()
            if not options.keep_going:
                break
    seconds = time.process_time() - began_s
    print(f"{options.seeds} schedules, {crashes} crashes, {failed} failed, {seconds:.1f} s of CPU")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
