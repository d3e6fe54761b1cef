"""Dead letters of mirrored queues: a master that dies in the middle takes none of them along."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from cluster_clients import NODES, PERSISTENT, Clients, Inbox, counts, drain, eventually, publish
from rings import await_ring, make_master, queue_row

from warren.testing import Cluster

LONG_S = 60.0


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


def declare(
    cluster: Cluster, clients: Clients, source: str, grave: str, grave_at: int, **arguments: Any
) -> None:
    """A mirrored queue whose master is node 1, and where its letters go."""
    clients.channel(grave_at).queue_declare(grave, durable=True)
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
    clients.channel(1).queue_declare(source, durable=True, arguments=letters | named)
    await_ring(cluster, source, master=1, synchronised=NODES)
    if grave.startswith("ha."):
        await_ring(cluster, grave, master=grave_at, synchronised=NODES)


def bodies(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def in_order(found: list[bytes]) -> list[bytes]:
    """What comes for the first time, as it comes."""
    return list(dict.fromkeys(found))


class Publishing(threading.Thread):
    """Publishes numbers and notes which were confirmed; goes on until it is told to stop."""

    def __init__(self, cluster: Cluster, node: int, queue: str) -> None:
        super().__init__(daemon=True)
        self._url, self._queue = cluster.url(node), queue
        self.confirmed: list[bytes] = []
        self.over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            parameters = pika.URLParameters(self._url)
            parameters.heartbeat = 0
            connection = pika.BlockingConnection(parameters)
            channel = connection.channel()
            channel.confirm_delivery()
            number = 0
            while not self.over.is_set():
                body = b"%d" % number
                number += 1
                try:
                    channel.basic_publish("", self._queue, body, PERSISTENT)
                except pika.exceptions.NackError:
                    continue
                self.confirmed.append(body)
            connection.close()
        except BaseException as error:
            self.error = error


@pytest.mark.parametrize("mirrored_grave", [True, False])
@pytest.mark.parametrize("limits", [{"max_length": 20}, {"message_ttl": 30}])
def test_the_master_is_killed_in_mid_flow(
    cluster: Cluster, clients: Clients, ha: str, limits: dict[str, int], mirrored_grave: bool
) -> None:
    """Everything confirmed is in the source or in the grave; what is there twice is few."""
    grave = f"{ha}.grave" if mirrored_grave else f"{ha[3:]}.grave"
    declare(cluster, clients, ha, grave, 2, **limits)
    publishing = Publishing(cluster, 3, ha)
    publishing.start()
    eventually(lambda: counts(clients.channel(2), grave)[0] > 300, within_s=LONG_S)
    cluster.kill(1)
    known = len(publishing.confirmed)
    eventually(lambda: len(publishing.confirmed) > known + 300, within_s=LONG_S)
    publishing.over.set()
    publishing.join(LONG_S)
    assert publishing.error is None
    left = limits.get("max_length", 0)
    eventually(lambda: counts(clients.channel(2), ha)[0] <= left, within_s=LONG_S)
    eventually(lambda: queue_row(cluster, 2, ha)["messages_buried"] == 0, within_s=LONG_S)
    reader = clients.channel(2)
    dead, alive = drain(reader, grave), drain(reader, ha)
    assert set(publishing.confirmed) <= {*dead, *alive}
    assert not set(publishing.confirmed[:200]) & set(alive)
    assert in_order(dead) == sorted(set(dead), key=int)


def test_the_home_of_the_grave_is_killed_and_then_the_master(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """Letters wait at the next master, too, and then come in order."""
    grave = f"{ha[3:]}.grave"
    declare(cluster, clients, ha, grave, 3, max_length=0)
    cluster.kill(3)
    publish(clients.confirming(1), ha, bodies(300))
    eventually(lambda: queue_row(cluster, 2, ha)["messages_buried"], 300)
    make_master(cluster, ha, 2)
    eventually(lambda: queue_row(cluster, 1, ha)["messages_buried"], 300)
    assert counts(clients.channel(1), ha) == (0, 0)
    cluster.start(3)
    cluster.wait_until_ready()
    await_ring(cluster, ha, master=2, synchronised=NODES)
    eventually(lambda: counts(clients.channel(1), grave)[0], 300, LONG_S)
    assert drain(clients.channel(1), grave) == bodies(300)
    eventually(lambda: queue_row(cluster, 1, ha)["messages_buried"], 0)


def test_rejected_just_before_the_master_is_killed(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """A rejected message is in the grave, or comes again flagged."""
    grave = f"{ha}.grave"
    declare(cluster, clients, ha, grave, 2)
    publish(clients.confirming(3), ha, bodies(2000))
    channel = clients.channel(3)
    inbox = Inbox(channel, ha)
    inbox.wait(2000)
    for tag in range(1, 2001):
        channel.basic_reject(tag, requeue=False)
        if tag == 1000:
            channel.connection.process_data_events(0)
            cluster.kill(1)
    channel.connection.process_data_events(0)
    reader = clients.channel(2)
    until_s = time.monotonic() + LONG_S
    again: list[Any] = []
    while time.monotonic() < until_s:
        channel.connection.process_data_events(0.2)
        again = inbox.got[2000:]
        # Until all are with the consumer again or dead; some may be both.
        if counts(reader, grave)[0] + len(again) >= 2000:
            row = queue_row(cluster, 2, ha)
            if row["messages"] == row["messages_unacknowledged"] == len(again):
                break
    assert all(method.redelivered for method, _, _ in again)
    dead = drain(reader, grave)
    assert {*dead, *(body for _, _, body in again)} == set(bodies(2000))


def test_a_handed_over_master_sends_nothing_twice(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    grave = f"{ha}.grave"
    declare(cluster, clients, ha, grave, 3, max_length=10)
    publishing = Publishing(cluster, 3, ha)
    publishing.start()
    for node in (2, 1, 2):
        known = counts(clients.channel(3), grave)[0]
        eventually(lambda known=known: counts(clients.channel(3), grave)[0] > known + 100)
        make_master(cluster, ha, node)
    publishing.over.set()
    publishing.join(LONG_S)
    assert publishing.error is None
    eventually(lambda: queue_row(cluster, 3, ha)["messages_buried"], 0)
    reader = clients.channel(3)
    dead, alive = drain(reader, grave), drain(reader, ha)
    assert [*dead, *alive] == publishing.confirmed


def test_the_target_is_deleted_before_it_has_answered(
    cluster: Cluster, clients: Clients, ha: str, name: str
) -> None:
    """A letter that nobody will answer finds no way any more, and its message goes."""
    grave = f"{ha}.grave"
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
    clients.channel(1).queue_declare(grave, durable=True)
    clients.channel(1).queue_declare(name, durable=True, arguments=letters | {"x-max-length": 0})
    await_ring(cluster, grave, master=1, synchronised=NODES)
    deleting = clients.channel(1)
    cluster.pause(3)
    try:
        publish(clients.confirming(1), name, [b"dead"])
        assert queue_row(cluster, 1, name)["messages_buried"] == 1
        deleting.queue_delete(grave)
        eventually(lambda: queue_row(cluster, 1, name)["messages_buried"], 0)
    finally:
        cluster.resume(3)
    assert queue_row(cluster, 1, name)["messages"] == 0
