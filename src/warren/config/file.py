"""Reads rabbitmq.conf: `key.sub = value` lines, `#` comments, and the files of a conf.d directory.

A `#` begins a comment at the start of a line or after a blank, so that a password may hold one. A
value may stand in single quotes. A dot that belongs to a name is written `\\.`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warren.config.errors import ConfigError

#: A configuration is written by hand; anything larger is the wrong file.
FILE_BYTES_MAX = 4 * 1024 * 1024

_COMMENT = re.compile(r"(^|\s)#.*$")
_QUOTED = re.compile(r"'([^']*)'\s*(?:#.*)?")
_UNESCAPED_DOT = re.compile(r"(?<!\\)\.")


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting as it was given, and where."""

    name: str
    value: str
    #: Where it stands, for messages: `rabbitmq.conf:12`, or the name of a variable or flag.
    source: str

    @property
    def segments(self) -> tuple[str, ...]:
        """The key's parts, with escaped dots put back."""
        return tuple(part.replace("\\.", ".") for part in _UNESCAPED_DOT.split(self.name))


def configuration_files(path: Path) -> list[Path]:
    """The file, then those of the `conf.d` beside it; or all files of a directory, by name."""
    if path.is_dir():
        return sorted(path.glob("*.conf"))
    if not path.exists() and path.with_name(path.name + ".conf").exists():
        # RabbitMQ lets the extension be left out.
        path = path.with_name(path.name + ".conf")
    if not path.is_file():
        raise ConfigError([f"{path}: no such configuration file"])
    return [path, *sorted((path.parent / "conf.d").glob("*.conf"))]


def read_entries(path: Path) -> Iterator[Entry]:
    """The settings of one file in their order; ConfigError for a line that is none."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError([f"{path}: larger than {FILE_BYTES_MAX} bytes"])
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        source = f"{path}:{number}"
        name, equals, value = (part.strip() for part in line.partition("="))
        if not _COMMENT.sub("", line).strip():
            continue
        if not equals or not name or "#" in name:
            problems.append(f"{source}: expected 'key = value'{_erlang_hint(line)}")
            continue
        yield Entry(name, _plain_value(value), source)
    if problems:
        raise ConfigError(problems)


def _erlang_hint(line: str) -> str:
    """What operators of RabbitMQ may have at hand: its older files, and advanced.config."""
    is_term = line.lstrip().startswith(("[", "{", "%"))
    return "; this is an Erlang term, and none are read, advanced.config included" * is_term


def _plain_value(value: str) -> str:
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None:
        return quoted.group(1)
    return _COMMENT.sub("", value).strip()
