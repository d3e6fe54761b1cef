"""Sets the log up: one logger for each category, plain text or JSON, to console or file.

Loggers are `warren.<category>`; get one with `logger("connection")`. What is logged through them
may carry fields (`extra={"fields": {...}}`), which JSON keeps apart. Fields that name a secret, and
passwords in URIs, are blanked before anything is written.
"""

from __future__ import annotations

import datetime
import logging
import logging.handlers
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from warren.telemetry.endings import endings

ROOT = "warren"
CATEGORIES = (
    "connection",
    "channel",
    "queue",
    "mirroring",
    "cluster",
    "store",
    "management",
    "shovel",
)
NOTICE = 25
BLANKED = "***"

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": NOTICE,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}
_SECRET_FIELD = re.compile(r"pass(word|wd)?(_hash)?$|secret|token|cookie|authorization", re.I)
_SECRET_IN_URI = re.compile(r"(?<=://)([^/@:\s]*):[^@\s]+@")


def logger(category: str) -> logging.Logger:
    """The logger of a category."""
    return logging.getLogger(f"{ROOT}.{category}")


def configure_logging(
    level: str = "info",
    levels: Mapping[str, str] | None = None,
    formatter: str = "plaintext",
    console: bool = True,
    stream: TextIO | None = None,
) -> None:
    """Replace the log's set-up; `levels` are by category and go before `level`."""
    root = logging.getLogger(ROOT)
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(_LEVELS[level])
    root.propagate = False
    # What callbacks of the loop end with goes there.
    logging.getLogger("asyncio").addFilter(endings)
    logging.addLevelName(NOTICE, "NOTICE")
    # A level left from an earlier set-up would otherwise stay.
    for name in {*CATEGORIES, *(levels or {})}:
        logger(name).setLevel(_LEVELS[levels[name]] if levels and name in levels else 0)
    if console:
        add_handler(logging.StreamHandler(stream or sys.stdout), formatter)
    else:
        root.addHandler(logging.NullHandler())


def set_level(level: str, category: str | None = None) -> None:
    """Change the level of a category, or of all, while the program runs.

    Handlers with a threshold of their own follow for as long as they are there.
    """
    number = _LEVELS[level]
    names = CATEGORIES if category is None else (category,)
    if category is None:
        logging.getLogger(ROOT).setLevel(number)
    for name in names:
        logger(name).setLevel(number)
    for handler in logging.getLogger(ROOT).handlers:
        for one in handler.filters:
            follow = getattr(one, "follow", None)
            if follow is not None:
                follow(number, category)


def add_log_file(
    path: Path, formatter: str = "plaintext", rotation_bytes: int = 0, rotation_count: int = 5
) -> None:
    """Write the log to a file as well, turned over when it reaches a size (0: never)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=rotation_bytes, backupCount=rotation_count, encoding="utf-8"
    )
    add_handler(handler, formatter)


def add_handler(handler: logging.Handler, formatter: str = "plaintext") -> None:
    """Write the log to another handler as well."""
    handler.setFormatter(JsonFormatter() if formatter == "json" else PlainFormatter())
    handler.addFilter(endings)
    logging.getLogger(ROOT).addHandler(handler)


def remove_handler(handler: logging.Handler) -> None:
    """No longer write the log to a handler; nothing happens when it was not."""
    logging.getLogger(ROOT).removeHandler(handler)


def level_number(name: str) -> int:
    """The number of a level of the configuration. Raises KeyError."""
    return _LEVELS[name]


class PlainFormatter(logging.Formatter):
    """`2026-01-02 03:04:05.678901+00:00 [info] <connection> text key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record on one line, a traceback below it."""
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        text = (
            f"{_time(record).isoformat(' ')} [{record.levelname.lower()}] "
            f"<{_category(record)}> {_message(record)}{fields}"
        )
        if record.exc_info:
            text += "\n" + without_secrets(self.formatException(record.exc_info))
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, domain, msg, then the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        entry: dict[str, object] = {
            "time": _time(record).isoformat(" "),
            "level": record.levelname.lower(),
            "domain": _category(record),
            "msg": _message(record),
        }
        for name, value in _fields(record).items():
            entry.setdefault(name, value)
        if record.exc_info:
            entry["error"] = without_secrets(self.formatException(record.exc_info))
        return msgspec.json.encode(entry, enc_hook=str).decode("utf-8")


def without_secrets(text: str) -> str:
    """The text with the passwords of URIs blanked."""
    return _SECRET_IN_URI.sub(rf"\1:{BLANKED}@", text)


def _message(record: logging.LogRecord) -> str:
    return _on_one_line(without_secrets(record.getMessage()))


def _on_one_line(text: str) -> str:
    # Names off the wire may hold bytes that are not UTF-8, and line ends that would forge a line.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", None)
    if not isinstance(fields, Mapping):
        return {}
    return {
        str(name): BLANKED if _SECRET_FIELD.search(str(name)) else _shown(value)
        for name, value in fields.items()
    }


def _shown(value: object) -> object:
    return _on_one_line(without_secrets(value)) if isinstance(value, str) else value


def _category(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{ROOT}.")


def _time(record: logging.LogRecord) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(record.created, datetime.UTC)
