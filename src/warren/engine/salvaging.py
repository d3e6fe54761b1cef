"""Messages of a mirrored queue that the cluster goes on without: put aside, a line of JSON each."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from warren.model.message import Address, Message
from warren.store.records import RECORD_HEADER_BYTES
from warren.wire.content import make_message
from warren.wire.properties import replace_properties
from warren.wire.tables import encode_value, join_entries, split_entries

if TYPE_CHECKING:
    from warren.store.journal import Journal

#: Marks what was brought back: it may have been delivered before.
SALVAGED = "x-salvaged"
#: Where a record has its kind, and the kinds of those that are one message.
_KIND_AT = 16
_MESSAGES = frozenset((1, 9))
_COUNT = struct.Struct("<I")
_CONTENT_BYTES = 16
_TARGET = struct.Struct("<IIQQ")
_TARGET_BYTES = 56
#: A message goes to a few mirrored queues, not to thousands.
_LOOK_BYTES = RECORD_HEADER_BYTES + _CONTENT_BYTES + 256 * _TARGET_BYTES


def index_of(journal: Journal, place: int, queue_id: int) -> int | None:
    """The operation that a message of the log came with; 0: with a copy. None: nobody knows."""
    if not place or journal.read_at is None:
        return None
    try:
        data = journal.read_at(place >> 32, place & 0xFFFFFFFF, _LOOK_BYTES)
        if data[_KIND_AT] not in _MESSAGES:
            return None
        (count,) = _COUNT.unpack_from(data, RECORD_HEADER_BYTES)
        for number in range(count):
            at = RECORD_HEADER_BYTES + _CONTENT_BYTES + number * _TARGET_BYTES
            found, _flags, _epoch, index = _TARGET.unpack_from(data, at)
            if found == queue_id:
                return int(index)
    except (OSError, IndexError, struct.error):
        pass
    return None


def lines_of(rows: Iterable[tuple[int, Message]]) -> Iterator[bytes]:
    """Messages as lines of a file."""
    for slot, message in rows:
        address = message.address
        line = {
            "slot": slot,
            "exchange": _text(address.exchange),
            "routing_key": _text(address.routing_key),
            "hidden_keys": [_text(key) for key in address.hidden_keys],
            "header": _text(message.header),
            "body": _text(message.body),
        }
        yield json.dumps(line).encode()


def message_of(line: bytes) -> Message:
    """The message of such a line. Raises ValueError."""
    try:
        row: dict[str, Any] = json.loads(line)
        address = Address(
            _octets(row["exchange"]),
            _octets(row["routing_key"]),
            tuple(_octets(key) for key in row["hidden_keys"]),
        )
        return make_message(address, _octets(row["header"]), _octets(row["body"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a line that is no message: {error}") from error


def marked(message: Message, cause: str, header_name: str = SALVAGED) -> Message:
    """The message as it comes back: whoever gets it can tell that it may have come before."""
    entries = split_entries(message.headers_table) if message.headers_table else {}
    entries[header_name] = encode_value(cause)
    header = replace_properties(message.header, {"headers": join_entries(entries)})
    return make_message(message.address, header, message.body)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _octets(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
