"""Which replica has the most of a queue, by what each of them says."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from warren.management.peers import PeerAnswer, PeerSilent, Question
from warren.node.best_replica import BestReplica


class Peers:
    """b and c answer; d does not."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.paths: list[str] = []

    async def ask(self, node: str, question: Question, timeout_s: float = 1.0) -> PeerAnswer:
        self.paths.append(question.path)
        if node not in self.answers:
            raise PeerSilent(f"{node} within {timeout_s}")
        body = self.answers[node]
        return PeerAnswer(200 if body else 503, body)


def best(answers: dict[str, bytes], names: str, own: dict[str, int]) -> tuple[str, list[str]]:
    peers: Any = Peers(answers)
    queue: Any = SimpleNamespace(number=7, name="q/1", vhost=SimpleNamespace(name="/"))
    engine: Any = SimpleNamespace(
        views={7: object()},
        mirrors=SimpleNamespace(describe=lambda _queue: own),
        settings=SimpleNamespace(node_name="a"),
    )

    async def find() -> str:
        over = asyncio.Event()
        errand = BestReplica(peers, engine).find(queue, tuple(names))
        errand.when_done(over.set)
        await over.wait()
        name: str = errand.result()
        return name

    return asyncio.run(find()), peers.paths


@pytest.mark.parametrize(
    ("answers", "names", "own", "chosen"),
    [
        ({"b": b'{"epoch":3,"last":9}', "c": b'{"epoch":3,"last":8}'}, "cb", {}, "b"),
        ({"b": b'{"epoch":3,"last":9}', "c": b'{"epoch":4,"last":1}'}, "bcd", {}, "c"),
        ({"b": b'{"epoch":3,"last":9}'}, "dab", {"epoch": 3, "last": 10}, "a"),
        ({"b": b"", "c": b"[1"}, "cdb", {}, "c"),
        ({}, "dc", {}, "d"),
    ],
)
def test_the_one_that_has_the_most(
    answers: dict[str, bytes], names: str, own: dict[str, int], chosen: str
) -> None:
    found, paths = best(answers, names, own)
    assert found == chosen
    assert set(paths) == {"/queues/%2F/q%2F1/mirrors/position"}
