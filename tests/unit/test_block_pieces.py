"""A block is sent in pieces: together they are the block, whatever their size."""

from __future__ import annotations

import pyarrow as pa
import pytest

from warren.spark.blocks import Block
from warren.wire.columns import Column, fill_column, join_block


@pytest.mark.parametrize("most", [1, 7, 64, 65_536])
def test_pieces_are_the_block(most: int) -> None:
    kinds = [("seq", "i64"), ("body", "bytes"), ("redelivered_hint", "bool")]
    columns = [(name, kind, Column(name, kind).buffers()) for name, kind in kinds]
    pieces = list(join_block(columns, 0, {"to": 3}).pieces(most))
    assert {len(piece) for piece in pieces[:-1]} <= {most}
    assert Block(b"".join(pieces)).end == 3


@pytest.mark.parametrize("digits", range(8))
def test_columns_begin_at_multiples_of_eight(digits: int) -> None:
    data = bytes(
        join_block([("seq", "i64", Column("seq", "i64").buffers())], 0, {"to": 10**digits})
    )
    assert Block(data).end == 10**digits
    assert len(data) % 8 == 0


def test_a_column_is_given_away_once() -> None:
    column = Column("body", "bytes")
    assert [0 if one is None else len(one) for one in column.buffers()] == [0, 4, 0]
    assert [0 if one is None else len(one) for one in column.buffers()] == [0, 0, 0]


def test_a_column_has_a_value_where_one_was_put() -> None:
    """Rows before the first value, and after the last, have none."""
    pattern = [None, None, 7, None, -1, *[None] * 9, 3]
    for values in (pattern, pattern[2:3], [5, 6, None], [None], [1] * 9, []):
        columns = []
        for name, kind in (("seq", "i64"), ("priority", "i8"), ("body", "bytes")):
            column = Column(name, kind)
            fill_column(column, values)
            assert column.is_empty is (values.count(None) == len(values))
            columns.append((name, kind, column.buffers()))
        block = Block(bytes(join_block(columns, len(values), {"to": 0})))
        assert block.column("seq", pa.int64()).to_pylist() == values
        assert block.column("priority", pa.int8()).to_pylist() == values
        texts = [None if one is None else b"%d" % one for one in values]
        assert block.column("body", pa.binary()).to_pylist() == texts
