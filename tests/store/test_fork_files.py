"""Notes on forks: what is kept is read again, and damage is noticed."""

from __future__ import annotations

from pathlib import Path

from warren.store.fork_files import FORK_BIT, ForkDirectory, ForkNote

ROWS = bytes(range(48))


def note(number: int) -> ForkNote:
    return ForkNote(number, 7, "/", "ha.q", "node3@localhost", {0: 12, 4: 3}, 1_700_000_000)


def test_what_is_kept_is_there_for_the_next_life(tmp_path: Path) -> None:
    directory = str(tmp_path / "forks")
    files = ForkDirectory(directory)
    number = files.reserve()
    files.keep(note(number), ROWS)
    again = ForkDirectory(directory)
    assert again.notes() == [note(number)]
    assert again.rows(number) == ROWS
    again.drop(number)
    assert ForkDirectory(directory).notes() == []


def test_numbers_are_never_given_again(tmp_path: Path) -> None:
    directory = str(tmp_path / "forks")
    given = []
    for _ in range(3):
        files = ForkDirectory(directory)
        given += [files.reserve() for _ in range(300)]
    assert len(set(given)) == len(given)
    assert all(number & FORK_BIT for number in given)


def test_what_a_fork_was_opened_with_is_believed_only_if_it_is_whole(tmp_path: Path) -> None:
    """Without it nothing counts as acknowledged, so all of it comes again."""
    files = ForkDirectory(str(tmp_path))
    number = files.reserve()
    files.keep(note(number), ROWS)
    (place,) = tmp_path.glob("*.fork")
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)
    assert files.notes() == [note(number)]
    assert files.rows(number) is None


def test_a_note_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    files = ForkDirectory(str(tmp_path))
    number = files.reserve()
    files.keep(note(number), ROWS)
    (place,) = tmp_path.glob("*.fork")
    place.write_bytes(b"?" + place.read_bytes())
    assert files.notes() == []
    assert files.unreadable() == {number}


def test_new_is_what_stands_at_the_base_or_behind_it() -> None:
    it = note(FORK_BIT | 1)
    assert [it.is_new(slot, 55) for slot in (11, 12)] == [False, True]
    assert [it.is_new(4 << 55 | slot, 55) for slot in (2, 3)] == [False, True]
    assert it.is_new(9 << 55, 55), "a level that the replica did not have"


def test_what_a_fork_has_lost_is_kept(tmp_path: Path) -> None:
    files = ForkDirectory(str(tmp_path))
    number = files.reserve()
    files.keep(note(number), ROWS)
    assert files.lost(number) == []
    files.lose(number, [(3, 4, 0), (128, 256, 17)])
    again = ForkDirectory(str(tmp_path))
    assert again.lost(number) == [(3, 4, 0), (128, 256, 17)]
    assert again.notes() == [note(number)]
    (place,) = tmp_path.glob("*.lost")
    place.write_bytes(b"[[3,4")
    assert again.lost(number) is None, "nobody knows what, so nothing counts as acknowledged"
    again.drop(number)
    assert not list(tmp_path.glob(f"{number & ~FORK_BIT}.*"))
