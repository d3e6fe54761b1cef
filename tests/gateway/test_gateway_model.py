"""Random lives of a home and two gateways against a model that only keeps promises.

What must hold, whatever happens: no confirmed publish is lost, none is accepted twice, each
publisher's messages keep their order in each queue, no client ever has more out than its limit, and
exactly the refused are refused.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
from pair import Client, method, publish
from small_disk import tiny_room
from two_nodes import GatewayNode, Home, settle

QUEUES = 3
#: This queue refuses what it has no room for; nobody consumes from it.
FULL = 3
ROOM = 40
PREFETCH = 7


@dataclass(eq=False)
class Party:
    """A client that publishes with confirms on channel 1 and consumes on channel 2."""

    node: GatewayNode
    client: Client
    name: int
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    told: dict[int, bool] = field(default_factory=dict)
    out: dict[int, bytes] = field(default_factory=dict)
    acked: set[bytes] = field(default_factory=set)
    seen: list[tuple[bytes, bool]] = field(default_factory=list)
    last_told: int = 0

    def read(self) -> None:
        """Takes note of all that the broker has said."""
        frames = self.client.frames()
        for at, frame in enumerate(frames):
            if frame.name in ("basic.ack", "basic.nack"):
                tag = frame["delivery_tag"]
                assert tag > self.last_told, "verdicts are in order, each told once"
                first = self.last_told + 1 if frame["multiple"] else tag
                assert first == self.last_told + 1, "no publish is passed over"
                for one in range(first, tag + 1):
                    self.told[one] = frame.name == "basic.ack"
                self.last_told = tag
            elif frame.name == "basic.deliver":
                body = frames[at + 2].payload
                self.out[frame["delivery_tag"]] = body
                self.seen.append((body, frame["redelivered"]))
                assert len(self.out) <= PREFETCH, "the limit is never exceeded"


class Life:
    """One random run."""

    def __init__(self, seed: int, durable: bool, stashing: bool = False) -> None:
        self.dice = random.Random(seed)
        self.durable = durable
        self.home = Home(QUEUES, durable)
        self.limit_full()
        self.nodes = [GatewayNode(self.home, "a"), GatewayNode(self.home, "b")]
        self.stashing = stashing
        if stashing:
            for node in self.nodes:
                node.gateway.use_stash(tiny_room())
        self.parties: list[Party] = []
        self.restarted = False
        for name in range(3):
            node = self.nodes[name % 2]
            party = Party(node, node.client(channels=2), name)
            party.client.call(1, "confirm.select")
            party.client.call(2, "basic.qos", 0, PREFETCH, name == 2)
            party.client.exchange(method(2, "basic.consume", 0, f"q{1 + name % 2}", "c"))
            self.parties.append(party)

    def limit_full(self) -> None:
        self.home.queues[FULL].configure(max_length=ROOM, overflow="reject-publish")

    # -- what can happen ---------------------------------------------------------------------------

    def publish(self) -> None:
        party = self.dice.choice(self.parties)
        data = b""
        for _ in range(self.dice.randint(1, 12)):
            number = self.dice.choice((1, 1, 2, FULL))
            body = b"%d:%d" % (party.name, len(party.sent))
            party.sent.append((number, body))
            data += publish(1, "", f"q{number}", body, delivery_mode=2)
        party.client.send(data)

    def settle_some(self) -> None:
        party = self.dice.choice(self.parties)
        party.read()
        for tag in sorted(party.out):
            if self.dice.random() < 0.5:
                how = self.dice.random()
                body = party.out.pop(tag)
                if how < 0.7:
                    party.acked.add(body)
                    party.client.send(method(2, "basic.ack", tag))
                else:
                    party.client.send(method(2, "basic.nack", tag, False, True))

    def carry(self) -> None:
        node = self.dice.choice(self.nodes)
        if node.link is None:
            return
        node.end_turn()
        if self.dice.random() < 0.5:
            node.link.carry_out(self.dice.randint(1, 9))
            self.home.end_turn()
        else:
            node.link.carry_back(self.dice.randint(1, 9))

    def sync(self) -> None:
        self.home.sync()

    def break_link(self) -> None:
        node = self.dice.choice(self.nodes)
        if node.link is not None and self.dice.random() < 0.3:
            node.link.cut()
            node.link = None

    def declare_down(self) -> None:
        """With a stash nothing is refused for that."""
        node = self.dice.choice(self.nodes)
        if self.stashing and node.link is None:
            node.gateway.home_gone()

    def reconnect(self) -> None:
        for node in self.nodes:
            if node.link is None and self.dice.random() < 0.5:
                node.connect()

    def restart_home(self) -> None:
        if not self.durable or self.dice.random() > 0.05:
            return
        self.restarted = True
        for node in self.nodes:
            if node.link is not None:
                node.link.cut()
                node.link = None
        self.home.disk.cut_power()
        self.home.start()
        self.limit_full()

    def run(self, steps: int) -> None:
        actions = [self.publish] * 3 + [self.settle_some] * 2 + [self.carry] * 8
        actions += [self.sync, self.sync, self.break_link, self.reconnect, self.restart_home]
        actions += [self.declare_down] * self.stashing
        for _ in range(steps):
            self.dice.choice(actions)()
            for party in self.parties:
                party.read()
                consumer = next(iter(party.client.peer.open_channels()[1].consumers.values()))
                assert consumer.inflight <= PREFETCH
        for node in self.nodes:
            if node.link is None:
                node.connect()
        settle(*self.nodes)
        for party in self.parties:
            party.read()

    # -- the promises ------------------------------------------------------------------------------

    def check(self) -> None:
        left = self.drain()
        for party in self.parties:
            assert len(party.told) == len(party.sent), "every publish is answered"
        held = Counter(body for party in self.parties for body in party.out.values())
        acked = {body for party in self.parties for body in party.acked}
        seen = {body for party in self.parties for body, _ in party.seen}
        for party in self.parties:
            for tag, (number, body) in enumerate(party.sent, 1):
                copies = left[number].count(body)
                assert copies <= 1, f"{body!r} was accepted {copies} times"
                if party.told[tag]:
                    assert copies or body in acked, f"{body!r} was confirmed and is lost"
                elif number == FULL and not self.restarted:
                    assert not copies, f"{body!r} was refused and is there"
                elif not self.restarted:
                    pytest.fail(f"{body!r} was refused by a queue that had room")
            for number in range(1, QUEUES + 1):
                mine = [b for b in left[number] if b.startswith(b"%d:" % party.name)]
                assert mine == sorted(mine, key=order), "a publisher's messages keep their order"
        assert set(held) <= seen
        if not self.restarted:
            self.check_first_deliveries()
        for number in left:
            self.home.queues[number].check()

    def check_first_deliveries(self) -> None:
        """With one consumer, what was never delivered before comes in order of publishing."""
        for number, reader in ((2, 1),):
            fresh: dict[bytes, list[bytes]] = defaultdict(list)
            for body, redelivered in self.parties[reader].seen:
                if not redelivered:
                    fresh[body.split(b":")[0]].append(body)
            for bodies in fresh.values():
                assert bodies == sorted(bodies, key=order), f"order in queue {number}"
                assert len(set(bodies)) == len(bodies), "twice without a flag"

    def drain(self) -> dict[int, list[bytes]]:
        """Everything that is in the queues, with what was out put back first."""
        for node in self.nodes:
            assert node.link is not None
            node.link.cut()
        left: dict[int, list[bytes]] = {}
        for number, queue in self.home.queues.items():
            assert queue.unacked == 0
            left[number] = []
            while (found := queue.get(True, 0)) is not None:
                if found != 0:
                    left[number].append(found[0].body)
                self.home.end_turn()
                self.home.sync()
        return left


def order(body: bytes) -> int:
    return int(body.split(b":")[1])


@pytest.mark.parametrize("seed", range(60))
def test_promises_are_kept_in_memory(seed: int) -> None:
    life = Life(seed, durable=False)
    life.run(250)
    life.check()


@pytest.mark.parametrize("seed", range(60))
def test_promises_are_kept_on_disk_and_over_restarts(seed: int) -> None:
    life = Life(seed, durable=True)
    life.run(250)
    life.check()


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("durable", [False, True])
def test_promises_are_kept_with_a_stash(seed: int, durable: bool) -> None:
    life = Life(seed, durable, stashing=True)
    life.run(250)
    life.check()
