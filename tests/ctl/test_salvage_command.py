"""`warrenctl salvage`, on a node that has put something aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from warren.ctl.command import Run
from warren.ctl.errors import CtlError
from warren.ctl.main import find, run
from warren.engine.salvaging import lines_of
from warren.model.message import Address
from warren.store.salvage import SalvageDirectory
from warren.testing.broker import Broker
from warren.wire.content import make_message
from warren.wire.properties import encode_properties

Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kept(tmp_path: Path) -> list[str]:
    """Two files of three messages each, and a piece of a log."""
    salvage = SalvageDirectory(str(tmp_path / "salvage"))
    messages = []
    for body in (b"one", b"two", b"\xff"):
        header = encode_properties({"delivery_mode": 2}, len(body))
        messages.append(make_message(Address(b"", b"orders"), header, body))
    note = {"vhost": "/", "queue": "orders", "messages": 3, "reason": "the cluster went on"}
    names = [
        salvage.keep_messages(f"queue-{n}-1", lines_of(enumerate(messages)), note) for n in (1, 2)
    ]
    salvage.keep("7", 40, b"spoiled", "does not check")
    return [*names, salvage.notes()[-1]["file"]]


@pytest.fixture
def ctl(tmp_path: Path, kept: list[str], capsys: pytest.CaptureFixture[str]) -> Iterator[Ctl]:
    del kept
    with Broker(http=True, data_dir=tmp_path) as broker:
        url = broker.http_url.replace("http://", "http://guest:guest@")

        def call(*words: str) -> tuple[int, str, str]:
            capsys.readouterr()
            return run(["--url", url, "-q", *words]), *capsys.readouterr()

        yield call


def test_what_is_kept_is_shown_exported_brought_back_and_dropped(
    ctl: Ctl, kept: list[str], tmp_path: Path
) -> None:
    first, second, spoiled = kept
    status, out, _ = ctl("-s", "salvage", "list")
    rows = [line.split("\t") for line in out.splitlines()]
    assert (status, [row[0] for row in rows]) == (0, kept)
    assert [row[4] for row in rows] == ["3", "3", ""]
    assert [row[-1] for row in rows][::2] == ["the cluster went on", "does not check"]
    assert ctl("-s", "salvage", "show", first, "--count", "2")[1] == (
        "\torders\t3\tone\n\torders\t3\ttwo\n"
    )
    path = tmp_path / "out.jsonl"
    assert ctl("salvage", "export", first, str(path))[1] == f"3 messages exported to {path}\n"
    assert [json.loads(line)["payload"] for line in path.read_text().splitlines()] == [
        "b25l",
        "dHdv",
        "/w==",
    ]
    status, _, err = ctl("salvage", "export", first, str(path))
    assert status == 65
    assert "File exists" in err
    # Its queue is gone: it says what to do, and keeps the file.
    status, _, err = ctl("salvage", "republish", first)
    assert status == 65
    assert "no queue 'orders' in vhost '/': say which one, with --queue" in err
    ctl("pub", "others", "already there")
    assert ctl("salvage", "republish", first, "--queue", "others")[1] == (
        "3 messages are in queue 'others' again\n"
    )
    assert ctl("-s", "list_queues", "name", "messages")[1] == "others\t4\n"
    assert ctl("salvage", "drop", second)[:2] == (0, "")
    assert [line.split("\t")[0] for line in ctl("-s", "salvage", "list")[1].splitlines()] == [
        spoiled
    ]
    assert not (tmp_path / "salvage" / second).exists()
    status, _, err = ctl("salvage", "drop", second)
    assert (status, "warrenctl salvage list" in err) == (65, True)
    # Bytes of a log are no messages.
    status, _, err = ctl("salvage", "show", spoiled)
    assert status == 65
    assert f"look into it in {tmp_path / 'salvage'}" in err


def test_a_queue_that_is_full_keeps_the_file(ctl: Ctl, kept: list[str]) -> None:
    ctl("pub", "orders", "already there")
    ctl("set_policy", "full", "^orders$", '{"max-length": 1, "overflow": "reject-publish"}')
    status, _, err = ctl("salvage", "republish", kept[0])
    assert status == 69
    assert "queue 'orders' is full, and refuses messages" in err
    assert kept[0] in ctl("salvage", "list")[1]


class TwoNodes:
    """Both have put something aside under one name."""

    dropped: str = ""

    def get(self, _path: str) -> Any:
        return [{"file": "queue-1-1.messages", "node": node} for node in "ab"]

    def want(self, _method: str, path: str) -> None:
        self.dropped = path


def test_which_of_several_nodes_has_to_be_said() -> None:
    command, nodes = find("salvage"), TwoNodes()
    assert command is not None
    words = ["drop", "queue-1-1.messages"]
    with pytest.raises(CtlError, match="is on a, b: say which, with --on"):
        command.run(Run(command, nodes, words, {}))  # type: ignore[arg-type]
    command.run(Run(command, nodes, words, {"on": "b"}))  # type: ignore[arg-type]
    assert nodes.dropped == "/warren/salvage/b/queue-1-1.messages"
