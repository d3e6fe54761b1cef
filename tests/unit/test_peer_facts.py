"""What nodes tell each other of themselves: nobody is left with what is not so any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from warren.node.peer_alarms import PeerAlarms
from warren.node.peer_facts import NodeFacts, PeerFacts


class Talk:
    """A node that opens and closes, and the peers that it tells."""

    def __init__(self) -> None:
        self.is_open = True
        self.heard: dict[str, PeerFacts] = {name: PeerFacts(self.own, _deaf) for name in "ab"}
        self.facts = PeerFacts(self.own, self._send)

    def own(self) -> NodeFacts:
        return NodeFacts(self.is_open, "Warren", "1", (), (), {})

    def _send(self, peer: str | None, payload: bytes) -> None:
        for name in self.heard if peer is None else [peer]:
            self.heard[name].told("it", payload)

    def seen(self) -> list[bool | None]:
        found = [peer.of("it") for peer in self.heard.values()]
        return [None if facts is None else facts.is_open for facts in found]


def _deaf(_peer: str | None, _payload: bytes) -> None:
    pass


def test_changes_are_told_to_all() -> None:
    talk = Talk()
    talk.facts.look()
    assert talk.seen() == [True, True]
    talk.is_open = False
    talk.facts.look()
    assert talk.seen() == [False, False]


def test_a_state_that_only_a_newcomer_saw() -> None:
    talk = Talk()
    talk.facts.look()
    talk.is_open = False
    talk.facts.tell("b")
    assert talk.seen() == [True, False]
    talk.is_open = True
    talk.facts.look()
    assert talk.seen() == [True, True]


def test_an_alarm_that_only_a_newcomer_saw() -> None:
    engine: Any = SimpleNamespace(alarms=set())
    sent: list[tuple[str | None, bytes]] = []
    alarms = PeerAlarms(engine, lambda peer, payload: sent.append((peer, payload)))
    alarms.look()
    engine.alarms.add("memory")
    alarms.tell("b")
    engine.alarms.clear()
    alarms.look()
    assert sent == [("b", b"\x91\xa6memory"), (None, b"\x90")]
