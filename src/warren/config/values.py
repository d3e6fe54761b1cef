"""The kinds of values a setting may have: how each is read, and how it is described to a person.

A kind's `parse` raises ValueError; the loader then says where, which key, and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warren.config.settings import Endpoint

PORT_MAX = 65_535
#: Single letters and `KiB` are powers of 1024, `KB` is a power of 1000, as in rabbitmq.conf.
_UNIT_BYTES: dict[str, int] = {
    "": 1,
    **{
        unit: base**power
        for power, letter in enumerate("kmgt", start=1)
        for unit, base in ((letter, 1024), (f"{letter}ib", 1024), (f"{letter}b", 1000))
    },
}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)")
#: Units of durations; a number without one is milliseconds.
_UNIT_MS: dict[str, int] = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
#: A node's name is also a file's and a step in a path; 255 is what those may have.
_NODE_NAME = re.compile(r"(?=.{3,255}\Z)[\w+.-]+@[\w.:-]+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+)(ms|[smhdw]|)")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value."""

    expected: str
    parse: Callable[[str], object]
    #: The value is a secret and must not be repeated in a message.
    secret: bool = False


def _whole_number(text: str, minimum: int, maximum: int | None) -> int:
    if not re.fullmatch(r"-?[0-9]+", text):
        raise ValueError(text)
    value = int(text)
    if value < minimum or (maximum is not None and value > maximum):
        raise ValueError(text)
    return value


def integer(minimum: int = 0, maximum: int | None = None, unit: str = "") -> Kind:
    """A whole number in a range."""
    upto = "" if maximum is None else f" to {maximum}"
    of_unit = f" of {unit}" if unit else ""
    expected = f"a whole number{of_unit} from {minimum}{upto}"
    return Kind(expected, lambda text: _whole_number(text, minimum, maximum))


def integer_or(word: str, minimum: int = 0, unit: str = "") -> Kind:
    """A whole number, or a word that stands for no limit."""
    number = integer(minimum, None, unit)
    words = {word, "infinity", "unlimited"}

    def parse(text: str) -> object:
        return None if text in words else number.parse(text)

    return Kind(f"{number.expected}, or '{word}'", parse)


def enum(*allowed: str) -> Kind:
    """One word of a list."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return Kind(f"one of {', '.join(allowed)}", parse)


def _boolean(text: str) -> bool:
    words = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def size_bytes(text: str) -> int:
    """`2GB`, `500MiB` or a plain number. Raises ValueError."""
    found = _SIZE.fullmatch(text.lower())
    if found is None or found.group(2) not in _UNIT_BYTES:
        raise ValueError(text)
    return int(found.group(1)) * _UNIT_BYTES[found.group(2)]


def size(maximum: int) -> Kind:
    """A size in bytes up to a limit."""

    def parse(text: str) -> int:
        value = size_bytes(text)
        if value > maximum:
            raise ValueError(text)
        return value

    return Kind(f"{BYTES.expected}, at most {maximum} bytes", parse)


def _duration(text: str) -> int:
    parts = _DURATION_PART.findall(text.lower())
    if not text or "".join(number + unit for number, unit in parts) != text.lower():
        raise ValueError(text)
    return sum(int(number) * _UNIT_MS[unit] for number, unit in parts)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(text) from error
    return text


def _ratio(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 100.0:
        raise ValueError(text)
    return value


def _endpoint(text: str) -> Endpoint:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(text)
    if colon and not host:
        raise ValueError(text)
    return Endpoint(host or None, _whole_number(port, 0, PORT_MAX))


def _host_endpoint(text: str) -> Endpoint:
    endpoint = _endpoint(text)
    if endpoint.host is None or endpoint.port == 0:
        raise ValueError(text)
    return endpoint


def is_node_name(text: str) -> bool:
    """Whether a node may be called so: `rabbit@host`, as in RabbitMQ."""
    return _NODE_NAME.fullmatch(text) is not None


def _node_name(text: str) -> str:
    if not is_node_name(text):
        raise ValueError(text)
    return text


def renamed(other_names: Mapping[str, str], *allowed: str) -> Kind:
    """One word of a list, or another name for one of them."""
    kind = enum(*allowed, *other_names)

    def parse(text: str) -> object:
        return other_names.get(text) or kind.parse(text)

    return Kind(kind.expected, parse)


def _consumer_timeout(text: str) -> int | None:
    if text.lower() in {"false", "off", "undefined", "infinity", "0"}:
        return None
    return _whole_number(text, 1, None)


def _none(text: str) -> tuple[object, ...]:
    if text != "none":
        raise ValueError(text)
    return ()


def _file_name(text: str) -> str:
    return "" if text == "false" else text


def _directory(text: str) -> str:
    # An empty one would mean wherever the process was started.
    if not text or "\0" in text:
        raise ValueError(text)
    return text


BOOLEAN = Kind("true or false", _boolean)
BYTES = Kind("a size such as 500KB, 50MB or 2GiB", size_bytes)
DURATION = Kind("a duration such as 90s, 1h or 60000 (milliseconds)", _duration)
PATTERN = Kind("a regular expression", _pattern)
RATIO = Kind("a ratio such as 0.4", _ratio)
TEXT = Kind("a text", str)
SECRET = Kind("a text", str, secret=True)
PORT = integer(0, PORT_MAX)
MILLISECONDS = integer(0, None, "milliseconds")
SECONDS = integer(0, None, "seconds")
ENDPOINT = Kind("a port, or address:port such as 127.0.0.1:5672 or [::1]:5672", _endpoint)
HOST_ENDPOINT = Kind("address:port such as 10.0.0.1:25672 or [fd00::1]:25672", _host_endpoint)
NODE_NAME = Kind("a node's name such as rabbit@host1", _node_name)
CONSUMER_TIMEOUT = Kind("a whole number of milliseconds, or 'off'", _consumer_timeout)
NONE = Kind("'none', or entries such as KEY.1 = ...", _none)
FILE_NAME = Kind("a file name, or 'false'", _file_name)
DIRECTORY = Kind("a directory", _directory)
PATH = Kind("the path of a file", _directory)
LOG_LEVEL = enum("debug", "info", "notice", "warning", "error", "critical", "none")
