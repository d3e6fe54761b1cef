"""Random lives of three nodes whose queue moves among them, against a model that keeps promises.

What must hold, whatever happens: no accepted publish is lost and none is there twice, each
publisher's messages keep their order, every publish is answered once and none is refused, a message
is gone only if a client has acknowledged that very message, and in the end every consumer is
attached at the master, once, and gets everything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from moving_nodes import NUMBER, QUEUE, MovingNode, Nodes
from pair import Client, method, publish
from small_disk import tiny_room

PREFETCH = 5


@dataclass(eq=False)
class Party:
    """A client that publishes with confirms on channel 1 and consumes on channel 2."""

    node: MovingNode
    client: Client
    name: int
    sent: list[bytes] = field(default_factory=list)
    told: dict[int, bool] = field(default_factory=dict)
    last_told: int = 0
    out: dict[int, bytes] = field(default_factory=dict)
    acked: set[bytes] = field(default_factory=set)
    cancelled: int = 0

    def read(self) -> None:
        frames = self.client.frames()
        for at, frame in enumerate(frames):
            if frame.name in ("basic.ack", "basic.nack"):
                tag = frame["delivery_tag"]
                first = self.last_told + 1 if frame["multiple"] else tag
                assert first == self.last_told + 1, "verdicts are in order, each told once"
                for one in range(first, tag + 1):
                    self.told[one] = frame.name == "basic.ack"
                self.last_told = tag
            elif frame.name == "basic.deliver":
                self.out[frame["delivery_tag"]] = frames[at + 2].payload
                # What a home before has given out is not counted any more.
                consumers = self.client.peer.open_channels()[1].consumers.values()
                assert all(consumer.inflight <= PREFETCH for consumer in consumers)
            elif frame.name == "basic.cancel":
                self.cancelled += 1


class Life:
    """One random run."""

    def __init__(self, seed: int, handed_over: float = 0, stashing: bool = False) -> None:
        self.dice = random.Random(seed)
        #: The share of moves that are planned.
        self.handed_over = handed_over
        self.stashing = stashing
        self.nodes = Nodes(stash_room=tiny_room() if stashing else None)
        self.parties: list[Party] = []
        for number in range(4):
            node = self.nodes.nodes["abcb"[number]]
            party = Party(node, node.client(), number)
            party.client.call(1, "confirm.select")
            party.client.call(2, "basic.qos", 0, PREFETCH, number == 2)
            self.parties.append(party)
            if number != 3:
                party.client.send(method(2, "basic.consume", 0, QUEUE, "c"))
        self.nodes.settle()
        for party in self.parties:
            party.read()

    # -- what can happen ---------------------------------------------------------------------------

    def publish(self) -> None:
        party = self.dice.choice(self.parties)
        data = b""
        for _ in range(self.dice.randint(1, 8)):
            party.sent.append(b"%d:%d" % (party.name, len(party.sent)))
            data += publish(1, "", QUEUE, party.sent[-1])
        party.client.send(data)

    def settle_some(self, share: float = 0.5) -> None:
        party = self.dice.choice(self.parties)
        party.read()
        for tag in sorted(party.out):
            if self.dice.random() < share:
                body = party.out.pop(tag)
                if self.dice.random() < 0.75:
                    party.acked.add(body)
                    party.client.send(method(2, "basic.ack", tag))
                else:
                    party.client.send(method(2, "basic.nack", tag, False, True))

    def carry(self) -> None:
        if not self.nodes.links:
            return
        gateway, home = self.dice.choice(sorted(self.nodes.links))
        link = self.nodes.links[gateway, home]
        self.nodes.nodes[gateway].end_turn()
        if self.dice.random() < 0.5:
            link.carry_out(self.dice.randint(1, 9))
        else:
            link.carry_back(self.dice.randint(1, 9))
        self.nodes.nodes[home].end_turn()

    def commit(self) -> None:
        self.nodes.commit(self.dice.randint(1, 6))

    def move(self) -> None:
        if self.dice.random() < 0.3:
            others = [name for name in self.nodes.names if name != self.nodes.master]
            planned = self.dice.random() < self.handed_over
            self.nodes.move(self.dice.choice(others), self.dice.randint(0, 6), planned)

    def hear(self) -> None:
        self.nodes.hear(self.dice.choice(self.nodes.names))

    def break_link(self) -> None:
        if self.nodes.links and self.dice.random() < 0.3:
            self.nodes.cut(*self.dice.choice(sorted(self.nodes.links)))

    def reconnect(self) -> None:
        if self.dice.random() < 0.5:
            self.nodes.connect_all()

    def time_goes_on(self) -> None:
        self.nodes.step_time(self.dice.choice((1, 12, 400)))
        for node in self.nodes.nodes.values():
            node.end_turn()

    def run(self, steps: int) -> None:
        actions = [self.publish] * 3 + [self.settle_some] * 2 + [self.carry] * 10
        actions += [self.commit] * 3 + [self.hear] * 3 + [self.move, self.break_link]
        actions += [self.reconnect, self.time_goes_on]
        for _ in range(steps):
            self.dice.choice(actions)()
            for party in self.parties:
                party.read()

    # -- the promises ------------------------------------------------------------------------------

    def check(self) -> None:
        self.nodes.connect_all()
        self.nodes.settle()
        for _ in range(400):
            for party in self.parties:
                party.read()
                for tag in sorted(party.out):
                    party.acked.add(party.out.pop(tag))
                    party.client.send(method(2, "basic.ack", tag))
            self.nodes.settle()
            if not any(len(party.client.peer.outlet.output) for party in self.parties):
                break
        for party in self.parties:
            party.read()
        self.check_publishes()
        self.check_consumers()

    def check_publishes(self) -> None:
        ring = self.nodes.ring
        bodies = [entry.message.body for entry in ring.committed]
        assert len(set(bodies)) == len(bodies), "none is there twice"
        acked = set().union(*(party.acked for party in self.parties))
        for slot in ring.removed:
            assert bodies[slot - 1] in acked, "nobody has acknowledged this one"
        assert len(ring.removed) == len(bodies), "everything was delivered and acknowledged"
        for party in self.parties:
            assert len(party.told) == len(party.sent), "every publish is answered"
            mine = [body for body in bodies if body.startswith(b"%d:" % party.name)]
            assert mine == sorted(mine, key=order), "a publisher's messages keep their order"
            for tag, body in enumerate(party.sent, 1):
                assert party.told[tag], f"{body!r} was refused"
                assert body in bodies, f"{body!r} was confirmed and is lost"

    def check_consumers(self) -> None:
        assert self.nodes.master is not None
        attached = {name: node.attached() for name, node in self.nodes.nodes.items()}
        assert attached.pop(self.nodes.master) == ["test (2) c"] * 3
        assert not any(attached.values()), "nobody is attached where the master is not"
        for party in self.parties:
            assert not party.cancelled


def order(body: bytes) -> int:
    return int(body.split(b":")[1])


@pytest.fixture
def lives() -> Iterator[list[Life]]:
    begun: list[Life] = []
    yield begun
    for life in begun:
        life.nodes.end()


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("handed_over", [0, 0.7])
def test_promises_are_kept_wherever_the_queue_goes(
    seed: int, handed_over: float, lives: list[Life]
) -> None:
    life = Life(seed, handed_over)
    lives.append(life)
    life.run(300)
    life.check()
    assert life.nodes.nodes["a"].queue.number == NUMBER


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("handed_over", [0, 0.7])
def test_promises_are_kept_with_a_stash(seed: int, handed_over: float, lives: list[Life]) -> None:
    life = Life(seed, handed_over, stashing=True)
    lives.append(life)
    life.run(300)
    life.check()
