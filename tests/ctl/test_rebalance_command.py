"""What `warrenctl rebalance` and `spread` say, with a node that answers as one would."""

from __future__ import annotations

from typing import Any

import pytest

from warren.ctl.command import Run
from warren.ctl.errors import CtlError
from warren.ctl.main import find

NODES = [{"name": "a", "masters": 2}, {"name": "b", "masters": 1}]


class FakeNode:
    """Has one state, and takes every order."""

    def __init__(self, moves: list[dict[str, Any]] | None = None, **state: Any) -> None:
        self._moves, self._state = moves, {"state": "idle", "nodes": NODES, **state}

    def want(self, *_request: object) -> Any:
        return self._moves

    def get(self, _path: str) -> dict[str, Any]:
        return self._state


def carry_out(name: str, node: Any, *words: str, **options: str) -> None:
    command = find(name)
    assert command is not None
    command.run(Run(command, node, list(words), options))


def over(**state: Any) -> FakeNode:
    return FakeNode(**{"strategy": "even", "planned": 3, "moved": 3, "failed": 0, **state})


@pytest.mark.parametrize(("name", "word"), [("rebalance", "all"), ("spread", "^q")])
def test_one_that_was_ended_half_way_is_an_error(name: str, word: str) -> None:
    with pytest.raises(CtlError, match="ended before 2 of 3 masters had moved"):
        carry_out(name, over(moved=1), word)
    with pytest.raises(CtlError, match="the node that led the cluster does not any more"):
        carry_out(name, FakeNode(), word)
    carry_out(name, over(), word)


@pytest.mark.parametrize(("name", "word"), [("rebalance", "all"), ("spread", "^q")])
def test_that_nothing_has_to_move_is_said(
    capsys: pytest.CaptureFixture[str], name: str, word: str
) -> None:
    carry_out(name, over(planned=0, moved=0), word)
    assert "No master has to move" in "".join(capsys.readouterr())
    carry_out(name, FakeNode(moves=[]), word, **{"dry-run": ""})
    shown = capsys.readouterr()
    assert "No master has to move" in shown.err
    assert shown.out == ""


def test_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    carry_out("rebalance", over(moved=1, state="running"), status="")
    assert capsys.readouterr().out.splitlines() == [
        "under way, by even: 1 of 3 masters have moved, 0 could not",
        "appointed: none",
        "Node name\tNumber of replicated classic queues",
        "a\t2",
        "b\t1",
    ]
    carry_out("rebalance", FakeNode(appointment={"at": "2030-01-01T03:30:00+00:00"}), status="")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("none is under way")
    assert shown[1] == "appointed: 2030-01-01T03:30:00+00:00"


def test_a_table_at_a_terminal_has_its_columns_below_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("warren.ctl.terminal.is_terminal", lambda _stream: True)
    command = find("rebalance")
    assert command is not None
    rows = [{"node": "a", "role": "master"}, {"node": "a-longer-one", "role": "mirror"}]
    node: Any = FakeNode()
    Run(command, node, [], {}).table(rows, ("node", "role"))
    assert capsys.readouterr().out.splitlines() == [
        "node          role",
        "a             master",
        "a-longer-one  mirror",
    ]
    # Who asks for a table gets the one that programs read.
    Run(command, node, [], {"formatter": "table"}).table(rows, ("node", "role"))
    assert capsys.readouterr().out.splitlines()[0] == "node\trole"


def test_help_says_what_options_mean(capsys: pytest.CaptureFixture[str]) -> None:
    from warren.ctl.main import run

    for name, said in (
        ("rebalance", "min-connections"),
        ("forget_cluster_node", "on a survivor that is stopped"),
        ("salvage", "republish <file>"),
        ("events", "--queue <queue>"),
    ):
        assert run(["help", name]) == 0
        assert said in capsys.readouterr().out
