"""The hashable form of AMQP field values, in which equal means equal to a client.

Python says `True == 1 == 1.0`; AMQP does not, while the widths of integers make no difference to
anybody. Two values have equal canonical forms exactly if they are of the same class (void, boolean,
integer, floating point, string, binary, ...) and of the same value, at any depth. The forms hold no
address or random salt, so that their `repr` is the same in every process.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

#: Classes whose Python equality already is AMQP's; they stand for themselves, which keeps the
#: common look-up of a message's header free of any allocation.
_PLAIN = frozenset((str, int, bytes, type(None)))


def canonical(value: Any) -> Hashable:
    """The hashable form of one field value; see the module's text."""
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return ("boolean", value)
    if isinstance(value, float):
        # A NaN differs from itself, and a binding that differs from itself can not be removed.
        return ("double", value if value == value else "nan")  # noqa: PLR0124
    if isinstance(value, Mapping):
        return ("table", canonical_table(value))
    if isinstance(value, list | tuple):
        return ("array", tuple(canonical(item) for item in value))
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return (kind.__name__, value)


def canonical_table(table: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    """The hashable form of a field table; the order of its entries does not count."""
    if not table:
        return ()
    return tuple((key, canonical(table[key])) for key in sorted(table))


def text_of(value: Any) -> str | None:
    """The text of a string value however it was decoded; None if it is no string."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return None


def erlang_binary(value: bytes | str) -> str:
    """How the brokers of this family show a string in an error's text: `<<"text">>`."""
    text = text_of(value)
    return f'<<"{text}">>' if text else "<<>>"
