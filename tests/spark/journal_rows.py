"""Event journals made up for tests: a queue's life with known losses and duplicates."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

BEGAN = datetime.datetime(2026, 11, 18, 12, 0, tzinfo=datetime.UTC)
Row = tuple[Any, ...]


def row(
    event: str,
    seq: int,
    count: int = 1,
    *,
    at_ms: float = 0,
    queue: str = "orders",
    node: str = "a",
    epoch: int = 1,
    redelivered: bool = False,
    no_ack: bool = False,
    size: int = 0,
    peer: str = "",
    in_sync: bool = False,
) -> Row:
    at = BEGAN + datetime.timedelta(milliseconds=at_ms)
    key = ("/", queue, 7)
    flags = (redelivered, no_ack, False)
    return (at, node, *key, epoch, event, seq, count, size, *flags, peer, in_sync)


def plain_life(count: int, queue: str = "orders") -> list[Row]:
    """Published, confirmed, delivered and acknowledged, in runs of up to 1,000."""
    rows = []
    for seq in range(0, count, 1000):
        n = min(1000, count - seq)
        for step, event in enumerate(("publish", "confirm", "deliver", "ack")):
            rows.append(row(event, seq, n, at_ms=seq + step, queue=queue))
    rows.append(row("snapshot", count, at_ms=2 * count + 10, queue=queue))
    return rows


def without(rows: Iterable[Row], event: str, lost: set[int]) -> list[Row]:
    """The same rows, but for the events of one kind at some positions."""
    kept: list[Row] = []
    for one in rows:
        at, node, vhost, queue, incarnation, epoch, name, seq, count, *rest = one
        if name != event:
            kept.append(one)
            continue
        first = seq
        for position in range(seq, seq + count + 1):
            if position == seq + count or position in lost:
                if position > first:
                    key = (at, node, vhost, queue, incarnation, epoch, name)
                    kept.append((*key, first, position - first, *rest))
                first = position + 1
    return kept
