"""The bytes of durable metadata: changes for the log, and a snapshot of everything.

Both are one AMQP table, so that arguments keep their types: `v` is the version, `changes` an array
of tables, each either `{put: [kind, key...], value: {...}}` or `{delete: [kind, key...]}`. A
snapshot is the puts of everything there is, and `last_queue_id` beside them. Arguments are tables
encoded on their own: a client may nest them as deep as a table can be.

Nothing read here is trusted: what is not as it must be raises MetadataError.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from warren.model.errors import WireSyntaxError
from warren.routing.binding import Binding, DestinationKind
from warren.wire.tables import LongBytes, decode_table, decode_value, encode_table, encode_value

FORMAT_VERSION = 1
#: Changes of a large record that are handled in one step.
CHANGES_OF_A_SLICE = 256
#: What stands beside the changes is a few numbers.
HEAD_BYTES_MAX = 1024

#: What stands before the changes: the key `changes`, and the type octet of an array.
_CHANGES = b"\x07changesA"


class MetadataError(ValueError):
    """Metadata that cannot be used, wholly or in part; one line for each problem."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class Kind(StrEnum):
    """What an entry is about, in the order in which entries can be restored."""

    VHOST = "vhost"
    VHOST_LIMITS = "vhost_limits"
    USER = "user"
    PERMISSION = "permission"
    TOPIC_PERMISSION = "topic_permission"
    POLICY = "policy"
    OPERATOR_POLICY = "operator_policy"
    PARAMETER = "parameter"
    GLOBAL_PARAMETER = "global_parameter"
    EXCHANGE = "exchange"
    QUEUE = "queue"
    MIRROR_LINK = "mirror_link"
    PAUSE = "pause"
    BINDING = "binding"


#: How many parts the key of each kind has: the virtual host first, but for `OF_NO_VHOST`.
_KEY_PARTS = {
    Kind.VHOST: 1,
    Kind.VHOST_LIMITS: 1,
    Kind.USER: 1,
    Kind.PERMISSION: 2,
    Kind.TOPIC_PERMISSION: 3,
    Kind.POLICY: 2,
    Kind.OPERATOR_POLICY: 2,
    # virtual host, component, name
    Kind.PARAMETER: 3,
    Kind.GLOBAL_PARAMETER: 1,
    Kind.EXCHANGE: 2,
    Kind.QUEUE: 2,
    # virtual host, queue, node
    Kind.MIRROR_LINK: 3,
    # virtual host, queue
    Kind.PAUSE: 2,
    # virtual host, source, kind and name of the destination, routing key, arguments
    Kind.BINDING: 6,
}
#: Kinds whose key does not begin with a virtual host.
OF_NO_VHOST = frozenset({Kind.USER, Kind.GLOBAL_PARAMETER})
_KINDS = {str(kind): kind for kind in Kind}
#: The last parts of a binding's key are bytes, not names.
_BINDING_NAMES = 4


class Entry(NamedTuple):
    """What a change is about."""

    kind: Kind
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')} {', '.join(repr(name) for name in self.names)}"


@dataclass(slots=True)
class Change:
    """One change as it was read; without a value it is a deletion."""

    entry: Entry
    #: The binding that a binding's key stands for.
    binding: Binding | None
    value: Fields | None
    #: The change as it stands in the array, decoded.
    table: dict[str, Any]
    #: The same, if it is known as bytes.
    raw: bytes = b""

    @property
    def encoded(self) -> bytes:
        """The change as it stands in the array."""
        return self.raw or encode_value(self.table)

    @property
    def kind(self) -> Kind:
        return self.entry.kind

    @property
    def epoch(self) -> int | None:
        """Of a deletion that holds only in this epoch of the queue's view."""
        epoch = self.table.get("epoch")
        return epoch if isinstance(epoch, int) else None

    @property
    def names(self) -> tuple[str, ...]:
        return self.entry.names

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What tells it from all others of its kind."""
        return self.names if self.binding is None else (self.names[0], self.binding.identity)

    def __str__(self) -> str:
        return str(self.entry)


def encode_put(kind: Kind, key: Iterable[str | bytes], value: dict[str, Any]) -> bytes:
    return encode_value({"put": [str(kind), *key], "value": value})


def encode_delete(kind: Kind, key: Iterable[str | bytes], epoch: int | None = None) -> bytes:
    """With an epoch it holds only while the queue's view has that one."""
    when = {} if epoch is None else {"epoch": epoch}
    return encode_value({"delete": [str(kind), *key], **when})


def pack(changes: Iterable[bytes], **head: int) -> bytes:
    """The payload that holds encoded changes; joins them without looking at them again."""
    encoded = list(changes)
    length = sum(map(len, encoded)).to_bytes(4, "big")
    return b"".join([encode_table({"v": FORMAT_VERSION, **head}), _CHANGES, length, *encoded])


def unpack(payload: bytes) -> tuple[Fields, list[Change]]:
    """What `pack` has packed: the head, and the changes. Raises MetadataError."""
    table = _decode_record(payload)
    head = _read_head(table)
    changes = table.get("changes")
    if not isinstance(changes, list):
        raise MetadataError("metadata record: 'changes' is missing or no array")
    return head, [_read_change(change) for change in changes]


