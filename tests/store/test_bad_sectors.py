"""Sectors that the disk has lost: what is around them is served, the loss is told, starts go on."""

from __future__ import annotations

import errno

import pytest
from store_bench import Bench
from store_model import Shape
from store_node import Node, Plan
from test_store_damage import Outcome, Story, drain, story

from warren.store.bad_sectors import PIECE_BYTES
from warren.store.faulty_disk import SECTOR_BYTES, FaultyDisk
from warren.store.records import Kind


class BadSectors(FaultyDisk):
    """Cannot read some sectors of some files until they are written anew."""

    def __init__(self, files: dict[str, bytes], bad: dict[str, set[int]], error: int) -> None:
        super().__init__()
        for name, data in files.items():
            self.create(name)
            self.append(name, data)
            self.sync(name)
        self.sync_names()
        self.bad, self.error = bad, error

    def try_to_read(self, name: str, at: int, size: int) -> None:
        for sector in self.bad.get(name, ()):
            if at < (sector + 1) * SECTOR_BYTES and sector * SECTOR_BYTES < at + size:
                raise OSError(self.error, "Input/output error", name)

    def read(self, name: str) -> bytes:
        self.try_to_read(name, 0, self.size(name))
        return super().read(name)

    def read_at(self, name: str, at: int, size: int) -> bytes:
        self.try_to_read(name, at, size)
        return super().read_at(name, at, size)

    def write_back(self, name: str, at: int) -> None:
        self.try_to_read(name, at, self.size(name))
        super().write_back(name, at)


def judged(told: Story, disk: FaultyDisk) -> Outcome:
    """Start, serve, go on, start again."""
    node = Node(disk, told.plan, 1000, told.wall_ms)
    reported = list(node.recovery.damages)
    served = drain(node)
    damaged = [queue for queue in node.queues.values() if queue.damage or queue.unreadable]
    node.journal.put(Kind.MARK, b"")
    node.journal.finish_turn()
    node.log.step()
    node.journal.advance()
    assert node.log.persisted == node.log.appended
    again = Node(disk, told.plan, 1000, told.wall_ms)
    assert drain(again) == {name: [] for name in served}
    return Outcome(node, served, bool(reported or damaged or node.unreadable), torn=False)


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "stopped"])
def test_any_one_sector(clean: bool) -> None:
    told = story(clean)
    tried = 0
    for name, data in told.files.items():
        for sector in range(-(-len(data) // SECTOR_BYTES)):
            tried += 1
            result = judged(told, BadSectors(told.files, {name: {sector}}, errno.EIO))
            where = f"sector {sector} of {name}"
            if not result.as_before(told):
                assert result.loud, f"{where}: a silent loss"
    assert tried > 100


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "stopped"])
def test_a_file_that_is_lost_altogether(clean: bool) -> None:
    """Also the newest, whose records nobody knows then: the next has a name of its own."""
    told = story(clean)
    for name, data in told.files.items():
        bad = {name: set(range(-(-len(data) // SECTOR_BYTES)))}
        result = judged(told, BadSectors(told.files, bad, errno.EIO))
        assert result.loud or result.as_before(told), name


def test_what_is_around_a_bad_sector_is_served() -> None:
    """A page of the log is lost, and no more messages than stood on it."""
    bench = Bench(FaultyDisk(1), Plan(1 << 17, 7))
    queue_id = bench.create(Shape("q"))
    for n in range(300):
        bench.publish([queue_id], True, 200)
        if n % 10 == 9:
            bench.turn()
            bench.step()
    (name,) = bench.disk.names()
    files = {name: bench.disk.read(name)}
    for sector in (0, 40, 100):
        disk = BadSectors(files, {name: {sector}}, errno.EIO)
        node = Node(disk, bench.plan, 1000, bench.wall_ms)
        if sector == 0:
            # The declaration of the queue stood there. What is for nobody is kept for somebody.
            assert any("does not know any more" in what for what in node.recovery.damages)
            continue
        assert "Input/output error" in node.recovery.damages[0]
        numbers = [number for number, _ in drain(node)["q"]]
        lost = sorted(set(range(1, 301)) - set(numbers))
        assert numbers == sorted(numbers)
        assert 1 <= len(lost) <= PIECE_BYTES // 200
        assert lost == list(range(lost[0], lost[-1] + 1))
        assert node.queues[queue_id].damage


@pytest.mark.parametrize("ending", [".wal", ".checkpoint"])
def test_a_file_that_may_not_be_read_is_no_damage(ending: str) -> None:
    """Nothing is served without it, and nothing is changed."""
    told = story(clean=True)
    name = max(name for name in told.files if name.endswith(ending))
    disk = BadSectors(told.files, {name: {0}}, errno.EACCES)
    with pytest.raises(OSError, match="Input/output"):
        Node(disk, told.plan, 1000, told.wall_ms)
    disk.bad = {}
    assert {name: disk.read(name) for name in disk.names()} == told.files
