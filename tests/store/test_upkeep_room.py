"""What nobody needs of the log gives its room back, and what is needed is left where it stands."""

from __future__ import annotations

import pytest
import store_bench
from store_bench import Bench
from store_model import Shape
from store_node import Plan

from warren.store.faulty_disk import FaultyDisk
from warren.store.upkeep import UpkeepSettings
from warren.wire.properties import encode_properties

SEGMENT_BYTES = 65_536
LONG, OTHER = 1, 2


def make_bench(**settings: float) -> Bench:
    """Two queues, and the product's settings at a thousandth of its sizes."""
    product = UpkeepSettings()
    scaled = {
        name: getattr(product, name) // 1024
        for name in UpkeepSettings.__slots__
        if name.endswith("_bytes")
    }
    bench = Bench(FaultyDisk(1), Plan(SEGMENT_BYTES, 7, UpkeepSettings(**scaled | settings)))
    assert bench.create(Shape("long", ttl_ms=500)) == LONG
    assert bench.create(Shape("other")) == OTHER
    write(bench)
    return bench


def write(bench: Bench) -> None:
    bench.turn()
    bench.step()


def rest(bench: Bench, ticks: int = 400) -> None:
    for _ in range(ticks):
        bench.tick()
        bench.step()


def log_bytes(bench: Bench) -> int:
    return sum(size for _, _, size, *_ in bench.node.journal.list_segments())


def test_a_few_short_messages_do_not_keep_the_room_of_long_ones() -> None:
    """Those of another queue, which stand in the same segments."""
    bench = make_bench()
    for i in range(150):
        if i % 40 == 0:
            bench.publish([OTHER], True, 10)
        bench.publish([LONG], True, 1000)
        write(bench)
    assert log_bytes(bench) > 150_000
    bench.pass_time(1000)
    write(bench)
    rest(bench)
    assert log_bytes(bench) < 20_000, bench.node.journal.list_segments()
    bench.settle_down()
    bench.restart()


def test_the_room_of_long_messages_is_given_back_while_the_log_is_written_to() -> None:
    """There is more of it then, and it stays within bounds."""
    bench = make_bench()
    for i in range(3000):
        if i % 40 == 0:
            bench.publish([OTHER], True, 10)
        bench.publish([LONG], True, 1000)
        bench.pass_time(10)
        write(bench)
        bench.tick()
    settings = bench.node.upkeep.settings
    assert log_bytes(bench) < settings.waste_bytes + settings.dead_bytes + 3 * SEGMENT_BYTES


def test_short_messages_that_are_all_needed_are_not_moved_about() -> None:
    """A record is longer than its body: what is needed of a segment is all of its records."""
    bench = make_bench()
    for _ in range(4000):
        bench.publish([OTHER], True, 10)
        write(bench)
        bench.tick()
    assert log_bytes(bench) > 2 * bench.node.upkeep.settings.waste_bytes
    written = bench.node.journal.messages_written
    rest(bench, 4000)
    assert bench.node.journal.messages_written == written


def test_messages_with_long_headers_are_not_moved_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header is no body, and is needed as well."""

    def long_header(persistent: bool, _priority: int, size: int) -> bytes:
        mode = 2 if persistent else 1
        return encode_properties({"delivery_mode": mode, "headers": {"long": "x" * 1000}}, size)

    monkeypatch.setattr(store_bench, "header_of", long_header)
    bench = make_bench()
    for _ in range(600):
        bench.publish([OTHER], True, 10)
        write(bench)
        bench.tick()
    assert log_bytes(bench) > 2 * bench.node.upkeep.settings.waste_bytes
    written = bench.node.journal.messages_written
    rest(bench, 4000)
    assert bench.node.journal.messages_written == written
    # Most of them leave: now it is worth while.
    for _ in range(550):
        while not bench.get(OTHER, True):
            write(bench)
    write(bench)
    rest(bench, 4000)
    assert log_bytes(bench) < 100_000
    bench.settle_down()
    bench.restart()
