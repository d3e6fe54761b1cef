"""What the commands about mirrors say, with a node that answers as one would."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from warren.ctl.command import Run
from warren.ctl.errors import BAD_DATA, CtlError
from warren.ctl.main import find


class FakeNode:
    """Refuses every order for one reason, or shows one ring."""

    def __init__(self, refuses: str = "", ring: dict[str, Any] | None = None) -> None:
        self._refuses, self._ring = refuses, ring

    def call(self, *_request: object) -> Any:
        return SimpleNamespace(status=200)

    def get(self, _path: str) -> Any:
        return self._ring

    def want(self, *_request: object) -> None:
        if self._refuses:
            raise CtlError(BAD_DATA, f"Error:\n{self._refuses}")


def carry_out(name: str, node: Any, *words: str, **options: str) -> None:
    command = find(name)
    assert command is not None
    command.run(Run(command, node, list(words), options))


def test_a_copy_that_there_is_not_can_be_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    """Said twice it is done once: scripts for RabbitMQ rely on it."""
    carry_out("cancel_sync_queue", FakeNode("not_syncing"), "q")
    assert capsys.readouterr().out == "not_syncing\n"
    carry_out("cancel_sync_queue", FakeNode(), "q")
    assert capsys.readouterr().out == ""
    with pytest.raises(CtlError, match="has no mirrors; it gets one by a policy with ha-mode"):
        carry_out("cancel_sync_queue", FakeNode("not_mirrored"), "q")


def test_a_command_that_helps_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.ctl.mirrors.BEGIN_S", -1.0)
    row = {"node": "b", "synchronised": False, "online": True, "sync": None}
    node = FakeNode(ring={"replicas": [row]})
    with pytest.raises(CtlError, match=r"warrenctl -p 'a b' sync_queue 'my orders'$"):
        carry_out("add_queue_mirror_link", node, "my orders", "b", vhost="a b")


def test_a_mirror_that_is_down_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    there = {"node": "b", "synchronised": True, "online": True, "sync": None}
    away = {"node": "c", "synchronised": False, "online": False, "sync": None}
    carry_out("sync_queue", FakeNode(ring={"replicas": [there, away]}), "q")
    assert capsys.readouterr().err.endswith("c is down, and lacks what came since\n")
    carry_out("sync_queue", FakeNode(ring={"replicas": [there]}), "q")
    assert "down" not in capsys.readouterr().err
