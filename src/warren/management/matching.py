"""Which messages of a queue are meant: patterns for their fields, all of which have to fit.

`{"routing_key": "orders.*", "headers.tenant": "a?", "payload": "*refused*"}`. A pattern is a whole
value with `*` for anything and `?` for one character. Fields are `exchange`, `routing_key`,
`payload`, the properties by name, `headers.<name>`, and of dead letters `queue`, `reason` and
`published_to`: where and why they first died, and the exchange that they had come through. A star
in brackets, `[*]`, is a star.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from typing import Any

from warren.management.errors import bad_request
from warren.model.message import MARK_HEADERS, Message
from warren.wire.properties import PROPERTY_NAMES, decode_properties
from warren.wire.tables import decode_table

#: What is looked at of a payload: patterns are for telling messages apart, not for searching.
PAYLOAD_BYTES_MAX = 64 * 1024
CONDITIONS_MAX = 16
PATTERN_CHARACTERS_MAX = 256
#: Each of them may multiply the time by the length of what is looked at.
STARS_MAX = 4

Matches = Callable[[Message], bool]
_PLAIN = ("exchange", "routing_key", "payload", "queue", "reason", "published_to")
_OF_DEATHS = {"queue": "queue", "reason": "reason", "published_to": "exchange"}


def compile_match(given: Mapping[str, Any] | None) -> Matches | None:
    """What tells the messages that are meant; None when all are. Raises 400."""
    if not given:
        return None
    if len(given) > CONDITIONS_MAX:
        raise bad_request(f"match has more than {CONDITIONS_MAX} fields")
    conditions = [(name, _pattern(name, wanted)) for name, wanted in given.items()]

    def matches(message: Message) -> bool:
        seen = _Fields(message)
        return all(
            (value := seen.get(name)) is not None and pattern.match(value) is not None
            for name, pattern in conditions
        )

    return matches


def _pattern(name: str, wanted: Any) -> re.Pattern[str]:
    if not (name in _PLAIN or name in PROPERTY_NAMES or name.startswith("headers.")):
        raise bad_request(
            f"match knows no field '{name}': it is one of {', '.join(_PLAIN)}, headers.<name> "
            "or a property"
        )
    if not isinstance(wanted, str | int | float) or len(str(wanted)) > PATTERN_CHARACTERS_MAX:
        raise bad_request(f"match of '{name}' must be a text of up to {PATTERN_CHARACTERS_MAX}")
    text = _shown(wanted)
    if text.replace("[*]", "").count("*") > STARS_MAX:
        raise bad_request(f"match of '{name}' has more than {STARS_MAX} stars")
    return re.compile(fnmatch.translate(text))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class _Fields:
    """The fields of a message as texts; read when first asked for."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._headers: dict[str, Any] | None = None
        self._properties: dict[str, Any] | None = None

    def get(self, name: str) -> str | None:
        message = self._message
        if name == "exchange":
            return message.exchange.decode("utf-8", "replace")
        if name == "routing_key":
            return message.routing_key.decode("utf-8", "replace")
        if name == "payload":
            return message.body[:PAYLOAD_BYTES_MAX].decode("utf-8", "replace")
        if name in _OF_DEATHS:
            value = first_death(self.headers).get(_OF_DEATHS[name])
        elif name.startswith("headers."):
            value = self.headers.get(name.removeprefix("headers."))
        else:
            value = self.properties.get(name)
        return None if value is None else _shown(value)

    @property
    def headers(self) -> dict[str, Any]:
        if self._headers is None:
            self._headers = headers_of(self._message)
        return self._headers

    @property
    def properties(self) -> dict[str, Any]:
        if self._properties is None:
            self._properties = dict(decode_properties(self._message.header))
        return self._properties


def headers_of(message: Message) -> dict[str, Any]:
    """The headers of a message; none for one without."""
    return decode_table(message.headers_table) if message.marks & MARK_HEADERS else {}


def first_death(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Where and why a dead letter first died, as far as its headers tell."""
    found = {
        name: headers[f"x-first-death-{name}"]
        for name in ("queue", "reason", "exchange")
        if isinstance(headers.get(f"x-first-death-{name}"), str)
    }
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[-1], dict):
        # The newest is first.
        for name in ("queue", "reason", "exchange"):
            if isinstance(deaths[-1].get(name), str):
                found.setdefault(name, deaths[-1][name])
    return found
