"""The log: levels by category, both forms, and no secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.telemetry.log import add_log_file, configure_logging, logger


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    configure_logging(console=False)


def test_levels_by_category() -> None:
    stream = io.StringIO()
    configure_logging("warning", {"connection": "debug", "queue": "none"}, stream=stream)
    logger("connection").debug("seen 1")
    logger("channel").info("unseen")
    logger("channel").error("seen 2")
    logger("queue").critical("unseen")
    lines = stream.getvalue().splitlines()
    assert [line.split("> ")[1] for line in lines] == ["seen 1", "seen 2"]
    assert "[debug] <connection> seen 1" in lines[0]
    configure_logging("error", stream=stream)
    assert not logger("connection").isEnabledFor(logging.DEBUG)


def test_json() -> None:
    stream = io.StringIO()
    configure_logging(formatter="json", stream=stream)
    fields = {"user": "u", "password": "hunter2", "default_pass": "hunter2", "peer": Path("a")}
    logger("connection").info("hello %s", "you", extra={"fields": fields})
    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["domain"], entry["msg"]) == ("info", "connection", "hello you")
    assert (entry["user"], entry["password"], entry["peer"]) == ("u", "***", "a")
    assert "hunter2" not in stream.getvalue()


@pytest.mark.parametrize("formatter", ["plaintext", "json"])
def test_secrets_in_uris_and_tracebacks(formatter: str) -> None:
    stream = io.StringIO()
    configure_logging(formatter=formatter, stream=stream)
    uri = "amqp://user:hunter2@host:5672/v"
    try:
        raise ValueError(uri)
    except ValueError:
        logger("mirroring").exception("to %s", uri, extra={"fields": {"uri": uri}})
    assert "hunter2" not in stream.getvalue()
    assert "user:***@host" in stream.getvalue()
    assert "Traceback" in stream.getvalue()


def test_a_name_cannot_forge_a_line() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    logger("queue").info("name %s", "a\n2026 [info] forged \udcff")
    assert len(stream.getvalue().splitlines()) == 1
    stream.truncate(0)
    stream.seek(0)
    logger("queue").info("name", extra={"fields": {"name": "a\nforged"}})
    assert len(stream.getvalue().splitlines()) == 1


def test_file(tmp_path: Path) -> None:
    configure_logging(console=False)
    add_log_file(tmp_path / "log" / "warren.log")
    logger("queue").warning("kept")
    assert "kept" in (tmp_path / "log" / "warren.log").read_text()
