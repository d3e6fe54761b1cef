"""Numbers of queues in an event journal: none is given again while a buffer may speak of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.node import journal_numbers
from warren.node.journal_numbers import KEPT_BUFFERS, QueueNumbers
from warren.spark.journal_files import BadSegment, Names, read_names


@pytest.fixture
def numbers(tmp_path: Path) -> QueueNumbers:
    return QueueNumbers(Names("a"), tmp_path / "1.names")


def test_a_queue_keeps_its_number(numbers: QueueNumbers) -> None:
    assert numbers.of_queue("/", "x", 7) == numbers.of_queue("/", "x", 7) == 1
    assert numbers.of_queue("/", "y", 8) == 2
    assert numbers.of_mirror(1, "b") == numbers.of_mirror(1, "b") == 3
    # Declared anew it is another.
    assert numbers.of_queue("/", "x", 9) == 4
    assert numbers.newest("/", "x") == 4
    assert numbers.newest("/", "z") is None


def test_numbers_come_back_when_no_buffer_can_speak_of_them(
    numbers: QueueNumbers, tmp_path: Path
) -> None:
    numbers.of_queue("/", "gone", 1)
    numbers.of_mirror(1, "b")
    numbers.of_queue("/", "stays", 2)
    numbers.forget("/", "gone", buffer=5)
    assert numbers.newest("/", "gone") is None
    numbers.finished(5 + KEPT_BUFFERS - 1)
    assert numbers.of_queue("/", "early", 3) == 4
    numbers.finished(5 + KEPT_BUFFERS)
    assert {numbers.of_queue("/", f"late-{n}", 10 + n) for n in range(3)} == {1, 2, 5}
    assert numbers.of_queue("/", "stays", 2) == 3
    read = read_names(tmp_path / "1.names")
    assert read == numbers.names
    assert read.queues[3] == "stays"
    assert read.peers == [""] * 6
    numbers.forget("/", "never seen", buffer=99)


def test_many_short_lives_take_little(
    numbers: QueueNumbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_numbers, "GROWN_BYTES", 1000)
    numbers.of_queue("/", "stays", 1)
    sizes = set()
    for buffer in range(1, 200):
        for n in range(5):
            numbers.of_queue("/", f"reply-{buffer}-{n}", 100 * buffer + n)
            numbers.forget("/", f"reply-{buffer}-{n}", buffer)
        numbers.finished(buffer)
        numbers.trim()
        sizes.add((tmp_path / "1.names").stat().st_size)
    assert len(numbers.names) <= 2 + 5 * (KEPT_BUFFERS + 1)
    assert max(sizes) < 20_000
    assert read_names(tmp_path / "1.names") == numbers.names
    assert numbers.of_queue("/", "stays", 1) == 1


def test_a_number_that_nobody_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.names"
    for number in (0, 2, -1):
        row = f'{{"vhost": "/", "queue": "x", "incarnation": 1, "number": {number}}}'
        path.write_text(f'{{"node": "a"}}\n{row}\n')
        with pytest.raises(BadSegment, match="no number"):
            read_names(path)
