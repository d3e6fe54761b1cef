"""The product with one rule of cursors, ranges or batches left out: what schedules must find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from warren.engine import batches, cursors, mirrors
from warren.engine.mirror_log import MirrorLog
from warren.queue.cursors import trim_operation


class CutsBatches(MirrorLog):
    """A batch is so many publishes, and then what it says of its producer."""

    def begin_batch(self) -> None: ...

    def end_batch(self, operation: bytes) -> int:
        return self.change_cursors(operation)


@contextmanager
def _cuts_batches() -> Iterator[None]:
    with mock.patch.object(mirrors, "MirrorLog", CutsBatches):
        yield


@contextmanager
def _trims_alone() -> Iterator[None]:
    """What is trimmed is known to the master only."""

    def trim_some(queue: Any, cursor: Any, upto: int) -> bool:
        if queue.mirror is None:
            queue.cursor_operation(trim_operation(cursor.name, upto))
        else:
            queue.apply_cursor(trim_operation(cursor.name, upto))
        return False

    with mock.patch.object(cursors, "trim_some", trim_some):
        yield


@contextmanager
def _forgets_who_reads() -> Iterator[None]:
    """Who reads is known to the master only."""

    def resume(engine: Any, queue: Any) -> None:
        resumed(engine, queue)
        for cursor in queue.cursors.by_name.values() if queue.cursors is not None else ():
            cursor.said_owner, cursor.owner_until_ms = "", 0

    resumed = cursors.resume_cursors
    with mock.patch("warren.engine.mirror.resume_cursors", resume):
        yield


@contextmanager
def _takes_batches_again() -> Iterator[None]:
    """A batch that waits for its mirrors counts as one that has not come."""

    def is_fresh(_engine: Any, queue: Any, producer: str, batch: int) -> bool:
        return not queue.is_remote and not batches.has_batch(queue, producer, batch)

    with mock.patch.object(batches, "_is_fresh", is_fresh):
        yield


@contextmanager
def _reads_anywhere() -> Iterator[None]:
    """A replica answers that may lack something."""

    def readable(engine: Any, number: int, _end: int) -> Any:
        return engine.mirrors.by_number.get(number)

    with mock.patch.object(cursors, "readable_replica", readable):
        yield


#: name -> the product so
MUTANTS: dict[str, Any] = {
    "CutsBatches": _cuts_batches,
    "ForgetsWhoReads": _forgets_who_reads,
    "ReadsAnywhere": _reads_anywhere,
    "TakesBatchesAgain": _takes_batches_again,
    "TrimsAlone": _trims_alone,
}
