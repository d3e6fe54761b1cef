"""The schedules find what they are there to find: stores with a fault of their own, each caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from store_node import Plan
from store_schedules import run

from warren.store import recovery, upkeep
from warren.store.checkpoint import Checkpoint, checkpoint_name
from warren.store.records import segment_name
from warren.store.upkeep import Upkeep

#: Each is caught long before.
SEEDS = 400

Doomed = list[tuple[int, int]]


class DeletesTooSoon(Upkeep):
    """Segments go before the checkpoint that makes them superfluous is on the disk."""

    def _write(self, checkpoint: Checkpoint, doomed: Doomed) -> None:
        for _, first in doomed:
            self.files.remove(segment_name(first))
        super()._write(checkpoint, [])


class DoesNotWait(Upkeep):
    """The checkpoint speaks of records that are not on the disk yet."""

    def _checkpoint(self) -> Any:
        checkpoint, doomed = self.take_state(clean=False)
        self._write(checkpoint, doomed)
        self._written(doomed)
        yield


class DeletesWhatDiedSince(Upkeep):
    """What is dead when the checkpoint is written, not what was when it was taken."""

    def _write(self, checkpoint: Checkpoint, doomed: Doomed) -> None:
        later = [(n, first) for n, first, _ in self._dead() if (n, first) not in doomed]
        for number, _ in later:
            self.journal.forget_segment(number)
        super()._write(checkpoint, doomed + later)


class SaysClean(Upkeep):
    """Every checkpoint says that nothing is out."""

    def take_state(self, clean: bool) -> tuple[Checkpoint, Doomed]:
        return super().take_state(clean=True)


class DeletesCompacted(Upkeep):
    """A segment goes as soon as it has been compacted."""

    def _compact(self) -> None:
        compaction = self._compaction
        super()._compact()
        if self._compaction is None and compaction is not None and not compaction.fault:
            first = self.journal.segment_first(compaction.number)
            self.journal.forget_segment(compaction.number)
            self.files.remove(segment_name(first))


@pytest.mark.parametrize(
    "kind",
    [DeletesTooSoon, DoesNotWait, DeletesWhatDiedSince, SaysClean, DeletesCompacted],
)
def test_a_faulty_upkeep_is_caught(kind: type[Upkeep]) -> None:
    assert caught(Plan(make_upkeep=kind))


def test_gone_before_its_dead_letter_is_caught() -> None:
    assert caught(Plan(gone_before_dead_letters=True))


def test_a_dead_letter_in_a_record_of_its_own_is_caught() -> None:
    assert caught(Plan(dead_letters_apart=True))


def test_deliveries_that_do_not_wait_for_the_watermark_are_caught() -> None:
    assert caught(Plan(watermark_not_awaited=True))


def _unsynced(files: Any, sequence: int, data: bytes) -> None:
    name = checkpoint_name(sequence)
    files.create(name)
    files.append(name, data)
    files.sync_names()


def _nothing(*_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (upkeep, "write_checkpoint", _unsynced),
        (recovery, "repair_tail", _nothing),
        (recovery.Recovery, "_follow_repair", _nothing),
    ],
    ids=["checkpoint-not-synced", "tail-not-repaired", "repair-not-followed"],
)
def test_a_faulty_part_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Callable[..., None]
) -> None:
    monkeypatch.setattr(owner, name, broken)
    assert caught(Plan())


def caught(plan: Plan) -> str:
    """What the first schedule says that does not come out right; empty: all do."""
    for seed in range(SEEDS):
        try:
            run(seed, plan)
        except Exception as error:
            return f"seed {seed}: {type(error).__name__} {error}"
    return ""
