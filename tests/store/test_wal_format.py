"""docs/internals/wal-format.md against real files, by a reader that is written from the page alone.

It shares nothing with the store but the checksum, so what the page says is what the files hold.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from test_store_damage import story

from warren.store.crc32c import checksum

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "wal-format.md"
OPERATIONS = {"PUBLISH", "GONE", "REQUEUE", "WATERMARK", "CURSOR"}
#: name -> number, as the page's table has them.
KINDS = {
    name: int(number)
    for number, name in re.findall(r"^\| (\d+) \| ([A-Z]+)[ *]*\|", PAGE.read_text(), re.MULTILINE)
}
NAMES = {number: name for name, number in KINDS.items()}


@dataclass
class Read:
    """What the files say."""

    version: int = 0
    salt: int = 0
    segments: dict[int, str] = field(default_factory=dict)
    records: dict[int, tuple[str, int, int, bytes]] = field(default_factory=dict)
    #: Of a place: what stands there.
    places: dict[int, tuple[str, bytes]] = field(default_factory=dict)


def read_segment(found: Read, name: str, data: bytes) -> None:
    assert data[:8] == b"WARRENWL"
    found.version, number, first, found.salt, crc = struct.unpack_from("<IIQII", data, 8)
    assert crc == checksum(data[:28])
    assert name == f"{first:016x}.wal"
    assert number not in found.segments
    found.segments[number] = name
    at, expected, unsynced = 32, first, 0
    while at < len(data) and any(data[at : at + 32]):
        crc, length, sequence, kind, flags, place, queue_id, epoch = struct.unpack_from(
            "<IIQBBHIQ", data, at
        )
        assert crc == checksum(data[at + 4 : at + 32 + length], found.salt)
        assert (sequence, flags, epoch) == (expected, 0, 0)
        assert place in {0, unsynced}
        unsynced = place + 1
        payload = data[at + 32 : at + 32 + length]
        found.records[sequence] = (NAMES[kind], queue_id, place, payload)
        found.places[number << 32 | at] = (NAMES[kind], payload)
        at += 32 + length
        expected += 1
    assert not any(data[at:])


def message_in(payload: bytes) -> tuple[list[tuple[int, ...]], bytes, bytes, bytes]:
    """Targets, address, header, body."""
    targets, a, h, b = struct.unpack_from("<IIII", payload)
    at = 16 + 56 * targets
    assert len(payload) == at + a + h + b
    rows = [struct.unpack_from("<IIQQQqQQ", payload, 16 + 56 * i) for i in range(targets)]
    parts = payload[at : at + a], payload[at + a : at + a + h], payload[at + a + h :]
    return rows, *parts


def entries_in(data: bytes) -> Iterator[tuple[int, int, int, int, int, int]]:
    assert len(data) % 24 == 0
    for at in range(0, len(data), 24):
        yield struct.unpack_from("<BBHIQq", data, at)


def check_indexes(found: Read) -> None:
    """Operations of a queue are numbered without a gap, and every record is as the page says."""
    last: dict[int, int] = {}

    def follows(queue_id: int, index: int) -> None:
        assert index == last.get(queue_id, 0) + 1
        last[queue_id] = index

    for _, (name, queue_id, _, payload) in sorted(found.records.items()):
        if name in {"PUBLISH", "MOVED", "PLACED"}:
            targets, address, header, body = message_in(payload)
            assert (address[1 + address[0] :], header[:2]) == (b"\x03key", b"\x00\x3c")
            assert int.from_bytes(header[4:12], "big") == len(body)
            assert queue_id == (targets[0][0] if len(targets) == 1 else 0)
            assert (name == "PLACED") == (not targets)
            for target in targets if name == "PUBLISH" else ():
                follows(target[0], target[3])
        elif name in OPERATIONS:
            follows(queue_id, *struct.unpack_from("<Q", payload))
            assert len(payload) == 16 or (name == "GONE" and (len(payload) - 8) % 16 == 0)
        elif name == "INDEX":
            (first,) = struct.unpack_from("<Q", payload)
            assert first % 128 == 0
            for position, _, _, size, place, _ in entries_in(payload[8:]):
                assert position < 128
                assert len(message_in(found.places[place][1])[3]) == size


def read_checkpoint(found: Read, data: bytes, name: str) -> dict[int, int]:
    """How many messages each queue has in it."""
    magic, version, crc = struct.unpack_from("<8sII", data)
    assert magic == b"WARRENCP"
    assert f"format version (4; {version}," in PAGE.read_text()
    assert crc == checksum(data[16:], checksum(data[8:12]))
    sequence, newest, salt, clean, metadata, segments, queues = struct.unpack_from(
        "<QIIB3xQII", data, 16
    )
    assert (name, salt) == (f"{sequence:016x}.checkpoint", found.salt)
    assert clean in {0, 1}
    at = 16 + struct.calcsize("<QIIB3xQII") + metadata
    for _ in range(segments):
        number, first, _size, _needed, _bytes = struct.unpack_from("<IQQQQ", data, at)
        assert found.segments[number] == f"{first:016x}.wal"
        assert number <= newest
        at += 36
    counts = {}
    for _ in range(queues):
        queue_id, epoch, _operations, length = struct.unpack_from("<IQQQ", data, at)
        assert epoch == 0
        at += 28
        counts[queue_id] = count_in(found, data[at : at + length])
        at += length
    assert at == len(data)
    return counts


def count_in(found: Read, data: bytes) -> int:
    (levels,) = struct.unpack_from("<H", data)
    at, count = 2, 0
    for _ in range(levels):
        _priority, following, _watermark, _flagged, chunks = struct.unpack_from("<BQQQI", data, at)
        at += 29
        for _ in range(chunks):
            number, place, low, high, size, length = struct.unpack_from("<QQQQQI", data, at)
            at += 44
            entries = data[at : at + length]
            if place:
                kind, payload = found.places[place]
                assert (kind, length) == ("INDEX", 0)
                assert struct.unpack_from("<Q", payload)[0] & (1 << 55) - 1 == number * 128
                entries = payload[8:]
            rows = [e for e in entries_in(entries) if ((high << 64) | low) >> e[0] & 1]
            assert sum(row[3] for row in rows) == size
            assert all(number * 128 + row[0] < following for row in rows)
            count += len(rows)
            at += length
    assert struct.unpack_from("<II", data, at) == (0, 0), "no cursors"
    check_arrivals(data, at + 8)
    return count


def check_arrivals(data: bytes, at: int) -> None:
    """Marks rise, and so do the times, where they are known."""
    (levels,) = struct.unpack_from("<H", data, at)
    at += 2
    for _ in range(levels):
        _priority, marks = struct.unpack_from("<BH", data, at)
        at += 3
        rows = [struct.unpack_from("<QQ", data, at + 16 * i) for i in range(marks)]
        assert rows == sorted(rows)
        assert [when for _, when in rows] == sorted(when for _, when in rows)
        at += 16 * marks
    assert at == len(data)


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "stopped"])
def test_files_are_as_the_page_says(clean: bool) -> None:
    told = story(clean)
    found = Read()
    for name in sorted(told.files):
        if name.endswith(".wal"):
            read_segment(found, name, told.files[name])
    page = PAGE.read_text()
    assert f"Format version {found.version} of segments" in page
    assert f"| 8 | 4 | format version ({found.version}) |" in page
    assert {name for name, *_ in found.records.values()} >= {
        *("PUBLISH", "GONE", "WATERMARK", "INDEX", "METADATA", "PLACED", "REQUEUE")
    }
    check_indexes(found)
    newest = max(name for name in told.files if name.endswith(".checkpoint"))
    counts = read_checkpoint(found, told.files[newest], newest)
    if clean:
        # It covers everything: what would be served stands in it.
        assert sorted(counts.values()) == sorted(len(rows) for rows in told.served.values())
