"""The event journal's files: a node's buffer as it lies on the disk, and the segments made of it.

    1731909000123.names            which queue has which number, a JSON object a line
    1731909000123-000001.parquet   a segment
    1731909000123-000002.open      the buffer at work, or left by a node that was killed
    removed.json                   until when segments have been removed to make room

The bytes of a buffer are in docs/internals/journal.md. Nothing in a file is trusted: one that is
cut short, or names a queue that nobody has named, is refused by name.
"""

from __future__ import annotations

import datetime
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from warren.spark.errors import WarrenError

MAGIC = b"WARRENJ1"
_HEAD = struct.Struct("<8sIIq")
HEAD_BYTES = 64
#: The file that tells until when segments were removed to make room.
REMOVED = "removed.json"
EVENTS = (
    "",
    "publish",
    "confirm",
    "refuse",
    "deliver",
    "take-back",
    "ack",
    "reject",
    "requeue",
    "expire",
    "drop",
    "limit",
    "purge",
    "drain",
    "promote",
    "depose",
    "snapshot",
    "held",
    "return",
    "sync",
    "delete",
    "adopt",
    "dead-letter",
    "position",
    "copy",
)
#: Columns of a buffer, in order, with the bytes of a value.
_COLUMNS = (
    ("at", pa.int64(), 8),
    ("seq", pa.int64(), 8),
    ("bytes", pa.int64(), 8),
    ("count", pa.int32(), 4),
    ("queue", pa.int32(), 4),
    ("epoch", pa.int32(), 4),
    ("event", pa.uint8(), 1),
    ("flags", pa.uint8(), 1),
)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("node", pa.string()),
        ("vhost", pa.string()),
        ("queue", pa.string()),
        ("incarnation", pa.int64()),
        ("epoch", pa.int32()),
        ("event", pa.string()),
        ("seq", pa.int64()),
        ("count", pa.int32()),
        ("bytes", pa.int64()),
        ("redelivered", pa.bool_()),
        ("no_ack", pa.bool_()),
        ("dead_lettered", pa.bool_()),
        ("peer", pa.string()),
        ("in_sync", pa.bool_()),
    ]
)


class BadSegment(WarrenError):
    """A file of the journal cannot be read; the text names it."""


@dataclass(slots=True)
class Names:
    """What a node's run calls its queues, by number; number 0 is no queue."""

    node: str
    vhosts: list[str] = field(default_factory=lambda: [""])
    queues: list[str] = field(default_factory=lambda: [""])
    incarnations: list[int] = field(default_factory=lambda: [0])
    #: The other node that an event is about: a number stands for a queue and its mirror then.
    peers: list[str] = field(default_factory=lambda: [""])

    def put(self, number: int, vhost: str, queue: str, incarnation: int, peer: str = "") -> str:
        """The next number, or one that is given again; the line of the file that tells it."""
        row: dict[str, Any] = {"vhost": vhost, "queue": queue, "incarnation": incarnation}
        if peer:
            row["peer"] = peer
        if number < len(self):
            row["number"] = number
        columns: tuple[list[Any], ...] = (self.vhosts, self.queues, self.incarnations, self.peers)
        for column, value in zip(columns, (vhost, queue, incarnation, peer), strict=True):
            column[number : number + 1] = [value]
        return json.dumps(row) + "\n"

    def as_text(self) -> str:
        """The whole file."""
        again = Names(self.node)
        rows = zip(self.vhosts, self.queues, self.incarnations, self.peers, strict=True)
        lines = [again.put(number, *row) for number, row in enumerate(rows) if number]
        return "".join([json.dumps({"node": self.node}) + "\n", *lines])

    def __len__(self) -> int:
        return len(self.queues)


def read_names(path: Path) -> Names:
    """Raises BadSegment."""
    try:
        lines = path.read_text().splitlines()
        names = Names(str(json.loads(lines[0])["node"]))
        for line in lines[1:]:
            row = json.loads(line)
            number = int(row.get("number", len(names)))
            if not 0 < number <= len(names):
                raise ValueError(f"there is no number {number} to be given again")
            key = str(row["vhost"]), str(row["queue"]), int(row["incarnation"])
            names.put(number, *key, str(row.get("peer", "")))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise BadSegment(f"{path} cannot be read: {error}") from error
    return names


