"""Messages moved between queues of different nodes: none is lost, none out of its order."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_clients import NODES, Clients, Inbox, counts, drain, eventually, publish
from rings import queue_row
from test_definitions_everywhere import call

from warren.testing import Cluster

#: More than are on their way at a time.
MANY = 5000


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


def bodies(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def mirror(cluster: Cluster, name: str) -> None:
    cluster.ctl(1, "set_policy", name, f"^{name}$", '{"ha-mode": "all"}')


def fill(clients: Clients, node: int, queue: str, count: int, **arguments: Any) -> None:
    """A queue on a node with so many messages."""
    channel = clients.channel(node)
    channel.queue_declare(queue, durable=True, arguments=arguments)
    publish(channel, queue, bodies(count))
    if count:
        eventually(lambda: counts(channel, queue)[0], count)


def move(cluster: Cluster, node: int, queue: str, verb: str = "move", **body: Any) -> Any:
    return call(cluster, node, "POST", f"/queues/%2F/{queue}/{verb}", body)


def refusal(cluster: Cluster, node: int, queue: str, **body: Any) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as refused:
        move(cluster, node, queue, **body)
    with refused.value as error:
        return error.code, json.loads(error.read())["reason"]


@pytest.mark.parametrize("mirrored", ["", "source", "target", "source target"])
def test_from_any_node(cluster: Cluster, clients: Clients, name: str, mirrored: str) -> None:
    source, target = f"{name}.source", f"{name}.target"
    for queue in mirrored.split():
        mirror(cluster, f"{name}.{queue}")
    fill(clients, 1, source, 900)
    fill(clients, 2, target, 0)
    for node in NODES:
        outcome = move(cluster, node, source, to=target, count=300)
        assert (outcome["moved"], outcome["kept"], outcome["to"]) == (300, 0, {target: 300})
    assert outcome["complete"]
    assert drain(clients.channel(3), target) == bodies(900)
    eventually(lambda: queue_row(cluster, 1, source)["messages"], 0)
    assert drain(clients.channel(3), source) == []


def test_some_of_them_and_by_warrenctl(cluster: Cluster, clients: Clients, name: str) -> None:
    fill(clients, 1, name, 200)
    fill(clients, 2, f"{name}.to", 0)
    words = ("move", name, f"{name}.to", "--match", "payload=1??")
    assert cluster.ctl(3, *words, "--dry-run").splitlines()[-2:] == [
        "100 messages would be moved, 100 did not match",
        f"  100 to queue '{name}.to'",
    ]
    said = cluster.ctl(3, *words).splitlines()[-1]
    assert said == "100 messages moved, 100 did not match"
    assert drain(clients.channel(1), f"{name}.to") == bodies(200)[100:]
    assert drain(clients.channel(1), name) == bodies(200)[:100]


def test_dead_letters_go_back_to_another_node(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    grave = f"{name}.grave"
    fill(clients, 2, grave, 0)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
    fill(clients, 1, name, 50, **arguments)
    channel = clients.channel(1)
    Inbox(channel, name).wait(50)
    channel.basic_nack(0, multiple=True, requeue=False)
    channel.connection.close()
    eventually(lambda: counts(clients.channel(3), grave)[0], 50)
    outcome = move(cluster, 3, grave, "redrive")
    assert (outcome["moved"], outcome["to"]) == (50, {name: 50})
    assert drain(clients.channel(3), name) == bodies(50)


def test_what_a_full_queue_refuses_stays(cluster: Cluster, clients: Clients, name: str) -> None:
    fill(clients, 1, name, 30)
    limits = {"x-max-length": 10, "x-overflow": "reject-publish"}
    fill(clients, 2, f"{name}.to", 0, **limits)
    outcome = move(cluster, 3, name, to=f"{name}.to")
    assert (outcome["moved"], outcome["kept"]) == (10, 20)
    channel = clients.channel(1)
    eventually(lambda: counts(channel, name)[0], 20)
    # They were held for a moment, and nobody has seen them.
    shown = [channel.basic_get(name, auto_ack=True) for _ in range(20)]
    assert [body for _, _, body in shown] == bodies(30)[10:]
    assert not any(method is not None and method.redelivered for method, _, _ in shown)
    assert drain(channel, f"{name}.to") == bodies(10)


@pytest.mark.parametrize("mirrored", [False, True])
def test_consumers_get_no_message_that_moves(
    cluster: Cluster, clients: Clients, name: str, mirrored: bool
) -> None:
    if mirrored:
        mirror(cluster, name)
    fill(clients, 1, name, MANY)
    fill(clients, 2, f"{name}.to", 0)
    channel = clients.channel(3)
    channel.basic_qos(prefetch_count=10)
    taken: list[bytes] = []

    def on_message(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        taken.append(body)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(name, on_message)
    outcomes: list[Any] = []
    mover = threading.Thread(
        target=lambda: outcomes.append(move(cluster, 2, name, to=f"{name}.to"))
    )
    mover.start()
    while mover.is_alive():
        channel.connection.process_data_events(0.05)
    mover.join()
    until_s = time.monotonic() + 30
    while len(taken) + outcomes[0]["moved"] < MANY and time.monotonic() < until_s:
        channel.connection.process_data_events(0.05)
    moved = drain(clients.channel(1), f"{name}.to")
    assert len(moved) == outcomes[0]["moved"] > 0
    assert sorted(taken + moved, key=int) == bodies(MANY)
    assert moved == sorted(moved, key=int)


def test_a_queue_whose_node_is_down(cluster: Cluster, clients: Clients, name: str) -> None:
    fill(clients, 1, name, 10)
    fill(clients, 2, f"{name}.to", 0)
    cluster.kill(2)
    eventually(lambda: queue_row(cluster, 1, f"{name}.to")["state"], "down")
    status, reason = refusal(cluster, 3, name, to=f"{name}.to")
    assert status == 503
    assert "is down or inaccessible" in reason
    assert drain(clients.channel(1), name) == bodies(10)


class Move(threading.Thread):
    """A move that is under way: the target's node stands still, so nothing arrives there."""

    def __init__(self, cluster: Cluster, source: str, target: str) -> None:
        super().__init__(daemon=True)
        self.outcome: Any = None
        self._cluster, self._names = cluster, (source, target)
        cluster.pause(2)
        self.start()
        eventually(lambda: queue_row(cluster, 3, source)["messages_unacknowledged"] > 0)

    def run(self) -> None:
        source, target = self._names
        try:
            self.outcome = move(self._cluster, 3, source, to=target)
        except (urllib.error.HTTPError, OSError) as error:
            self.outcome = error

    def end(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        return self.outcome


@pytest.mark.parametrize("killed", [1, 2])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_node_is_killed_in_the_middle(
    cluster: Cluster, clients: Clients, name: str, mirrored: bool, killed: int
) -> None:
    """Of the source, or of the target: a message may be in both then, and is in one at least."""
    source, target = f"{name}.source", f"{name}.target"
    if mirrored:
        mirror(cluster, source)
        mirror(cluster, target)
    fill(clients, 1, source, MANY)
    fill(clients, 2, target, 0)
    under_way = Move(cluster, source, target)
    cluster.kill(killed)
    if killed == 1:
        cluster.resume(2)
    cluster.start(killed)
    cluster.wait_until_ready()
    under_way.end()

    def none_is_held() -> bool:
        rows = [queue_row(cluster, 3, queue) for queue in (source, target)]
        return all("messages" in row and not row["messages_unacknowledged"] for row in rows)

    eventually(none_is_held)
    reader = clients.channel(3)
    stayed, moved = drain(reader, source), drain(reader, target)
    assert set(stayed + moved) == set(bodies(MANY))
    assert stayed == sorted(stayed, key=int)
    assert list(dict.fromkeys(moved)) == sorted(set(moved), key=int)


def test_a_node_that_stands_still_for_a_while(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    fill(clients, 1, name, MANY)
    fill(clients, 2, f"{name}.to", 0)
    under_way = Move(cluster, name, f"{name}.to")
    cluster.resume(2)
    assert under_way.end()["moved"] == MANY
    assert drain(clients.channel(1), f"{name}.to") == bodies(MANY)
    assert drain(clients.channel(1), name) == []


def test_another_master_in_the_middle(cluster: Cluster, clients: Clients, name: str) -> None:
    """A handover waits for what is on its way, and the move goes on with the next master."""
    source, target = f"{name}.source", f"{name}.target"
    mirror(cluster, source)
    fill(clients, 1, source, MANY)
    fill(clients, 2, target, 0)
    under_way = Move(cluster, source, target)
    words = (1, "transfer_master", source, cluster.nodes[2])
    handover = threading.Thread(target=cluster.ctl, args=words)
    handover.start()
    cluster.resume(2)
    handover.join(60)
    outcome = under_way.end()
    assert outcome["complete"]
    assert queue_row(cluster, 1, source)["node"] == cluster.nodes[2]
    moved = drain(clients.channel(1), target)
    # Twice only what the handover would not wait for any longer.
    assert list(dict.fromkeys(moved)) == bodies(MANY)
    assert drain(clients.channel(1), source) == []
