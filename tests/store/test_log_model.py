"""The log against a list, through appends, crashes and reopening, on a disk that fails."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from old_segments import delete_dead_segments, list_segments

from warren.store.faulty_disk import Faults, FaultyDisk, PowerCut
from warren.store.scan import Scan, repair_tail, scan
from warren.store.scanner import Record
from warren.store.stepped_log import SteppedLog

SCHEDULES = 2000
CHUNKS = 8


@dataclass
class Run:
    """One schedule: a disk, what was appended, and what was promised."""

    disk: FaultyDisk
    random: random.Random
    segment_bytes: int
    appended: dict[int, bytes] = field(default_factory=dict)
    promised: int = 0
    low_water: int = 1
    crashes: int = 0
    tag: int = 0

    def live(self, log: SteppedLog, appends: int) -> None:
        """Append and step until the disk or the power fails, or it was enough."""
        for _ in range(appends):
            self.tag += 1
            body = b"%d:" % self.tag + self.random.randbytes(self.random.choice([0, 3, 40, 700]))
            self.appended[log.append(1, body, queue_id=self.tag)] = body
            if self.random.random() < 0.4:
                log.step()
                self.promised = log.persisted
                log.check()
            if self.random.random() < 0.05:
                self.low_water = max(self.low_water, log.persisted - 20)
                delete_dead_segments(self.disk, self.low_water)
        log.close()
        self.promised = log.persisted

    def recover(self) -> Scan:
        found = scan(self.disk)
        records = list(found)
        self.examine(found, records)
        repair_tail(found)
        again = scan(self.disk)
        assert list(again) == records
        assert again.torn_tail is None
        # What was read counts from now on: it has been synced.
        self.promised = found.next_sequence - 1
        self.appended = {n: b for n, b in self.appended.items() if n <= self.promised}
        return found

    def examine(self, found: Scan, records: list[Record]) -> None:
        assert found.sound, (found.damages, found.missing)
        numbers = [record.sequence for record in records]
        assert numbers == sorted(set(numbers))
        first = numbers[0] if numbers else self.low_water
        if self.promised >= self.low_water:
            assert first <= self.low_water
        assert numbers == list(range(first, first + len(numbers)))
        assert first + len(numbers) - 1 >= self.promised or self.promised < self.low_water
        for record in records:
            assert self.appended[record.sequence] == record.payload

    def go(self, rounds: int) -> None:
        next_sequence = 1
        for _ in range(rounds):
            log = SteppedLog(self.disk, next_sequence, self.segment_bytes)
            if self.random.random() < 0.8:
                self.disk.cut_at = self.disk.operations + self.random.randrange(1, 30)
            try:
                self.live(log, self.random.randrange(1, 25))
            except (PowerCut, OSError):
                self.crashes += 1
            # A killed process leaves the files as they are; a power cut does not.
            if self.random.random() < 0.8:
                self.disk.cut_power()
            self.disk.cut_at = None
            faults, self.disk.faults = self.disk.faults, Faults()
            next_sequence = self.recover().next_sequence
            self.disk.faults = faults


def schedule(seed: int) -> Run:
    source = random.Random(seed)
    faults = Faults(
        write_error=source.choice([0, 0, 0.02]),
        short_write=source.choice([0, 0.3]),
        sync_error=source.choice([0, 0, 0.05]),
    )
    run = Run(FaultyDisk(seed, faults), source, source.choice([200, 1500, 5000, 1 << 15]))
    run.go(source.randrange(1, 6))
    return run


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_was_promised_survives(chunk: int) -> None:
    crashes = sum(schedule(seed).crashes for seed in range(chunk, SCHEDULES, CHUNKS))
    assert crashes > SCHEDULES / CHUNKS


@settings(max_examples=200, deadline=None)
@given(st.integers(2**32, 2**48))
def test_what_was_promised_survives_any_seed(seed: int) -> None:
    schedule(seed)


def test_the_same_seed_is_the_same_run() -> None:
    for seed in range(20):
        one, two = schedule(seed), schedule(seed)
        assert one.disk.names() == two.disk.names()
        assert [one.disk.read(n) for n in one.disk.names()] == [
            two.disk.read(n) for n in two.disk.names()
        ]


@pytest.mark.parametrize("seed", range(200))
def test_after_a_failed_sync_nothing_more_is_promised(seed: int) -> None:
    source = random.Random(seed)
    disk = FaultyDisk(seed, Faults(sync_error=0.1))
    log = SteppedLog(disk, 1, source.choice([500, 1 << 15]))
    bodies: list[bytes] = []

    def append_until_it_fails() -> None:
        for n in range(10_000):
            bodies.append(b"%d" % n * source.randrange(1, 50))
            log.append(1, bodies[-1])
            if source.random() < 0.5:
                log.step()

    with pytest.raises(OSError, match="error"):
        append_until_it_fails()
    promised = log.persisted
    syncs = disk.syncs
    log.step()
    assert (log.persisted, disk.syncs) == (promised, syncs)
    disk.faults = Faults()
    disk.cut_power()
    found = scan(disk)
    records = list(found)
    assert found.sound
    assert len(records) >= promised
    assert [r.payload for r in records] == bodies[: len(records)]


@pytest.mark.parametrize("chunk", range(4))
def test_damage_after_a_crash_is_never_silent(chunk: int) -> None:
    for seed in range(chunk, 400, 4):
        run = schedule(seed + 10_000)
        segments = [s for s in list_segments(run.disk) if s.size_bytes]
        if not segments:
            continue
        before = list(scan(run.disk))
        victim = run.random.choice(segments)
        content = run.disk.read(victim.name)
        if run.random.random() < 0.5:
            run.disk.flip_bit(victim.name, run.random.randrange(len(content) * 8))
        else:
            run.disk.lose_end(victim.name, run.random.randrange(len(content)))
        found = scan(run.disk)
        after = list(found)
        assert set(after) <= set(before)
        cut_between_records = victim == segments[-1] and run.disk.size(victim.name) < len(content)
        zeros = not any(content[len(content) - 1 :])
        if len(after) < len(before) and not cut_between_records and not zeros:
            assert found.torn_tail or not found.sound
        if victim != segments[-1] and len(after) < len(before):
            assert not found.sound


def test_delays_are_told_and_not_slept() -> None:
    told: list[float] = []
    disk = FaultyDisk(1, Faults(delay_seconds_max=3600.0), told.append)
    log = SteppedLog(disk)
    log.append(1, b"x")
    log.close()
    assert len(told) == disk.operations
    assert max(told) <= 3600.0
    assert log.persisted == 1
