"""Messages that are put aside, and what becomes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.engine.salvaging import lines_of, marked, message_of
from warren.model.message import Address, Message
from warren.store.salvage import SalvageDirectory
from warren.wire.content import make_message
from warren.wire.properties import decode_properties, encode_properties


def message(body: bytes, **properties: object) -> Message:
    header = encode_properties(dict(properties), len(body))
    return make_message(Address(b"", b"queue", (b"hidden",)), header, body)


def test_messages_come_back_as_they_were(tmp_path: Path) -> None:
    salvage = SalvageDirectory(str(tmp_path / "salvage"))
    kept = [message(b"%d\xff" % i, delivery_mode=2, headers={"n": i}) for i in range(5)]
    name = salvage.keep_messages("queue-7-3", lines_of(enumerate(kept)), {"messages": 5})
    assert [row["file"] for row in salvage.notes()] == [name]
    lines = salvage.read_lines(name, 1, 3)
    assert len(lines) == 3
    for before, line in zip(kept[1:4], lines, strict=True):
        after = message_of(line)
        assert (after.header, after.body) == (before.header, before.body)
        assert after.address.hidden_keys == (b"hidden",)


def test_a_second_piece_has_a_name_of_its_own(tmp_path: Path) -> None:
    salvage = SalvageDirectory(str(tmp_path))
    names = [salvage.keep_messages("queue-7-3", [b"{}"], {"messages": 1}) for _ in range(3)]
    assert len(set(names)) == 3
    salvage.drop(names[1])
    assert [row["file"] for row in salvage.notes()] == [names[0], names[2]]
    assert salvage.find(names[1]) is None
    assert not (tmp_path / names[1]).exists()
    assert salvage.find("../salvage.jsonl") is None


def test_what_is_no_message_is_told() -> None:
    for line in (b"{}", b"[]", b'{"exchange": 1}'):
        with pytest.raises(ValueError, match="no message"):
            message_of(line)


def test_what_comes_back_is_marked() -> None:
    for properties in ({}, {"headers": {"mine": "here"}}):
        found = marked(message(b"x", **properties), "piece")
        headers = decode_properties(found.header)["headers"]
        assert headers == {**properties.get("headers", {}), "x-salvaged": "piece"}  # type: ignore[dict-item]
