"""Reading a log back: whatever the bytes are, nothing is silent and nothing raises."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_logs import Bytes, check_records, payload, read, segment, small_log

from warren.store.crc32c import checksum
from warren.store.records import (
    SEGMENT_HEADER_BYTES,
    encode_record,
    encode_segment_header,
    segment_name,
)
from warren.store.scan import UnknownFormatError, repair_tail, scan
from warren.store.scanner import Record

ONE = segment_name(1)


def test_an_empty_log(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert not found.records
    assert found.scan.next_sequence == 1
    assert found.scan.sound


def test_a_sound_log() -> None:
    found = read(small_log(5, 7, 1))
    assert found.sequences == list(range(1, 14))
    check_records(found.records)
    assert found.scan.sound
    assert found.scan.torn_tail is None
    assert found.scan.next_sequence == 14
    assert [r.queue_id for r in found.records] == [n % 5 for n in range(1, 14)]


@pytest.mark.parametrize("batch", [1, 3])
def test_truncation_at_every_byte(batch: int) -> None:
    files = small_log(4, 6, batch=batch)
    newest = max(files)
    whole = files[newest]
    ends = [r.offset for r in read(files).records if r.sequence > 5] + [len(whole)]
    for size in range(len(whole)):
        found = read({**files, newest: whole[:size]})
        kept = sum(end <= size for end in ends)
        assert found.sequences == list(range(1, 5 + kept))
        assert found.scan.sound
        assert found.scan.next_sequence == 5 + kept
        torn = found.scan.torn_tail
        if size in ends:
            assert torn is None
        else:
            assert torn is not None
            assert torn.offset + torn.cut_bytes == size
            assert torn.offset == (ends[kept - 1] if kept else 0)
        repair_tail(found.scan)
        again = read(found.scan.files)
        assert again.sequences == found.sequences
        assert again.scan.torn_tail is None
        assert again.scan.next_sequence == found.scan.next_sequence or not kept


@pytest.mark.parametrize("batch", [1, 4])
def test_truncation_of_an_older_segment_at_every_byte(batch: int) -> None:
    files = small_log(4, 6, batch=batch)
    for size in range(len(files[ONE])):
        found = read({**files, ONE: files[ONE][:size]})
        check_records(found.records)
        assert found.sequences[-6:] == list(range(5, 11))
        assert not found.scan.sound
        assert found.scan.torn_tail is None


@pytest.mark.parametrize("batch", [1, 4])
def test_every_single_bit_flip(batch: int) -> None:
    files = small_log(4, 8, batch=batch)
    newest = max(files)
    last_batch = 12 if batch == 1 else 9
    for name, content in files.items():
        spans = [(r.sequence, r.offset) for r in read({name: content}).records]
        for bit in range(len(content) * 8):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << (bit % 8)
            found = read({**files, name: bytes(flipped)})
            check_records(found.records)
            hit = max((n for n, offset in spans if offset <= bit // 8), default=0)
            if hit and name == newest and hit >= last_batch:
                assert found.scan.torn_tail is not None
                assert found.scan.sound
                assert found.sequences == list(range(1, hit))
            else:
                assert [d.segment for d in found.scan.damages] == [name]
                assert found.scan.torn_tail is None
                assert found.sequences == [n for n in range(1, 13) if n != hit]
                damage = found.scan.damages[0]
                if hit:
                    assert damage.expected_sequence == hit
                    assert damage.resumed_sequence == hit + 1
                    assert damage.offset == dict(spans)[hit]
                else:
                    assert (damage.offset, damage.skipped_bytes) == (0, SEGMENT_HEADER_BYTES)


def test_a_missing_middle_segment() -> None:
    files = small_log(3, 4, 5)
    del files[segment_name(4)]
    found = read(files)
    assert found.sequences == [1, 2, 3, *range(8, 13)]
    (gap,) = found.scan.missing
    assert (gap.after, gap.before) == (ONE, segment_name(8))
    assert (gap.expected_sequence, gap.found_sequence) == (4, 8)


def test_missing_segments_at_the_beginning() -> None:
    files = small_log(3, 4)
    del files[ONE]
    assert read(files).scan.sound
    found = read(files, first_sequence=2)
    (gap,) = found.scan.missing
    assert (gap.after, gap.expected_sequence, gap.found_sequence) == ("", 2, 4)


def test_a_tail_of_zeros_is_the_end() -> None:
    files = small_log(3)
    for count in (1, 31, 32, 4096):
        found = read({ONE: files[ONE] + bytes(count)})
        assert found.sequences == [1, 2, 3]
        assert found.scan.torn_tail is None
        assert found.scan.spare_tail is not None
        assert found.scan.spare_tail.spare_bytes == count
        assert found.scan.sound
        repair_tail(found.scan)
        assert found.scan.files.read(ONE) == files[ONE]
    grown = {ONE: files[ONE] + bytes(99), segment_name(4): segment(4, 2)}
    assert read(grown).sequences == [1, 2, 3, 4, 5]
    assert read(grown).scan.sound


def test_a_tail_of_garbage_is_torn() -> None:
    source = random.Random(1)
    files = small_log(3)
    for count in range(1, 300, 7):
        found = read({ONE: files[ONE] + source.randbytes(count)})
        assert found.sequences == [1, 2, 3]
        assert found.scan.sound
        assert found.scan.torn_tail is not None
        assert found.scan.torn_tail.cut_bytes == count


def test_a_newest_segment_without_records_is_removed() -> None:
    header = encode_segment_header(4)
    for content in (b"", header[:9], header, header + bytes(64), bytes(500)):
        files = Bytes({**small_log(3), segment_name(4): content})
        found = read(files)
        assert found.scan.torn_tail is not None
        assert found.scan.torn_tail.offset == 0
        assert found.scan.next_sequence == 4
        repair_tail(found.scan)
        assert files.names() == [ONE]


def test_a_batch_whose_beginning_was_not_written_is_torn() -> None:
    content = segment(1, 12, batch=4)
    starts = {r.sequence: r.offset for r in read({ONE: content}).records}
    for lost, until in ((9, 10), (9, 12), (10, 11)):
        holed = bytearray(content)
        holed[starts[lost] : starts[until]] = bytes(starts[until] - starts[lost])
        found = read({ONE: bytes(holed)})
        assert found.sequences == list(range(1, lost))
        assert found.scan.sound
        assert found.scan.torn_tail is not None
        assert found.scan.torn_tail.offset == starts[lost]
    holed = bytearray(content)
    holed[starts[8] : starts[10]] = bytes(starts[10] - starts[8])
    found = read({ONE: bytes(holed)})
    assert found.sequences == [*range(1, 8), 10, 11, 12]
    assert found.scan.torn_tail is None
    assert found.scan.damages[0].lost_records == 2


def test_a_repeated_record_is_reported_and_read_once() -> None:
    records = [encode_record(Record(n, 1, payload(n))) for n in (1, 2, 2, 3, 4)]
    found = read({ONE: encode_segment_header(1) + b"".join(records)})
    assert found.sequences == [1, 2, 3, 4]
    (damage,) = found.scan.damages
    assert damage.lost_records == 0
    assert damage.skipped_bytes == len(records[2])


def test_a_segment_that_begins_too_early_is_reported() -> None:
    found = read({ONE: segment(1, 5), segment_name(4): segment(4, 5)})
    assert found.sequences == list(range(1, 9))
    check_records(found.records)
    assert [d.segment for d in found.scan.damages] == [segment_name(4)]


def test_records_inside_a_payload_are_not_records() -> None:
    inner = b"".join(encode_record(Record(n, 1, b"forged")) for n in range(2, 6))
    outer = [encode_record(Record(1, 1, payload(1)))]
    outer.append(encode_record(Record(2, 1, inner)))
    outer.append(encode_record(Record(3, 1, payload(3))))
    for count in (2, 3):
        content = bytearray(encode_segment_header(1) + b"".join(outer[:count]))
        content[SEGMENT_HEADER_BYTES + len(outer[0])] ^= 1
        found = read({ONE: bytes(content)})
        assert found.sequences == [1, 3][: count - 1]
        check_records(found.records)


def test_many_forged_headers_do_not_hold_the_search_up() -> None:
    forged = b"".join(
        b"\0\0\0\0" + (1 << 19).to_bytes(4, "little") + n.to_bytes(8, "little") + bytes(16)
        for n in range(2, 40_000)
    )
    content = segment(1, 1) + b"\1" + forged + bytes(1 << 19)
    found = read({ONE: content})
    assert found.sequences == [1]


def test_an_unknown_version_is_refused() -> None:
    header = bytearray(encode_segment_header(1))
    header[8] = 3
    header[28:] = checksum(bytes(header[:28])).to_bytes(4, "little")
    with pytest.raises(UnknownFormatError, match="version 3"):
        read({ONE: bytes(header)})


def test_an_unreadable_segment_is_damage() -> None:
    class Unreadable(Bytes):
        def read(self, name: str) -> bytes:
            if name == ONE:
                raise OSError(5, "Input/output error", name)
            return super().read(name)

        def read_at(self, name: str, at: int, size: int) -> bytes:
            raise OSError(5, "Input/output error", name)

    found = read(Unreadable(small_log(3, 3)))
    assert found.sequences == [4, 5, 6]
    assert "Input/output error" in found.scan.damages[0].reason


def test_other_files_are_left_alone() -> None:
    files = Bytes({**small_log(3), "notes.txt": b"x", "000000000000000G.wal": b"x"})
    assert read(files).sequences == [1, 2, 3]
    repair_tail(scan(files).finish())
    assert len(files.names()) == 3


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.binary(max_size=400), st.booleans())
def test_any_bytes_at_all(first: bytes, second: bytes, headed: bool) -> None:
    if headed:
        first = encode_segment_header(1) + first
        second = encode_segment_header(9) + second
    found = read({ONE: first, segment_name(9): second})
    assert found.scan.torn_tail or not found.scan.sound


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_overwriting_is_noticed(data: st.DataObject) -> None:
    files = small_log(5, 5, batch=2)
    name = data.draw(st.sampled_from(sorted(files)))
    content = files[name]
    at = data.draw(st.integers(0, len(content) - 1))
    new = data.draw(st.binary(min_size=1, max_size=60))
    changed = (content[:at] + new + content[at + len(new) :])[: len(content)]
    found = read({**files, name: changed})
    check_records(found.records)
    if changed != content:
        assert found.scan.torn_tail or not found.scan.sound
        before = [r for r in read(files).records if r.sequence < 6 and name != ONE]
        assert found.records[: len(before)] == before
    else:
        assert len(found.records) == 10
