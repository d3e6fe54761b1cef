"""Raft's disk: what was saved is there, what was not finished is not, damage is not overlooked."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warren.cluster import raft_storage
from warren.cluster.raft.effects import Persist
from warren.cluster.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Membership,
    Snapshot,
    Stored,
    founding,
)
from warren.cluster.raft_storage import (
    FileRaftStorage,
    RaftStorageDamagedError,
    RaftStorageError,
)

FOUNDERS = founding(Membership(("a", "b", "c")))


def entry(number: int, size: int = 5) -> Entry:
    return Entry(1, EntryKind.COMMAND, bytes([number % 256]) * size)


def appended(token: int, first: int, *numbers: int) -> Persist:
    return Persist(token, HardState(token, "a"), first, tuple(entry(n) for n in numbers))


def compacted(token: int, index: int, *numbers: int) -> Persist:
    snapshot = Snapshot(index, 1, Membership(("a", "b")), b"image" * index)
    entries = tuple(entry(n) for n in numbers)
    return Persist(token, HardState(token, None), index, entries, snapshot, index - 1, 1)


def loaded(path: Path) -> Stored | None:
    storage = FileRaftStorage(str(path))
    try:
        return storage.load()
    finally:
        storage.close()


def log_of(path: Path) -> Path:
    (log,) = path.glob("*.log")
    return log


@pytest.fixture
def storage(tmp_path: Path) -> FileRaftStorage:
    storage = FileRaftStorage(str(tmp_path))
    assert storage.load() is None
    storage.create(FOUNDERS)
    return storage


def test_what_was_saved_is_loaded(storage: FileRaftStorage, tmp_path: Path) -> None:
    assert loaded(tmp_path) == FOUNDERS
    storage.save([appended(1, 2, 2, 3, 4)])
    storage.save([appended(2, 3, 33)])
    assert loaded(tmp_path) == Stored(
        HardState(2, "a"), Snapshot(), 0, 0, (*FOUNDERS.entries, entry(2), entry(33))
    )


def test_saves_after_a_restart(storage: FileRaftStorage, tmp_path: Path) -> None:
    storage.save([appended(1, 2, 2)])
    storage.close()
    again = FileRaftStorage(str(tmp_path))
    again.load()
    again.save([appended(2, 3, 3)])
    stored = loaded(tmp_path)
    assert stored is not None
    assert stored.entries[1:] == (entry(2), entry(3))


def test_a_snapshot_replaces_everything(storage: FileRaftStorage, tmp_path: Path) -> None:
    storage.save([appended(1, 2, 2, 3, 4, 5)])
    storage.save([appended(2, 6, 6), compacted(3, 4, 4, 5, 6), appended(4, 7, 7)])
    stored = loaded(tmp_path)
    assert stored is not None
    assert stored.snapshot == compacted(3, 4).snapshot
    assert (stored.base_index, stored.hard_state) == (3, HardState(4, "a"))
    assert stored.entries == (entry(4), entry(5), entry(6), entry(7))
    assert len(list(tmp_path.iterdir())) == 2


def test_an_unfinished_save_is_cut_off_wherever_it_ends(
    storage: FileRaftStorage, tmp_path: Path
) -> None:
    storage.save([appended(1, 2, 2)])
    before, log = loaded(tmp_path), log_of(tmp_path)
    size = log.stat().st_size
    storage.save([appended(2, 3, 3, 4)])
    whole, after = log.read_bytes(), loaded(tmp_path)
    for end in range(size, len(whole)):
        log.write_bytes(whole[:end])
        assert loaded(tmp_path) == before
        assert log.stat().st_size == size
        log.write_bytes(whole[:end] + bytes(len(whole) - end))
        assert loaded(tmp_path) == before
    log.write_bytes(whole)
    assert loaded(tmp_path) == after


def test_every_flipped_bit_is_noticed(storage: FileRaftStorage, tmp_path: Path) -> None:
    """Also of the last save: it was answered as well."""
    storage.save([appended(1, 2, 2, 3)])
    storage.save([appended(2, 4, 4)])
    log = log_of(tmp_path)
    whole = log.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            log.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            with pytest.raises(RaftStorageDamagedError):
                loaded(tmp_path)
            assert log.stat().st_size == len(whole), "damaged files stay as they are"


def test_a_save_whose_sectors_were_written_in_another_order_is_cut_off(
    storage: FileRaftStorage, tmp_path: Path
) -> None:
    before, log = loaded(tmp_path), log_of(tmp_path)
    size = log.stat().st_size
    storage.save([appended(1, 2, *range(2, 400))])
    whole = log.read_bytes()
    first = -(-size // 512) * 512
    assert first + 1024 < len(whole)
    for at in range(first, len(whole) - 512, 512):
        log.write_bytes(whole[:at] + bytes(512) + whole[at + 512 :])
        assert loaded(tmp_path) == before
        assert log.stat().st_size == size


def test_a_log_of_the_first_format_is_read_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(raft_storage, "FORMAT", 1)
        earlier.setattr(raft_storage, "_END_MARK", b"")
        storage = FileRaftStorage(str(tmp_path))
        storage.create(FOUNDERS)
        storage.save([appended(1, 2, 2)])
        storage.save([compacted(1, 2, 2)])
        storage.close()
    storage = FileRaftStorage(str(tmp_path))
    assert storage.load() is not None
    storage.save([appended(3, 3, 3)])
    storage.close()
    again = loaded(tmp_path)
    assert again is not None
    assert again.entries[-1] == entry(3)


def test_a_damaged_or_missing_snapshot_is_noticed(storage: FileRaftStorage, tmp_path: Path) -> None:
    storage.save([appended(1, 2, 2, 3, 4)])
    storage.save([compacted(2, 4, 4)])
    (snapshot,) = tmp_path.glob("*.snapshot")
    whole = snapshot.read_bytes()
    for at in range(len(whole)):
        snapshot.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(RaftStorageDamagedError):
            loaded(tmp_path)
    snapshot.write_bytes(whole[:-1])
    with pytest.raises(RaftStorageDamagedError):
        loaded(tmp_path)
    snapshot.unlink()
    with pytest.raises(RaftStorageDamagedError):
        loaded(tmp_path)


class _PowerCut(BaseException):
    pass


def test_a_power_cut_at_any_step_of_a_snapshot(
    storage: FileRaftStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step is the last one, either the old state is there or the new one."""
    storage.save([appended(1, 2, 2, 3, 4)])
    storage.close()
    before = loaded(tmp_path)
    kept = tmp_path.parent / f"{tmp_path.name}-kept"
    shutil.copytree(tmp_path, kept)
    seen = []
    for step in range(30):
        shutil.rmtree(tmp_path)
        shutil.copytree(kept, tmp_path)
        storage = FileRaftStorage(str(tmp_path))
        storage.load()
        with monkeypatch.context() as patch:
            cut = _cut_at(patch, step)
            with contextlib.suppress(_PowerCut):
                storage.save([compacted(2, 4, 4)])
        storage.close()
        stored = loaded(tmp_path)
        seen.append(stored)
        if not cut:
            break
    after = seen[-1]
    assert after is not None
    assert after.snapshot == compacted(2, 4).snapshot
    assert before in seen
    assert all(stored in (before, after) for stored in seen)