def unpack_in_slices(payload: bytes) -> Generator[None, None, tuple[Fields, list[Change]]]:
    """`unpack` of very many changes, which takes seconds: a few in each step."""
    at = payload.find(_CHANGES, 0, HEAD_BYTES_MAX)
    if at < 0:
        raise MetadataError("metadata record: 'changes' is missing or no array")
    head = _read_head(_decode_record(payload[:at]))
    at += len(_CHANGES) + 4
    if at + int.from_bytes(payload[at - 4 : at], "big") != len(payload):
        raise MetadataError("metadata record: the changes are not as long as they should be")
    read: list[Change] = []
    while at < len(payload):
        end = at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
        raw = payload[at:end]
        try:
            change = _read_change(decode_value(raw))
        except WireSyntaxError as error:
            raise MetadataError(f"not a metadata record: {error.explanation}") from error
        change.raw = raw
        read.append(change)
        at = end
        if len(read) % CHANGES_OF_A_SLICE == 0:
            yield
    return head, read


def _decode_record(payload: bytes) -> dict[str, Any]:
    try:
        return decode_table(payload)
    except WireSyntaxError as error:
        raise MetadataError(f"not a metadata record: {error.explanation}") from error


def _read_head(table: dict[str, Any]) -> Fields:
    head = Fields("metadata record", table)
    version = head.number("v")
    if version != FORMAT_VERSION:
        raise MetadataError(f"metadata record of version {version}, not {FORMAT_VERSION}")
    return head


def _read_change(change: object) -> Change:
    if not isinstance(change, dict):
        raise MetadataError(f"metadata record: a change is no table but {change!r:.80}")
    key = change.get("put", change.get("delete"))
    value = change.get("value")
    if not isinstance(key, list) or not key:
        raise MetadataError("metadata record: a change puts and deletes nothing")
    is_put = "put" in change
    if is_put == ("delete" in change) or is_put != isinstance(value, dict):
        raise MetadataError("metadata record: a change is neither a put with a value nor a delete")
    kind = _KINDS.get(key[0]) if type(key[0]) is str else None
    if kind is None:
        raise MetadataError(f"metadata record: unknown kind of entry {key[0]!r:.80}")
    if len(key) != 1 + _KEY_PARTS[kind]:
        raise MetadataError(f"metadata record: a {kind} with a key of {len(key) - 1} parts")
    names = tuple(
        [
            part if type(part) is str else _as_text(part, f"a name in the key of a {kind}")
            for part in key[1 : 1 + _BINDING_NAMES]
        ]
    )
    entry = Entry(kind, names)
    binding = _read_binding(entry, *key[1 + _BINDING_NAMES :]) if kind is Kind.BINDING else None
    fields = Fields(entry, value) if isinstance(value, dict) else None
    return Change(entry, binding, fields, change)


def _read_binding(entry: Entry, routing_key: object, arguments: object) -> Binding:
    _, source, kind, destination = entry.names
    if type(routing_key) is not bytes or type(arguments) is not bytes:
        raise MetadataError(f"{entry}: routing key or arguments are not bytes")
    if kind not in {"queue", "exchange"}:
        raise MetadataError(f"{entry}: '{kind}' is no kind of destination")
    table = _decode_arguments(entry, arguments) if arguments else {}
    known: DestinationKind = "queue" if kind == "queue" else "exchange"
    return Binding(source, known, destination, routing_key, table)


def _decode_arguments(entry: object, encoded: bytes) -> dict[str, Any]:
    try:
        return decode_table(encoded)
    except WireSyntaxError as error:
        raise MetadataError(f"{entry}: arguments: {error.explanation}") from error


def _as_text(value: object, what: str) -> str:
    if isinstance(value, str):
        return value
    # Names need not be UTF-8; elsewhere in the broker they are texts all the same.
    if isinstance(value, LongBytes):
        return value.decode("utf-8", "surrogateescape")
    raise MetadataError(f"{what} is no text but {value!r:.80}")


class Fields:
    """The fields of an entry, each asked for with its type. All raise MetadataError."""

    __slots__ = ("_entry", "_values")

    def __init__(self, entry: object, values: dict[str, Any]) -> None:
        self._entry = entry
        self._values = values

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        return value if type(value) is str else _as_text(value, f"{self._entry}: '{name}'")

    def texts(self, name: str) -> list[str]:
        values = self._values.get(name)
        if not isinstance(values, list):
            raise self._wrong(name, "array")
        return [_as_text(value, f"{self._entry}: one of '{name}'") for value in values]

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "truth value")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._values.get(name, default)
        if type(value) is not int:
            raise self._wrong(name, "number")
        return value

    def table(self, name: str) -> dict[str, Any]:
        """A table inside this one."""
        value = self._values.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "table")
        return value

    def arguments(self, name: str) -> dict[str, Any]:
        """A table that was encoded on its own."""
        value = self._values.get(name)
        if type(value) is not bytes:
            raise self._wrong(name, "encoded table")
        return _decode_arguments(self._entry, value)

    def json(self, name: str) -> Any:
        """A value that was encoded as JSON."""
        value = self._values.get(name)
        if type(value) is not bytes:
            raise self._wrong(name, "encoded JSON")
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MetadataError(f"{self._entry}: '{name}' is no JSON: {error}") from error

    def _wrong(self, name: str, expected: str) -> MetadataError:
        value = self._values.get(name)
        return MetadataError(f"{self._entry}: '{name}' is no {expected} but {value!r:.80}")
