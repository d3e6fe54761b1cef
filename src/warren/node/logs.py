"""Where the log goes: to the console, to a file, or to both, each with its own level."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path
from typing import TextIO

from warren.config.settings import LogSettings
from warren.node.errors import StartError
from warren.telemetry.log import ROOT, add_handler, configure_logging

#: From the most talkative on, as `log.*.level` names them.
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "none")
_NUMBERS = {"debug": 10, "info": 20, "notice": 25, "warning": 30, "error": 40, "critical": 50}
DEFAULT_FILE = "warren.log"


def set_up_logs(settings: LogSettings, console: TextIO | None = None) -> None:
    """Replace the log's set-up. Raises StartError when the file cannot be written."""
    path = log_file(settings)
    used = [settings.console_level] if settings.console else []
    used += [settings.file_level] if path is not None else []
    lowest = min(used, key=LEVELS.index, default="none")
    configure_logging(lowest, settings.levels, console=False)
    if settings.console:
        handler: logging.Handler = logging.StreamHandler(console or sys.stderr)
        _add(handler, settings.console_level, settings.console_formatter, settings)
    if path is not None:
        _add(_file_handler(path, settings), settings.file_level, settings.file_formatter, settings)


def log_file(settings: LogSettings) -> Path | None:
    """The file's whole path; a directory alone asks for a file of the usual name in it."""
    if settings.file == "" or (settings.file is None and settings.directory is None):
        return None
    return Path(settings.directory or ".") / (settings.file or DEFAULT_FILE)


def _file_handler(path: Path, settings: LogSettings) -> logging.Handler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return logging.handlers.RotatingFileHandler(
            path,
            maxBytes=settings.rotation_bytes or 0,
            backupCount=settings.rotation_count,
            encoding="utf-8",
        )
    except OSError as error:
        raise StartError(f"cannot write the log file {path}: {error.strerror}") from error


def _add(handler: logging.Handler, level: str, formatter: str, settings: LogSettings) -> None:
    handler.addFilter(_Threshold(level, frozenset(settings.levels)))
    add_handler(handler, formatter)


class _Threshold(logging.Filter):
    """A handler's level, which a category's own level (`log.connection.level`) goes before."""

    def __init__(self, level: str, categories: frozenset[str]) -> None:
        super().__init__()
        self._number = _NUMBERS.get(level, logging.CRITICAL + 1)
        self._categories = categories

    def follow(self, number: int, category: str | None) -> None:
        """The level was changed while the node runs."""
        if category is None:
            self._number, self._categories = number, frozenset()
        else:
            self._categories |= {category}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be written."""
        category = record.name.removeprefix(f"{ROOT}.")
        return record.levelno >= self._number or category in self._categories
