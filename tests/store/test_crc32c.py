"""CRC32C: known answers, and the processor's instruction against the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.store.crc32c import checksum, checksum_by_table

#: From RFC 3720 B.4, and the check value that catalogues of checksums give.
VECTORS = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "crc"), VECTORS)
def test_known_answers(data: bytes, crc: int) -> None:
    assert checksum(data) == crc
    assert checksum_by_table(data) == crc


@given(st.binary(max_size=300))
def test_the_processor_agrees_with_the_table(data: bytes) -> None:
    assert checksum(data) == checksum_by_table(data)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_checksum_can_be_extended(first: bytes, second: bytes) -> None:
    assert checksum(second, checksum(first)) == checksum(first + second)
