"""That the log's end was cut off, or something is missing, is known until the cluster is told."""

from __future__ import annotations

import pytest

from warren.store.faulty_disk import FaultyDisk, PowerCut
from warren.store.journal import Journal
from warren.store.records import Kind, segment_first_sequence
from warren.store.recovery import Recovery
from warren.store.start_marks import CUT_MARK, DAMAGE_MARK, clear_mark, is_marked, keep_damage
from warren.store.stepped_log import SteppedLog

SALT = 7


def _disk_with_records() -> FaultyDisk:
    disk = FaultyDisk()
    journal = Journal(0, 1, SALT)
    log = SteppedLog(disk, 1, 1 << 20, 0, SALT)
    journal.start(log)
    for number in range(3):
        journal.put(Kind.METADATA, b"change %d" % number)
        journal.finish_turn()
        log.step()
    return disk


def _recover(disk: FaultyDisk) -> tuple[Recovery, list[bytes]]:
    applied: list[bytes] = []
    recovery = Recovery(disk, 0, SALT)
    recovery.run(lambda _image: None, applied.append)
    return recovery, applied


def _spoil_the_end(disk: FaultyDisk) -> None:
    name = next(name for name in disk.names() if segment_first_sequence(name) is not None)
    end = len(disk.read(name).rstrip(b"\0"))
    disk.flip_bit(name, 8 * (end - 1))


def test_a_sound_log_has_no_mark() -> None:
    recovery, applied = _recover(_disk_with_records())
    assert not recovery.is_cut
    assert len(applied) == 3


def test_a_cut_is_known_until_it_is_told() -> None:
    disk = _disk_with_records()
    _spoil_the_end(disk)
    recovery, applied = _recover(disk)
    assert recovery.is_cut
    assert len(applied) == 2
    # The node dies before it has told anybody: now the log ends as if nothing had been cut.
    again, _ = _recover(disk)
    assert again.is_cut
    clear_mark(disk, CUT_MARK)
    told, _ = _recover(disk)
    assert not told.is_cut


def test_a_cut_is_known_wherever_the_power_fails() -> None:
    for operation in range(1, 40):
        disk = _disk_with_records()
        _spoil_the_end(disk)
        disk.cut_at = disk.operations + operation
        try:
            _recover(disk)
        except PowerCut:
            disk.cut_power()
        else:
            assert operation > 1
            return
        recovery, applied = _recover(disk)
        assert recovery.is_cut
        assert is_marked(disk, CUT_MARK)
        assert len(applied) == 2
    pytest.fail("a recovery never ended")


def test_copies_that_are_broken_by_themselves_are_all_doubted_at_the_next_start() -> None:
    """By then a checkpoint may be of what is left of them."""
    disk = _disk_with_records()
    assert not keep_damage(disk, False, is_partial=True)
    disk.cut_power()
    assert keep_damage(disk, False)


def test_damage_is_known_until_it_is_told() -> None:
    disk = _disk_with_records()
    assert not keep_damage(disk, False)
    assert keep_damage(disk, True)
    disk.cut_power()
    assert keep_damage(disk, False)
    assert keep_damage(disk, True)
    assert not is_marked(disk, CUT_MARK)
    clear_mark(disk, DAMAGE_MARK)
    disk.cut_power()
    assert not keep_damage(disk, False)