def to_table(data: Any, names: Names, shown: str = "the buffer") -> pa.Table:
    """The rows of a buffer. Raises BadSegment."""
    buffer = pa.py_buffer(data)
    if buffer.size < HEAD_BYTES:
        raise BadSegment(f"{shown} is no buffer of events")
    magic, capacity, length, offset_us = _HEAD.unpack_from(buffer, 0)
    rows_bytes = sum(width for _, _, width in _COLUMNS)
    if magic != MAGIC or length > capacity or HEAD_BYTES + capacity * rows_bytes > buffer.size:
        raise BadSegment(f"{shown} is no buffer of events, or was cut short")
    raw: dict[str, pa.Array] = {}
    at = HEAD_BYTES
    for name, kind, width in _COLUMNS:
        piece = buffer.slice(at, length * width)
        raw[name] = pa.Array.from_buffers(kind, length, [None, piece])
        at += capacity * width
    if length and (
        pc.max(raw["queue"]).as_py() >= len(names) or pc.max(raw["event"]).as_py() >= len(EVENTS)
    ):
        raise BadSegment(f"{shown} speaks of a queue or an event that has no name")
    return _named(raw, names, offset_us)


def _named(raw: dict[str, pa.Array], names: Names, offset_us: int) -> pa.Table:
    queue, flags = raw["queue"], raw["flags"]

    def has(bit: int) -> pa.Array:
        return pc.not_equal(pc.bit_wise_and(flags, pa.scalar(bit, pa.uint8())), 0)

    columns = [
        pc.add(raw["at"], offset_us).cast(pa.timestamp("us", "UTC")),
        pa.repeat(names.node, len(queue)),
        pa.array(names.vhosts).take(queue),
        pa.array(names.queues).take(queue),
        pa.array(names.incarnations, pa.int64()).take(queue),
        raw["epoch"],
        pa.array(EVENTS).take(raw["event"].cast(pa.int32())),
        raw["seq"],
        raw["count"],
        raw["bytes"],
        has(1),
        has(2),
        has(4),
        pa.array(names.peers).take(queue),
        has(8),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_segment(table: pa.Table, path: Path) -> None:
    """Under its name only when it is whole. Raises OSError."""
    beside = path.with_suffix(".part")
    pq.write_table(table, beside, compression="zstd", use_dictionary=True)
    beside.rename(path)


def note_removed(directory: Path, until_s: float) -> None:
    """Before a segment goes that was finished then. Raises OSError."""
    part = directory / f"{REMOVED}.part"
    part.write_text(json.dumps({"until": until_s}) + "\n")
    part.rename(directory / REMOVED)


def removed_until(directory: Path) -> datetime.datetime | None:
    """Before this time segments of a journal may be gone; None: none is. Raises BadSegment."""
    place = directory / REMOVED
    try:
        until_s = float(json.loads(place.read_text())["until"])
        return datetime.datetime.fromtimestamp(until_s, datetime.UTC)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadSegment(f"{place} cannot be read: {error}") from error


def segments(directory: Path, scratch: Path) -> list[Path]:
    """Parquet files with all events of a node's directory; buffers are turned into such first.

    Raises BadSegment. Nothing in the directory is changed.
    """
    if not directory.is_dir():
        raise BadSegment(f"there is no event journal in {directory}: name a node's directory")
    found = {path.stem: path for path in sorted(directory.glob("*.parquet"))}
    # A node that has noted nothing so far has its list of names; what has none is no journal.
    if not found and not any(directory.glob("*.names")):
        below = directory / "events"
        more = f"name {below}" if below.is_dir() else "is journal.enabled set?"
        raise BadSegment(f"there are no events in {directory}: {more}")
    for path in sorted(directory.glob("*.open")):
        if path.stem in found:
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            # Its segment was finished just now.
            done = path.with_suffix(".parquet")
            if done.exists():
                found[path.stem] = done
            continue
        names = read_names(directory / f"{path.stem.partition('-')[0]}.names")
        table = to_table(data, names, str(path))
        if table.num_rows:
            place = scratch / f"{abs(hash(str(directory)))}-{path.stem}.parquet"
            write_segment(table, place)
            found[path.stem] = place
    return [found[stem] for stem in sorted(found)]
