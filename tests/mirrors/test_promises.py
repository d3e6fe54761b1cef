"""What publishers and consumers may rely on where it is easily forgotten, over a master's death."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_clients import (
    NODES,
    PERSISTENT,
    Clients,
    Inbox,
    counts,
    drain,
    eventually,
    publish,
)
from rings import await_ring, await_that, clear_policy, mirror

from warren.testing import Cluster

LONG_S = 60.0


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, last)]


def await_heir(cluster: Cluster, queue: str) -> None:
    await_that(cluster, queue, lambda ring: ring.master in cluster.nodes[1:], "another master")


class Unanswered:
    """Publishes without waiting, and counts what was confirmed."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.confirmed: set[int] = set()
        self.refused: set[int] = set()
        channel._impl.confirm_delivery(self._on_answer)

    def _on_answer(self, frame: Any) -> None:
        method = frame.method
        into = self.confirmed if method.NAME == "Basic.Ack" else self.refused
        first = 1 if method.multiple else method.delivery_tag
        into.update(set(range(first, method.delivery_tag + 1)) - self.confirmed - self.refused)

    def publish(self, queue: str, found: list[bytes]) -> None:
        for body in found:
            self._channel._impl.basic_publish("", queue, body, PERSISTENT)

    def listen(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._channel.connection.process_data_events(0.05)


def test_below_the_least_in_sync_nothing_is_confirmed(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    """What was confirmed before can be had meanwhile; the rest is, as soon as there are enough."""
    both = {"ha-mode": "nodes", "ha-params": cluster.nodes[:2], "ha-sync-mode": "automatic"}
    mirror(cluster, f"^{name}$", {**both, "ha-min-in-sync": 2})
    clients.channel(1).queue_declare(name, durable=True)
    await_ring(cluster, name, master=1, synchronised=(1, 2))
    inbox = Inbox(clients.channel(3), name)
    publish(clients.confirming(3), name, bodies(0, 5))
    inbox.wait(5)
    cluster.kill(2)
    ring = await_ring(cluster, name, master=1, synchronised=(1,))
    assert "nothing is confirmed until there are more" in ring.shown["explain"][0]
    unanswered = Unanswered(clients.channel(3))
    unanswered.publish(name, bodies(5, 10))
    unanswered.listen(3.0)
    assert (unanswered.confirmed, unanswered.refused) == (set(), set())
    inbox.listen(lambda: len(inbox.got) > 5, 1.0)
    assert inbox.bodies == bodies(0, 5)
    for method, _, _ in inbox.got:
        inbox.channel.basic_ack(method.delivery_tag)
    cluster.start(2)
    await_ring(cluster, name, synchronised=(1, 2))
    eventually(lambda: unanswered.listen(0.1) or len(unanswered.confirmed), 5, LONG_S)
    assert inbox.wait(10, LONG_S) == bodies(0, 10)
    assert not any(method.redelivered for method, _, _ in inbox.got)
    clear_policy(cluster, f"^{name}$")


def test_a_transaction_outlives_the_master(cluster: Cluster, clients: Clients, ha: str) -> None:
    """Nothing of it is there before its commit, and all of it afterwards, whoever is master."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    channel, undone = clients.channel(2), clients.channel(3)
    for its in (channel, undone):
        its.tx_select()
    committed = bodies(0, 10)
    for body in committed:
        channel.basic_publish("", ha, body, PERSISTENT)
    channel.tx_commit()
    for i in range(10, 20):
        channel.basic_publish("", ha, b"%d" % i, PERSISTENT)
        undone.basic_publish("", ha, b"undone", PERSISTENT)
    cluster.kill(1)
    await_heir(cluster, ha)
    eventually(lambda: counts(clients.channel(3), ha)[0], 10, LONG_S)
    undone.tx_rollback()
    channel.tx_commit()
    assert counts(clients.channel(3), ha)[0] == 20
    # Acknowledgements are a part of it, too: given up, the messages are unacknowledged again.
    taken = [channel.basic_get(ha)[0].delivery_tag for _ in range(5)]
    channel.basic_ack(taken[-1], multiple=True)
    channel.tx_rollback()
    channel.close()
    eventually(lambda: counts(clients.channel(3), ha)[0], 20, LONG_S)
    assert drain(clients.channel(3), ha) == bodies(0, 20)


def test_consumers_that_acknowledge_nothing(cluster: Cluster, clients: Clients, ha: str) -> None:
    """What was on its way to them when the master died may be lost; what comes twice says so."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    inbox = Inbox(clients.channel(2), ha, auto_ack=True)
    publisher = Unanswered(clients.channel(3))
    for turn in range(20):
        publisher.publish(ha, bodies(turn * 50, turn * 50 + 50))
        publisher.listen(0.02)
        inbox.listen(lambda: False, 0.02)
        if turn == 10:
            cluster.kill(1)
    eventually(lambda: publisher.listen(0.1) or len(publisher.confirmed), 1000, LONG_S)
    inbox.listen(lambda: inbox.bodies[-1:] == [b"999"], LONG_S)
    eventually(lambda: counts(clients.channel(2), ha), (0, 1), LONG_S)
    plain = [int(body) for method, _, body in inbox.got if not method.redelivered]
    firsts = list(dict.fromkeys(int(body) for body in inbox.bodies))
    assert plain == sorted(set(plain))
    assert firsts == sorted(firsts)
    missing = sorted(set(range(1000)) - set(firsts))
    # One stretch, of before the death: all that was published after it has come.
    assert missing == list(range(missing[0], missing[0] + len(missing))) if missing else True
    assert set(range(550, 1000)) <= set(firsts)
