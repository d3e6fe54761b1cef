"""Dead letters for queues on other nodes: whoever is killed, none is lost, and order is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cluster_clients import Clients, Inbox, counts, drain, eventually, publish, take
from rings import queue_row

from warren.testing import Cluster

LONG_S = 60.0
#: More than are buried at a time.
MANY = 5000


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


def declare(clients: Clients, name: str, **arguments: Any) -> str:
    """A queue on node 1 whose letters go to one on node 2; the name of that one."""
    grave = f"{name}.grave"
    clients.channel(2).queue_declare(grave, durable=True)
    clients.channel(1).queue_declare(
        name,
        durable=True,
        arguments={
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": grave,
            **{f"x-{key.replace('_', '-')}": value for key, value in arguments.items()},
        },
    )
    return grave


def bodies(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def reject_all(clients: Clients, name: str, count: int) -> None:
    channel = clients.channel(1)
    Inbox(channel, name).wait(count)
    channel.basic_nack(0, multiple=True, requeue=False)
    channel.connection.close()


def buried(cluster: Cluster, name: str) -> int:
    return int(queue_row(cluster, 1, name)["messages_buried"])


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen"])
def test_letters_wait_for_a_home_that_was_killed(
    cluster: Cluster, clients: Clients, name: str, reason: str
) -> None:
    limits: dict[str, dict[str, Any]] = {
        "rejected": {},
        "expired": {"message_ttl": 500},
        "maxlen": {"max_length": 0},
    }
    grave = declare(clients, name, **limits[reason])
    cluster.kill(2)
    channel = clients.confirming(1)
    publish(channel, name, bodies(200))
    if reason == "rejected":
        reject_all(clients, name, 200)
    eventually(lambda: buried(cluster, name), 200)
    assert drain(channel, name) == []
    assert counts(channel, name) == (0, 0)
    cluster.start(2)
    reader = clients.channel(2)
    assert [take(reader, grave) for _ in range(200)] == bodies(200)
    eventually(lambda: buried(cluster, name), 0)
    assert drain(reader, grave) == []


def test_more_than_are_buried_at_a_time(cluster: Cluster, clients: Clients, name: str) -> None:
    grave = declare(clients, name, message_ttl=1)
    cluster.kill(2)
    channel = clients.channel(1)
    publish(channel, name, bodies(MANY))
    eventually(lambda: counts(clients.channel(1), name)[0], MANY - 4096)
    inbox = Inbox(channel, name)
    cluster.start(2)
    reader = clients.channel(2)
    eventually(lambda: counts(reader, grave)[0], MANY, LONG_S)
    assert drain(reader, grave) == bodies(MANY)
    channel.connection.process_data_events(0)
    assert inbox.got == []


def test_the_node_of_the_source_is_killed_while_letters_wait(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    """They are in their queue again, and die again."""
    grave = declare(clients, name, max_length=5)
    cluster.kill(2)
    publish(clients.confirming(1), name, bodies(100))
    eventually(lambda: buried(cluster, name), 95)
    cluster.kill(1)
    cluster.start(2, wait=False)
    cluster.start(1)
    cluster.wait_until_ready()
    reader = clients.channel(2)
    assert [take(reader, grave) for _ in range(95)] == bodies(95)
    assert drain(reader, name) == bodies(100)[95:]
    assert drain(reader, grave) == []


def test_both_are_killed_in_the_middle(cluster: Cluster, clients: Clients, name: str) -> None:
    """What is not in the grave is in the source; some may be in both."""
    grave = declare(clients, name)
    publish(clients.confirming(1), name, bodies(1000))
    channel = clients.channel(1)
    Inbox(channel, name).wait(1000)
    for tag in range(1, 1001):
        channel.basic_reject(tag, requeue=False)
        if tag == 600:
            channel.connection.process_data_events(0)
            cluster.kill(2)
    channel.connection.process_data_events(0.1)
    cluster.kill(1)
    cluster.start(2, wait=False)
    cluster.start(1)
    cluster.wait_until_ready()
    reader = clients.channel(3)
    eventually(lambda: buried(cluster, name), 0)
    dead, alive = drain(reader, grave), drain(reader, name)
    assert {*dead, *alive} == set(bodies(1000))
    assert sorted(alive, key=int) == alive


def test_purged_and_deleted_while_letters_wait(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    grave = declare(clients, name, max_length=3)
    other = f"{name}.other"
    declare(clients, other, max_length=3)
    cluster.kill(2)
    channel = clients.confirming(1)
    for queue in (name, other):
        publish(channel, queue, bodies(10))
        eventually(lambda queue=queue: buried(cluster, queue), 7)
    assert channel.queue_purge(name).method.message_count == 3
    assert channel.queue_delete(other).method.message_count == 3
    assert buried(cluster, name) == 7
    cluster.start(2)
    reader = clients.channel(2)
    assert [take(reader, grave) for _ in range(7)] == bodies(7)
    eventually(lambda: buried(cluster, name), 0)
    assert drain(reader, grave) == drain(reader, f"{other}.grave") == []
