"""What every log promises, asked of all of them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_logs import payload, wait_until

from warren.store.faulty_disk import Faults, FaultyDisk
from warren.store.log import Log
from warren.store.memory_log import MemoryLog
from warren.store.records import PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES
from warren.store.scan import scan
from warren.store.scanner import Record
from warren.store.stepped_log import SteppedLog
from warren.store.writer import LogWriter


@dataclass
class Subject:
    """A log, how to have it persist, and how to read it back."""

    log: Log
    settle: Callable[[], None]
    survivors: Callable[[], list[Record]]
    #: Makes the next write or sync fail.
    breaks: Callable[[], None] | None


def real(path: Path) -> Subject:
    log = LogWriter(str(path), segment_bytes=1000)
    return Subject(
        log,
        lambda: wait_until(lambda: log.persisted == log.appended),
        lambda: [*scan(str(path))],
        None,
    )


def memory(path: Path) -> Subject:
    log = MemoryLog()
    return Subject(log, lambda: None, log.survivors, lambda: log.fail(errno.EIO))


def memory_by_hand(path: Path) -> Subject:
    log = MemoryLog(immediate=False)
    return Subject(log, log.step, log.survivors, lambda: log.fail(errno.EIO))


def faulty(path: Path) -> Subject:
    disk = FaultyDisk()
    log = SteppedLog(disk, segment_bytes=1000)

    def break_disk() -> None:
        disk.faults = Faults(sync_error=1.0)

    return Subject(log, log.step, lambda: [*scan(disk)], break_disk)


@pytest.fixture(params=[real, memory, memory_by_hand, faulty], ids=lambda make: make.__name__)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    made = request.param(tmp_path)
    yield made
    try:
        made.log.close()
    except OSError:
        assert made.breaks is not None


def test_numbers_have_no_gaps_and_order_is_kept(subject: Subject) -> None:
    log = subject.log
    assert (log.appended, log.persisted) == (0, 0)
    for n in range(1, 101):
        assert log.append(n % 7 + 1, payload(n), n % 3, n % 5, n * 1000) == n
        assert log.appended == n
        assert log.persisted <= n
        if n % 9 == 0:
            subject.settle()
    subject.settle()
    assert log.persisted == 100
    assert log.pending_bytes == 0
    assert subject.survivors() == [
        Record(n, n % 7 + 1, payload(n), n % 3, n % 5, n * 1000) for n in range(1, 101)
    ]
    batches, written = log.statistics()
    assert 1 <= batches <= 100
    assert written == sum(RECORD_HEADER_BYTES + len(payload(n)) for n in range(1, 101))
    log.check()


def test_close_drains(subject: Subject) -> None:
    for n in range(1, 21):
        subject.log.append(1, payload(n))
    subject.log.close()
    assert subject.log.persisted == 20
    assert [r.sequence for r in subject.survivors()] == list(range(1, 21))
    with pytest.raises(RuntimeError, match="closed"):
        subject.log.append(1, b"")
    subject.log.close()


def test_a_payload_beyond_the_limit_is_refused(subject: Subject) -> None:
    # Zeros that are never touched cost no memory.
    with pytest.raises(ValueError, match="longer than the log takes"):
        subject.log.append(1, bytes(PAYLOAD_BYTES_MAX + 1))
    assert subject.log.appended == 0
    assert subject.log.append(1, b"") == 1


def test_an_error_is_final(subject: Subject) -> None:
    if subject.breaks is None:
        pytest.skip("real files are broken in test_writer_errors")
    log = subject.log
    log.append(1, b"kept")
    subject.settle()
    subject.breaks()
    try:
        log.append(1, b"lost")
        subject.settle()
    except OSError:
        pass
    for call in (log.check, log.close, lambda: log.append(1, b"")):
        with pytest.raises(OSError, match="error"):
            call()
    assert log.persisted == 1
