"""Records of the write-ahead log as values; the layout is in docs/internals/wal-format.md."""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import NamedTuple

from warren.store.crc32c import checksum
from warren.store.scanner import Record

SEGMENT_MAGIC = b"WARRENWL"
FORMAT_VERSION = 2
SEGMENT_HEADER = struct.Struct("<8sIIQI")
SEGMENT_HEADER_BYTES = 32
RECORD_HEADER = struct.Struct("<IIQBBHIQ")
RECORD_HEADER_BYTES = RECORD_HEADER.size
#: What a message in a queue takes at least beside its body: header, lengths and whose it is.
MESSAGE_BYTES_MIN = RECORD_HEADER_BYTES + 16 + 56
#: How many records a batch may hold between two syncs: the place in it has 16 bits.
BATCH_RECORDS_MAX = 65536
#: No record is longer: the largest message and its addresses, with room to spare.
PAYLOAD_BYTES_MAX = 600 * 1024 * 1024

_SEGMENT_NAME = re.compile(r"[0-9a-f]{16}\.wal")


class Kind(IntEnum):
    """What a record says."""

    PUBLISH = 1
    GONE = 2
    REQUEUE = 3
    WATERMARK = 4
    INDEX = 5
    RING = 6
    METADATA = 7
    PLACED = 8
    MOVED = 9
    MARK = 10
    CURSOR = 11
    BATCH = 12


def encode_record(record: Record, salt: int = 0) -> bytes:
    """The record as it stands in a segment."""
    rest = RECORD_HEADER.pack(
        0,
        len(record.payload),
        record.sequence,
        record.kind,
        record.flags,
        record.place,
        record.queue_id,
        record.epoch,
    )[4:]
    crc = checksum(record.payload, checksum(rest, salt))
    return crc.to_bytes(4, "little") + rest + record.payload


def decode_record(data: bytes | memoryview, at: int, salt: int = 0) -> Record | None:
    """The record at an offset; None when there is none that checks."""
    if len(data) - at < RECORD_HEADER_BYTES:
        return None
    crc, length, sequence, kind, flags, place, queue_id, epoch = RECORD_HEADER.unpack_from(data, at)
    end = at + RECORD_HEADER_BYTES + length
    if length > PAYLOAD_BYTES_MAX or end > len(data) or sequence == 0:
        return None
    if checksum(bytes(data[at + 4 : end]), salt) != crc:
        return None
    payload = bytes(data[at + RECORD_HEADER_BYTES : end])
    return Record(sequence, kind, payload, flags, queue_id, epoch, place)


def record_bytes(record: Record) -> int:
    """How much room a record takes."""
    return RECORD_HEADER_BYTES + len(record.payload)


def encode_segment_header(first_sequence: int, number: int = 0, salt: int = 0) -> bytes:
    """The header that begins a segment."""
    head = SEGMENT_HEADER.pack(SEGMENT_MAGIC, FORMAT_VERSION, number, first_sequence, salt)
    return head + checksum(head).to_bytes(4, "little")


class SegmentHeader(NamedTuple):
    """What the header of a segment says."""

    version: int
    number: int
    first_sequence: int
    #: The checksums of its records begin with this: bytes inside a message cannot pass for records.
    salt: int


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """The header of a segment; None when it does not check."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    magic, version, number, first_sequence, salt = SEGMENT_HEADER.unpack_from(data)
    crc = int.from_bytes(data[SEGMENT_HEADER.size : SEGMENT_HEADER_BYTES], "little")
    if magic != SEGMENT_MAGIC or checksum(data[: SEGMENT_HEADER.size]) != crc:
        return None
    return SegmentHeader(version, number, first_sequence, salt)


def segment_name(first_sequence: int) -> str:
    """The file name of the segment that begins with a sequence number."""
    return f"{first_sequence:016x}.wal"


def segment_first_sequence(name: str) -> int | None:
    """The sequence number a file name says its segment begins with; None: no segment's name."""
    return int(name[:16], 16) if _SEGMENT_NAME.fullmatch(name) else None