def _cut_at(patch: pytest.MonkeyPatch, step: int) -> list[int]:
    """The power goes at this system call; the list is not empty if that came."""
    left, cut = [step], []

    def guard(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            if left[0] == 0:
                cut.append(1)
                raise _PowerCut
            left[0] -= 1
            return real(*arguments, **named)

        patch.setattr(raft_storage.os, name, call)

    for name in ("open", "write", "fsync", "rename", "unlink"):
        guard(name)
    return cut


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_after_an_error_nothing_is_taken(
    storage: FileRaftStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(raft_storage.os, call, fails)
        with pytest.raises(RaftStorageError, match="input/output error"):
            storage.save([appended(1, 2, 2)])
    with pytest.raises(RaftStorageError, match="failed before"):
        storage.save([appended(2, 2, 2)])


def test_everything_is_synced_before_it_counts(
    storage: FileRaftStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def note(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            calls.append(name)
            return real(*arguments, **named)

        monkeypatch.setattr(raft_storage.os, name, call)

    for name in ("write", "fdatasync", "fsync", "rename", "unlink"):
        note(name)
    storage.save([appended(1, 2, 2), appended(2, 3, 3)])
    assert calls == ["write", "fdatasync"]
    calls.clear()
    storage.save([compacted(3, 3, 3)])
    files = ["write", "fsync"] * 2
    assert calls == [*files, "rename", "fsync", "unlink"]


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_damage_is_noticed_or_was_never_answered(tmp_path: Path, data: st.DataObject) -> None:
    """A log altered at will: it is what was saved up to some save, or it is refused."""
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    storage = FileRaftStorage(str(tmp_path))
    storage.create(FOUNDERS)
    states = [FOUNDERS]
    for token in range(1, 4):
        persist = appended(token, token + 1, token)
        storage.save([persist])
        states.append(folded(states[-1], persist))
    storage.close()
    log = log_of(tmp_path)
    content = bytearray(log.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                content[at] = data.draw(st.integers(0, 255))
            case 1:
                del content[at : at + data.draw(st.integers(1, 40))]
            case 2:
                content[at:at] = data.draw(st.binary(max_size=40))
        if not content:
            break
    log.write_bytes(bytes(content))
    with contextlib.suppress(RaftStorageDamagedError):
        assert loaded(tmp_path) in states


def test_entries_that_look_like_records_are_none(storage: FileRaftStorage, tmp_path: Path) -> None:
    """A client may know the format, but not the salt."""
    other = tmp_path / "other"
    other.mkdir()
    foreign = FileRaftStorage(str(other))
    foreign.create(FOUNDERS)
    bait = log_of(other).read_bytes()[-200:]
    before = loaded(tmp_path)
    size = log_of(tmp_path).stat().st_size
    forged = Persist(1, HardState(1, None), 2, (Entry(1, EntryKind.COMMAND, bait * 2),))
    storage.save([forged])
    log = log_of(tmp_path)
    whole = bytearray(log.read_bytes())
    whole[size + 2] ^= 1
    log.write_bytes(bytes(whole))
    with pytest.raises(RaftStorageDamagedError, match="the last record of"):
        loaded(tmp_path)
    whole[size + 2] ^= 1
    for missing in (1, 3, 5, 50):
        log.write_bytes(bytes(whole[:-missing]))
        assert loaded(tmp_path) == before
        assert log.stat().st_size == size


@st.composite
def saves(draw: st.DrawFn) -> list[list[Persist]]:
    """Batches that a Raft could ask for: no holes, snapshots within the log."""
    batches = []
    last, base, token = 1, 0, 0
    for _ in range(draw(st.integers(1, 8))):
        batch = []
        for _ in range(draw(st.integers(1, 3))):
            token += 1
            numbers = draw(st.lists(st.integers(0, 255), max_size=4))
            if draw(st.integers(0, 3)) == 0 and last > base:
                base = draw(st.integers(base + 1, last))
                persist = compacted(token, base + 1, *numbers) if base < last else None
                if persist is not None:
                    batch.append(persist)
                    last = base + len(numbers)
                    continue
            first = draw(st.integers(base + 1, last + 1))
            batch.append(appended(token, first, *numbers))
            last = first + len(numbers) - 1
        batches.append(batch)
    return batches


def folded(stored: Stored, persist: Persist) -> Stored:
    """The plain meaning of a `Persist`."""
    if persist.snapshot is not None:
        head = (persist.hard_state, persist.snapshot, persist.base_index, persist.base_term)
        return Stored(*head, persist.entries)
    kept = stored.entries[: persist.first_index - stored.base_index - 1]
    head = (persist.hard_state, stored.snapshot, stored.base_index, stored.base_term)
    return Stored(*head, kept + persist.entries)


@given(batches=saves())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_files_mean_what_was_saved(tmp_path: Path, batches: list[list[Persist]]) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    storage = FileRaftStorage(str(tmp_path))
    storage.create(FOUNDERS)
    expected = FOUNDERS
    for batch in batches:
        storage.save(batch)
        for persist in batch:
            expected = folded(expected, persist)
    storage.close()
    assert loaded(tmp_path) == expected
