"""The writer on real files: order, batches, segments, reopening."""

from __future__ import annotations

import os
import select
import threading
from itertools import pairwise
from pathlib import Path

from old_segments import delete_dead_segments, list_segments, total_bytes
from small_logs import payload, read, wait_until

from warren.store.records import RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, encode_segment_header
from warren.store.scan import repair_tail
from warren.store.writer import LogWriter


def test_the_mark_only_grows_and_the_event_rings(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path))
    seen = [0]
    for n in range(1, 501):
        log.append(1, payload(n))
        seen.append(log.persisted)
    while log.persisted < 500:
        readable, _, _ = select.select([log.event_fd], [], [], 20)
        assert readable
        os.eventfd_read(log.event_fd)
        seen.append(log.persisted)
    log.close()
    assert seen == sorted(seen)
    assert read(tmp_path).sequences == list(range(1, 501))


def test_what_is_appended_during_a_sync_shares_the_next(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path))

    def many(worker: int) -> None:
        for n in range(2000):
            log.append(1, b"%d %d" % (worker, n), queue_id=worker)

    threads = [threading.Thread(target=many, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    batches, _ = log.statistics()
    assert batches < 4000
    records = read(tmp_path).records
    assert [r.sequence for r in records] == list(range(1, 8001))
    for worker in range(4):
        mine = [r.payload for r in records if r.queue_id == worker]
        assert mine == [b"%d %d" % (worker, n) for n in range(2000)]


def test_a_segment_is_filled_to_its_last_byte_and_no_further(tmp_path: Path) -> None:
    size = RECORD_HEADER_BYTES + 100
    limit = SEGMENT_HEADER_BYTES + 5 * size
    log = LogWriter(str(tmp_path), segment_bytes=limit)
    for _ in range(12):
        log.append(1, bytes(100))
    log.append(1, bytes(limit * 2))
    log.append(1, b"x")
    log.close()
    segments = list_segments(str(tmp_path))
    assert [s.first_sequence for s in segments] == [1, 6, 11, 13, 14]
    assert [s.size_bytes for s in segments[:2]] == [limit, limit]
    assert read(tmp_path).sequences == list(range(1, 15))
    assert read(tmp_path).scan.sound


def test_places_count_what_was_not_synced(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path))
    for n in range(1, 4):
        log.append(1, b"lone")
        wait_until(lambda n=n: log.persisted == n)  # type: ignore[misc]
    for _ in range(200_000):
        log.append(1, b"")
    log.close()
    records = read(tmp_path).records
    assert len(records) == 200_003
    assert [r.place for r in records[:3]] == [0, 0, 0]
    for before, after in pairwise(records):
        assert after.place in {0, before.place + 1}


def test_reopening_goes_on_with_the_numbers(tmp_path: Path) -> None:
    expected = 1
    for _ in range(5):
        found = read(tmp_path).scan
        assert found.next_sequence == expected
        repair_tail(found)
        log = LogWriter(str(tmp_path), found.next_sequence)
        for n in range(expected, expected + 10):
            assert log.append(1, payload(n)) == n
        log.close()
        expected += 10
    assert read(tmp_path).sequences == list(range(1, 51))
    assert read(tmp_path).scan.sound


def test_reopening_after_a_segment_was_only_begun(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path))
    log.append(1, payload(1))
    log.close()
    (tmp_path / f"{2:016x}.wal").write_bytes(encode_segment_header(2)[:20])
    found = read(tmp_path).scan
    repair_tail(found)
    log = LogWriter(str(tmp_path), found.next_sequence)
    assert log.append(1, payload(2)) == 2
    log.close()
    assert read(tmp_path).sequences == [1, 2]


def test_a_torn_tail_is_cut_on_real_files(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path))
    for n in range(1, 4):
        log.append(1, payload(n))
    log.close()
    (segment,) = tmp_path.iterdir()
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"torn" * 20)
    before = segment.read_bytes()
    found = read(tmp_path).scan
    assert segment.read_bytes() == before
    repair_tail(found)
    assert segment.stat().st_size == size


def test_dead_segments_go_and_the_newest_stays(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path), segment_bytes=SEGMENT_HEADER_BYTES + 10 * RECORD_HEADER_BYTES)
    for _ in range(35):
        log.append(1, b"")
    log.close()
    directory = str(tmp_path)
    assert total_bytes(directory) == 4 * SEGMENT_HEADER_BYTES + 35 * RECORD_HEADER_BYTES
    assert delete_dead_segments(directory, 10) == []
    assert [s.first_sequence for s in delete_dead_segments(directory, 11)] == [1]
    assert [s.first_sequence for s in delete_dead_segments(directory, 30)] == [11]
    assert [s.first_sequence for s in delete_dead_segments(directory, 10**9)] == [21]
    found = read(tmp_path, first_sequence=31)
    assert found.sequences == list(range(31, 36))
    assert found.scan.sound
