"""Where two logs part, found by their epochs alone."""

from __future__ import annotations

import random

import pytest

from warren.replication.lineage import Lineage


def lineage_of(log: list[int]) -> Lineage:
    lineage = Lineage()
    for index, epoch in enumerate(log, 1):
        lineage.extend(epoch, index)
    return lineage


def test_by_comparing_whole_logs() -> None:
    """Logs as a ring makes them: an epoch has one history, and logs are cut and go on."""
    dice = random.Random(3)
    for _ in range(400):
        logs: list[list[int]] = [[], [], []]
        for epoch in range(1, dice.randint(2, 7)):
            master = dice.choice(logs)
            history = [*master, *[epoch] * dice.randint(1, 4)]
            for number in range(3):
                if dice.random() < 0.7:
                    kept = history[
                        : dice.randint(len(history) - history.count(epoch), len(history))
                    ]
                    logs[number] = list(kept)
        for one in logs:
            for other in logs:
                same = 0
                while same < min(len(one), len(other)) and one[same] == other[same]:
                    same += 1
                found = lineage_of(one).common(len(one), list(lineage_of(other)), len(other))
                assert found == same


def test_epochs_are_known_after_cutting_and_forgetting() -> None:
    lineage = lineage_of([1, 1, 2, 2, 5, 5, 5])
    assert [lineage.epoch_at(index) for index in range(9)] == [0, 1, 1, 2, 2, 5, 5, 5, 5]
    lineage.truncate(4)
    assert lineage.last_epoch == 2
    lineage.extend(6, 5)
    lineage.forget_before(5)
    assert lineage.epoch_at(4) == 2
    assert list(lineage) == [(2, 3), (6, 5)]
    with pytest.raises(ValueError, match="operations of epoch 3"):
        lineage.extend(3, 9)
