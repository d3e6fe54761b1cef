"""The mark of a dead letter that was sent back: how often, when last, and out of which queue.

It is a header, `x-redriven`, so that consumers see it and an operator can tell what was tried
before; it stays when the message dies again.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.model.message import MARK_HEADERS, Message
from warren.wire.content import make_message
from warren.wire.properties import replace_properties
from warren.wire.tables import Timestamp, decode_value, encode_value, join_entries, split_entries

HEADER = "x-redriven"
#: The header is the clients' too: a count beyond this is nonsense.
COUNT_MAX = 2**62


def marker(source: str, at_s: int) -> Callable[[Message], Message]:
    """Marks messages that leave a queue at a time."""

    def mark(message: Message) -> Message:
        entries = split_entries(message.headers_table) if message.marks & MARK_HEADERS else {}
        told = {
            # A long whatever it is, as in x-death.
            "count": b"l" + (_count(entries.get(HEADER)) + 1).to_bytes(8, "big"),
            "time": encode_value(Timestamp(at_s)),
            "from": encode_value(source),
        }
        table = join_entries(told)
        entries[HEADER] = b"F" + len(table).to_bytes(4, "big") + table
        header = replace_properties(message.header, {"headers": join_entries(entries)})
        return make_message(message.address, header, message.body)

    return mark


def _count(tagged: bytes | None) -> int:
    """How often it was sent back before."""
    before = decode_value(tagged) if tagged is not None else None
    count = before.get("count") if isinstance(before, dict) else 0
    return count if isinstance(count, int) and 0 <= count < COUNT_MAX else 0
