"""What was under way when the log failed is told without a traceback; all else as ever."""

from __future__ import annotations

import errno
import io
import logging
from collections.abc import Iterator

import pytest

from warren.telemetry.endings import endings
from warren.telemetry.log import configure_logging, logger


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging(stream=stream)
    endings.directories.add("/data/log")
    yield stream
    endings.directories.discard("/data/log")
    configure_logging(console=False)


def fail(error: Exception, log: logging.Logger) -> None:
    try:
        raise error
    except Exception:
        log.exception("%s: closed after a fault of ours\nand more", "a client")


def test_a_failed_log_is_told_in_a_line(written: io.StringIO) -> None:
    fail(OSError(errno.EIO, "Input/output error", "/data/log"), logger("connection"))
    lines = written.getvalue().splitlines()
    assert len(lines) == 1
    assert "a client: closed after a fault of ours; it is not answered any more" in lines[0]
    assert "the log has failed: Input/output error" in lines[0]
    assert "WARNING" in lines[0].upper()


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error", "/elsewhere"), ValueError("a fault")]
)
def test_other_errors_are_told_with_their_place(written: io.StringIO, error: Exception) -> None:
    fail(error, logger("connection"))
    assert "Traceback" in written.getvalue()
    assert type(error).__name__ in written.getvalue()
