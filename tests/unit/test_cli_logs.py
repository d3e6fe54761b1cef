"""Where log lines go for each configuration, and what the command says at start."""

from __future__ import annotations

import io
import logging
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import warren
from warren.config import Settings, load_settings
from warren.config.settings import LogSettings
from warren.node.errors import StartError
from warren.node.greeting import development_greeting, login_url, next_command, process_age_s
from warren.node.logs import log_file, set_up_logs
from warren.node.node import Node
from warren.telemetry.log import logger


@pytest.fixture(autouse=True)
def kept_logging() -> Iterator[None]:
    root = logging.getLogger("warren")
    handlers, level, propagate = list(root.handlers), root.level, root.propagate
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    root.propagate = propagate
    for name in ("connection", "queue"):
        logger(name).setLevel(0)


def settings(tmp_path: Path, text: str) -> LogSettings:
    path = tmp_path / "rabbitmq.conf"
    path.write_text(text)
    return load_settings(path, {}).log


def test_console_and_file_have_levels_of_their_own(tmp_path: Path) -> None:
    console = io.StringIO()
    set_up_logs(
        settings(
            tmp_path,
            f"log.dir = {tmp_path}/logs\nlog.file = a.log\nlog.file.level = info\n"
            "log.console.level = warning\nlog.queue.level = debug\n",
        ),
        console,
    )
    logger("connection").info("one")
    logger("connection").warning("two")
    logger("queue").debug("three")
    written = (tmp_path / "logs" / "a.log").read_text()
    assert [word in written for word in ("one", "two", "three")] == [True, True, True]
    shown = console.getvalue()
    assert [word in shown for word in ("one", "two", "three")] == [False, True, True]


def test_no_console(tmp_path: Path) -> None:
    console = io.StringIO()
    set_up_logs(settings(tmp_path, "log.console = false\n"), console)
    logger("connection").critical("nobody hears")
    assert console.getvalue() == ""


def test_the_file_turns_over(tmp_path: Path) -> None:
    text = f"log.file = {tmp_path}/a.log\nlog.file.rotation.size = 200\nlog.console = false\n"
    set_up_logs(settings(tmp_path, f"{text}log.file.rotation.count = 2\n"))
    for number in range(10):
        logger("connection").info("a line of some length, number %d", number)
    assert {path.name for path in tmp_path.glob("a.log*")} == {"a.log", "a.log.1", "a.log.2"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("log.dir = /d\n", "/d/warren.log"),
        ("log.dir = /d\nlog.file = false\n", None),
        ("log.dir = /d\nlog.file = f.log\n", "/d/f.log"),
        ("log.dir = /d\nlog.file = /e/f.log\n", "/e/f.log"),
        ("log.file = f.log\n", "f.log"),
    ],
)
def test_which_file(tmp_path: Path, text: str, expected: str | None) -> None:
    found = log_file(settings(tmp_path, text))
    assert (None if found is None else str(found)) == expected


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot write the log file"):
        set_up_logs(settings(tmp_path, f"log.file = {tmp_path}\n"))


def test_greeting() -> None:
    url = login_url(Settings(), "127.0.0.1", 5672)
    assert url == "amqp://guest:guest@127.0.0.1:5672"
    lines = development_greeting(url, Node(Settings())).splitlines()
    assert lines[0].startswith(f"warren {warren.__version__}  ready in ")
    assert url in lines[1]
    assert url in lines[2]
    assert 0 < process_age_s() < 24 * 3600


def test_urls_are_quoted() -> None:
    env = {
        "WARREN_DEFAULT_USER": "a@b",
        "WARREN_DEFAULT_PASS": "p$/:",
        "WARREN_DEFAULT_VHOST": "v/",
    }
    found = login_url(load_settings(None, env), "::1", 1)
    assert found == "amqp://a%40b:p%24%2F%3A@[::1]:1/v%2F"


def test_the_next_command_is_one_shell_line() -> None:
    words = shlex.split(next_command("amqp://guest:guest@127.0.0.1:5672"))
    assert words[1] == "-c"
    compile(words[2], "try", "exec")
    # An exclamation mark inside double quotes is history to an interactive shell.
    assert "!" not in words[2]


def test_without_a_client_library_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.node.greeting.find_spec", lambda name: None)
    assert " -m pip install pika && " in next_command("amqp://127.0.0.1")


def test_greeting_says_where_data_is() -> None:
    node = Node(Settings())
    node.data_dir = Path("/data/w")
    lines = development_greeting("amqp://h", node).splitlines()
    assert lines[-2:] == ["  Data   /data/w", "  Stop   Ctrl-C"]
