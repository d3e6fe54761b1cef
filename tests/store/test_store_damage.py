"""Bit flips, cuts and lost files at every record of a small store: never silent, never a stop."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from store_bench import Bench
from store_model import GRAVES, Shape, body_of
from store_node import Node, Plan
from store_schedules import Schedule

from warren.store.faulty_disk import FaultyDisk
from warren.store.journal import Journal
from warren.store.records import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Kind,
    segment_first_sequence,
)
from warren.store.scanner import Record, read_records
from warren.store.upkeep import UpkeepSettings

#: (number, flagged as redelivered) of each message in turn, by queue.
Served = dict[str, list[tuple[int, bool]]]
PLAN = Plan(segment_bytes=2048, salt=77, upkeep=UpkeepSettings(inline_chunks=1))


@dataclass(frozen=True)
class Story:
    """A store that has come to an end, and what it would serve."""

    files: dict[str, bytes]
    served: Served
    numbers: set[int]
    plan: Plan
    wall_ms: int


@cache
def story(clean: bool) -> Story:
    """Queues of all kinds, paged and indexed, a checkpoint in the middle, then more of the same."""
    source = random.Random(5)
    bench = Bench(FaultyDisk(5), PLAN)
    shapes = [Shape("plain"), Shape("levels", max_priority=2), Shape("counted", delivery_limit=3)]
    queues = [bench.create(shape) for shape in (GRAVES, *shapes)]
    for count in (450, 40):
        for n in range(count):
            chosen = queues[1:2] if count > 100 else source.sample(queues, 1 + n % 2)
            bench.publish(chosen, n % 9 > 0, source.choice([0, 10, 90, 300 * (n % 40 == 0)]), n % 3)
            if n % 7 == 0:
                bench.turn()
                bench.step()
        for queue_id in queues:
            for _ in range(6):
                if bench.get(queue_id, False) is False:
                    bench.turn()
                    bench.step()
            for i, key in enumerate(sorted(bench.by_slot)):
                bench.settle(*key, ("ack", "requeue", "ack")[i % 3])
        for _ in range(3):
            bench.node.queues[queues[1]].page_out(0)
            bench.turn()
            bench.step()
        if count > 100:
            bench.begin_checkpoint()
            while bench.node.upkeep.is_busy:
                bench.step()
                bench.tick()
    assert any(spilled for _, _, spilled, _ in bench.node.queues[queues[1]].index_places())
    if clean:
        bench.stop()
    return the_end(bench)


def the_end(bench: Bench) -> Story:
    """What is on the disk now, and what it would serve."""
    numbers = set(range(1, bench.next_number))
    files = {name: bench.disk.read(name) for name in bench.disk.names()}
    node = Node(disk_of(files), bench.plan, 1000, bench.wall_ms)
    assert node.recovery.damages == []
    served = drain(node)
    assert node.unreadable == []
    return Story(files, served, numbers, bench.plan, bench.wall_ms)


def disk_of(files: dict[str, bytes]) -> FaultyDisk:
    disk = FaultyDisk()
    for name, data in files.items():
        disk.create(name)
        disk.append(name, data)
        disk.sync(name)
    disk.sync_names()
    return disk


def start(told: Story, disk: FaultyDisk) -> Node:
    return Node(disk, told.plan, 1000, told.wall_ms)


def drain(node: Node) -> Served:
    """All that the queues hand out, to the end."""
    served: Served = {}
    for queue in node.queues.values():
        taken = served[queue.name] = []
        while (found := queue.get(True, node.now_ms)) is not None:
            if found == 0:
                node.journal.finish_turn()
                node.log.step()
                node.journal.moved_on(node.now_ms)
                continue
            message, _, redelivered = found
            number = int(bytes(message.body[:20]).partition(b":")[0])
            assert message.body == body_of(number, len(message.body))
            taken.append((number, redelivered))
        assert queue.ready == 0
    return served


def segments_of(files: dict[str, bytes]) -> list[str]:
    return [name for name in sorted(files) if segment_first_sequence(name) is not None]


def records_of(files: dict[str, bytes], name: str) -> list[Record]:
    first = segment_first_sequence(name)
    assert first is not None
    return read_records(files[name], SEGMENT_HEADER_BYTES, first, 1 << 20, PLAN.salt)[0]


@dataclass
class Outcome:
    node: Node
    served: Served
    loud: bool
    torn: bool

    def as_before(self, told: Story) -> bool:
        """Everything is served; more may be flagged as redelivered, and nothing less."""
        if self.served.keys() != told.served.keys():
            return False
        for name, messages in told.served.items():
            if [n for n, _ in messages] != [n for n, _ in self.served[name]]:
                return False
            if not {n for n, flagged in messages if flagged} <= {
                n for n, flagged in self.served[name] if flagged
            }:
                return False
        return True

    def lost(self, told: Story) -> set[int]:
        """Messages that no queue serves any more where it should."""
        return {
            number
            for name, messages in told.served.items()
            for number in {n for n, _ in messages} - {n for n, _ in self.served.get(name, [])}
        }


def outcome(told: Story, files: dict[str, bytes], thorough: bool = True) -> Outcome:
    """Start on damaged files, drain, start again: the rules that always hold."""
    disk = disk_of(files)
    node = start(told, disk)
    reported = list(node.recovery.damages)
    served = drain(node)
    for name, messages in served.items():
        numbers = [n for n, _ in messages]
        assert len(numbers) == len(set(numbers)), f"{name} serves a message twice"
        assert set(numbers) <= told.numbers
    damaged = [queue.name for queue in node.queues.values() if queue.damage or queue.unreadable]
    for name, _, _ in node.unreadable:
        assert name in damaged
    torn = any("not finished" in note for note in node.recovery.notes)
    if thorough:
        start_again(told, node, files, served)
    return Outcome(node, served, bool(reported or damaged), torn)


def start_again(told: Story, node: Node, files: dict[str, bytes], served: Served) -> None:
    # What was drained stays drained, and a checkpoint leaves the damage behind.
    node.journal.finish_turn()
    node.log.step()
    node.journal.moved_on(node.now_ms)
    again = start(told, node.disk)
    assert drain(again) == {name: [] for name in served}
    again.upkeep.begin()
    while again.upkeep.is_busy:
        again.log.step()
        again.journal.moved_on(again.now_ms)
        again.upkeep.tick()
    assert again.upkeep.error is None
    assert start(told, node.disk).recovery.damages == []
    # Starting a second time without anything in between comes to the same, unless the newest
    # segment is gone altogether: then the one before it is judged as the newest.
    disk = disk_of(files)
    first = start(told, disk)
    second = drain(start(told, disk))
    if segments_of(files) == segments_of(dict.fromkeys(disk.names(), b"")):
        assert second == served, first.recovery.notes


def flips(
    data: bytes, at: int, size: int, source: random.Random, count: int = 1
) -> Iterator[bytes]:
    for _ in range(count):
        spoilt = bytearray(data)
        spoilt[at + source.randrange(size)] ^= 1 << source.randrange(8)
        yield bytes(spoilt)


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "stopped"])
def test_a_flipped_bit_is_never_silent(clean: bool) -> None:
    told = story(clean)
    source = random.Random(1)
    names = segments_of(told.files)
    tried = 0
    for name in names:
        data = told.files[name]
        for record in records_of(told.files, name):
            size = RECORD_HEADER_BYTES + len(record.payload)
            for spoilt in flips(data, record.offset, size, source):
                result = outcome(told, {**told.files, name: spoilt}, tried % 9 == 0)
                tried += 1
                where = f"{name}:{record.offset} {Kind(record.kind).name}"
                if not result.as_before(told):
                    assert result.loud or result.torn, f"{where}: a silent loss"
                if result.torn:
                    assert name == names[-1], f"{where}: cut in the middle"
                elif record.kind in {Kind.PUBLISH, Kind.MOVED}:
                    message = Journal().read_message(record.payload)
                    assert message is not None
                    own = int(bytes(message.body).partition(b":")[0])
                    assert result.lost(told) <= {own}, f"{where}: sound messages are lost"
    assert tried > 200


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "stopped"])
def test_a_cut_is_never_silent(clean: bool) -> None:
    told = story(clean)
    names = segments_of(told.files)
    tried = 0
    for name in names:
        data = told.files[name]
        for record in records_of(told.files, name):
            for cut in (record.offset, record.offset + 1 + record.sequence % 31):
                tried += 1
                result = outcome(told, {**told.files, name: data[:cut]}, tried % 9 == 0)
                where = f"{name} cut at {cut}"
                if not result.as_before(told) and name != names[-1]:
                    assert result.loud, f"{where}: a silent loss"
                # Cut between two records the newest segment looks whole: a shorter log.
                if not result.as_before(told) and cut != record.offset:
                    assert result.loud or result.torn, f"{where}: a silent loss"
                assert not result.torn or name == names[-1]


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "stopped"])
def test_a_lost_file_is_never_silent(clean: bool) -> None:
    told = story(clean)
    names = segments_of(told.files)
    for name in told.files:
        files = {n: data for n, data in told.files.items() if n != name}
        result = outcome(told, files)
        if not result.as_before(told) and name != names[-1]:
            assert result.loud, f"{name} is lost, silently"


def spoil_all(files: dict[str, bytes], pick: Callable[[str], bool]) -> dict[str, bytes]:
    return {
        name: data[:40] + bytes([data[40] ^ 1]) + data[41:] if pick(name) else data
        for name, data in files.items()
    }


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "stopped"])
def test_spoilt_checkpoints_are_never_silent(clean: bool) -> None:
    told = story(clean)
    checkpoints = [name for name in sorted(told.files) if name.endswith(".checkpoint")]
    source = random.Random(3)
    for name in checkpoints:
        data = told.files[name]
        for spoilt in (*flips(data, 0, len(data), source, 2), data[: len(data) // 2], b""):
            result = outcome(told, {**told.files, name: spoilt})
            assert result.as_before(told) or result.loud
    result = outcome(told, spoil_all(told.files, lambda name: name in checkpoints))
    assert result.as_before(told) or result.loud


def spoil(files: dict[str, bytes], source: random.Random) -> str:
    """Damage one file somehow; what was done."""
    name = source.choice(sorted(files) or ["nothing"])
    data = files.setdefault(name, b"")
    how = source.choice(["flip", "flip", "cut", "zeros", "garbage", "lose"])
    at = source.randrange(len(data)) if data else 0
    if how == "flip" and data:
        files[name] = next(flips(data, at, 1, source))
    elif how == "cut":
        files[name] = data[:at]
    elif how in {"zeros", "garbage"}:
        size = min(len(data) - at, source.choice([1, 30, 512, 5000]))
        piece = bytes(size) if how == "zeros" else source.randbytes(size)
        files[name] = data[:at] + piece + data[at + size :]
    elif how == "lose":
        del files[name]
    return f"{how} {name} at {at}"


@pytest.mark.parametrize("chunk", range(2))
def test_damage_after_any_schedule_is_never_silent(chunk: int) -> None:
    silent = 0
    for seed in range(20_000 + chunk, 20_300, 2):
        schedule = Schedule(seed)
        schedule.go()
        told = the_end(schedule.bench)
        for _ in range(3):
            files = dict(told.files) or {"nothing": b""}
            what = [spoil(files, schedule.random) for _ in range(schedule.random.choice([1, 1, 3]))]
            try:
                result = outcome(told, files)
            except Exception as error:
                error.add_note(f"seed {seed}, {what}")
                raise
            newest = max(segments_of(told.files), default="")
            at_the_end = result.torn or any(newest in w for w in what)
            if not result.as_before(told) and not at_the_end:
                assert result.loud, f"seed {seed}, {what}: a silent loss"
            silent += not result.loud
    assert silent < 300
