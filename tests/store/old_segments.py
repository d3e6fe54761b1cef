"""A log by itself, without checkpoints: its oldest segments go when nothing in them is needed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from warren.store.files import Files, RealFiles
from warren.store.records import segment_first_sequence


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the log."""

    name: str
    first_sequence: int
    size_bytes: int


def list_segments(log: str | Files) -> list[Segment]:
    """The segments of a log, oldest first."""
    files = _files(log)
    found = []
    for name in files.names():
        first_sequence = segment_first_sequence(name)
        if first_sequence is not None:
            found.append(Segment(name, first_sequence, files.size(name)))
    return found


def total_bytes(log: str | Files) -> int:
    """How much room the segments take."""
    return sum(segment.size_bytes for segment in list_segments(log))


def delete_dead_segments(log: str | Files, low_water: int) -> list[Segment]:
    """Delete the segments all of whose records are numbered below `low_water`; which they were.

    Oldest first and each made durable before the next, so that no power cut leaves a gap; never the
    newest, which is being written.
    """
    files = _files(log)
    segments = list_segments(files)
    dead = []
    for segment, following in pairwise(segments):
        if following.first_sequence > low_water:
            break
        files.remove(segment.name)
        files.sync_names()
        dead.append(segment)
    return dead


def _files(log: str | Files) -> Files:
    return RealFiles(log) if isinstance(log, str) else log
