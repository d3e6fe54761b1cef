"""What queues can do, before and after their master is killed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from urllib.parse import quote

import pika
import pytest
from cluster_clients import (
    NODES,
    PERSISTENT,
    Clients,
    Inbox,
    counts,
    drain,
    eventually,
    is_gone,
    publish,
    take,
)
from rings import Refused, api, await_ring, make_master, queue_row

from warren.testing import Cluster

LONG_S = 60.0


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


def test_results_are_the_same_after_a_failover(cluster: Cluster, clients: Clients, ha: str) -> None:
    """List B, 15: priorities, limits, dead letters, expiry; headers as the way to them."""
    channel = clients.confirming(2)
    at_master = clients.channel(1)
    dead = f"{ha}.dead"
    arguments: dict[str, dict[str, object]] = {
        "priority": {"x-max-priority": 5},
        "limit": {"x-max-length": 3},
        "letters": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
        "expiry": {"x-message-ttl": 300_000},
        "active": {"x-single-active-consumer": True},
    }
    at_master.exchange_declare(ha, "headers", durable=True)
    at_master.queue_declare(dead, durable=True)
    for sort, its in arguments.items():
        at_master.queue_declare(f"{ha}.{sort}", durable=True, arguments=its)
        at_master.queue_bind(f"{ha}.{sort}", ha, arguments={"x-match": "any", "sort": sort})
        await_ring(cluster, f"{ha}.{sort}", master=1, synchronised=NODES)
    for sort in arguments:
        for i in range(6):
            properties = pika.BasicProperties(
                delivery_mode=2, priority=i % 3, headers={"sort": sort}
            )
            channel.basic_publish(ha, "", b"%d" % i, properties, mandatory=True)
    first = Inbox(clients.channel(3), f"{ha}.active")
    second = Inbox(clients.channel(2), f"{ha}.active")
    assert first.wait(6, LONG_S) == [b"%d" % i for i in range(6)]
    cluster.kill(1)
    channel = clients.confirming(2)
    eventually(lambda: counts(channel, f"{ha}.priority")[0], 6, LONG_S)
    assert drain(channel, f"{ha}.priority") == [b"2", b"5", b"1", b"4", b"0", b"3"]
    assert drain(channel, f"{ha}.limit") == [b"3", b"4", b"5"]
    publish(channel, f"{ha}.limit", [b"%d" % i for i in range(5)])
    assert drain(channel, f"{ha}.limit") == [b"2", b"3", b"4"]
    method, _, body = channel.basic_get(f"{ha}.letters")
    assert body == b"0"
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert take(channel, dead, LONG_S) == b"0"
    assert drain(channel, f"{ha}.expiry") == [b"%d" % i for i in range(6)]
    # One consumer is active, and one only, whichever it is after a failover.
    until_s = time.monotonic() + LONG_S
    while len(first.got) + len(second.got) < 12 and time.monotonic() < until_s:
        first.listen(lambda: False, 0.1)
        second.listen(lambda: False, 0.1)
    again = first.bodies[6:] + second.bodies
    assert again == [b"%d" % i for i in range(6)]
    assert len(first.got) == 6 or not second.got


def test_limits_and_times_count_on_after_a_failover(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """List B, 15: what runs out, overflows or is refused does so at the new master, too."""
    dead = f"{ha}.dead"
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    arguments: dict[str, dict[str, object]] = {
        "expiry": {"x-message-ttl": 9_000, **letters},
        "bytes": {"x-max-length-bytes": 300, **letters},
        "full": {"x-max-length": 2, "x-overflow": "reject-publish"},
        "idle": {"x-expires": 9_000},
    }
    for queue, its in {dead: {}, **{f"{ha}.{sort}": it for sort, it in arguments.items()}}.items():
        clients.channel(1).queue_declare(queue, durable=True, arguments=its)
        await_ring(cluster, queue, master=1, synchronised=NODES)
    channel = clients.confirming(2)
    publish(channel, f"{ha}.expiry", [b"expires"])
    publish(channel, f"{ha}.bytes", [b"a" * 100, b"b" * 100])
    publish(channel, f"{ha}.full", [b"1", b"2"])
    cluster.kill(1)
    channel = clients.confirming(2)
    eventually(lambda: counts(channel, f"{ha}.full")[0], 2, LONG_S)
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", f"{ha}.full", b"3", PERSISTENT, mandatory=True)
    assert drain(channel, f"{ha}.full") == [b"1", b"2"]
    publish(channel, f"{ha}.bytes", [b"c" * 100, b"d" * 100])
    assert drain(channel, f"{ha}.bytes") == [body * 100 for body in (b"b", b"c", b"d")]
    eventually(lambda: counts(channel, dead)[0], 2, LONG_S)
    found = [channel.basic_get(dead, auto_ack=True) for _ in range(2)]
    reasons = {body[:7]: its.headers["x-death"][0]["reason"] for _, its, body in found}
    assert reasons == {b"a" * 7: "maxlen", b"expires": "expired"}
    cluster.start(1)
    # Not by declaring it passively: that would be a use of it.
    await_gone(cluster, clients, f"{ha}.idle")


def test_what_waited_for_a_new_master_expires_too(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """Published while the master was silent, by way of the node that is the next one."""
    dead = f"{ha}.dead"
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    clients.channel(1).queue_declare(dead, durable=True)
    arguments = {"x-message-ttl": 1_000, **letters}
    clients.channel(1).queue_declare(ha, durable=True, arguments=arguments)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    channels = [clients.channel(node) for node in (2, 3)]
    cluster.pause(1)
    try:
        for channel in channels:
            for i in range(5):
                channel.basic_publish("", ha, b"%d" % i, PERSISTENT)
        eventually(lambda: not is_gone(clients.channel(2), ha), within_s=LONG_S)
        eventually(lambda: counts(clients.channel(2), dead)[0], 10, LONG_S)
        assert counts(clients.channel(3), ha)[0] == 0
    finally:
        cluster.resume(1)


def test_room_of_expired_messages_is_given_back_everywhere(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """List B, 18: the logs of master and mirrors get shorter alike."""
    clients.channel(1).queue_declare(ha, durable=True, arguments={"x-message-ttl": 4_000})
    await_ring(cluster, ha, master=1, synchronised=NODES)
    publish(clients.confirming(2), ha, [b"x" * 1_000_000 for _ in range(150)])
    full = {node: log_bytes(cluster, node) for node in NODES}
    assert min(full.values()) > 100_000_000, full
    eventually(lambda: counts(clients.channel(3), ha)[0] == 0, within_s=LONG_S)
    # Segments are given back whole: at most the newest and the one before may stay.
    for node in NODES:
        eventually(lambda node=node: log_bytes(cluster, node) < full[node] / 2, within_s=LONG_S)  # type: ignore[misc]


def log_bytes(cluster: Cluster, node: int) -> int:
    """What the log of a node takes on its disk."""
    found = 0
    for path in (cluster.data_dir(node) / "log").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def test_expired_messages_are_gone_everywhere(cluster: Cluster, clients: Clients, ha: str) -> None:
    """List B, 18: whoever is master."""
    clients.channel(1).queue_declare(ha, durable=True, arguments={"x-message-ttl": 1500})
    await_ring(cluster, ha, master=1, synchronised=NODES)
    publish(clients.confirming(2), ha, [b"%d" % i for i in range(50)])
    eventually(lambda: queue_row(cluster, 1, ha).get("messages"), within_s=LONG_S)
    channel = clients.channel(3)
    eventually(lambda: counts(channel, ha)[0] == 0, within_s=LONG_S)
    for node in (2, 3):
        make_master(cluster, ha, node)
        eventually(lambda: queue_row(cluster, 1, ha).get("messages"), 0, LONG_S)
    cluster.kill(3)
    eventually(lambda: not is_gone(clients.channel(1), ha), within_s=LONG_S)
    assert drain(clients.channel(1), ha) == []


def test_what_is_durable_survives_a_stop_of_all(cluster: Cluster, name: str) -> None:
    """List B, 16."""
    durable, exclusive = f"ha.{name}.d", f"ha.{name}.e"
    with Clients(cluster) as clients:
        channel = clients.confirming(1)
        channel.exchange_declare(name, "fanout", durable=True)
        channel.queue_declare(durable, durable=True)
        channel.queue_declare(exclusive, exclusive=True)
        channel.queue_bind(durable, name)
        channel.basic_publish(name, "", b"persistent", PERSISTENT, mandatory=True)
        for node in NODES:
            cluster.stop(node)
    cluster.start_all()
    cluster.wait_until_ready()
    with Clients(cluster) as clients:
        eventually(lambda: not is_gone(clients.channel(2), durable), within_s=LONG_S)
        channel = clients.confirming(2)
        assert drain(channel, durable) == [b"persistent"]
        channel.basic_publish(name, "", b"again", PERSISTENT, mandatory=True)
        assert drain(channel, durable) == [b"again"]
        assert is_gone(clients.channel(3), exclusive)


def test_what_is_transient_ends_with_the_cluster(cluster: Cluster, ha: str) -> None:
    """List B, 16: messages in a durable queue, and queues."""
    transient = f"{ha}.t"
    with Clients(cluster) as clients:
        channel = clients.confirming(1)
        channel.queue_declare(ha, durable=True)
        channel.queue_declare(transient)
        channel.basic_publish("", ha, b"transient", mandatory=True)
        channel.basic_publish("", ha, b"persistent", PERSISTENT, mandatory=True)
        channel.basic_publish("", transient, b"of a queue that goes", PERSISTENT, mandatory=True)
        for node in NODES:
            cluster.stop(node)
    cluster.start_all()
    cluster.wait_until_ready()
    with Clients(cluster) as clients:
        eventually(lambda: not is_gone(clients.channel(2), ha), within_s=LONG_S)
        assert drain(clients.channel(2), ha) == [b"persistent"]
        # Whoever becomes its master finds that nobody has gone on, and has it deleted.
        await_gone(cluster, clients, transient)


def test_transient_exchanges_end_with_the_cluster(cluster: Cluster, name: str) -> None:
    """List B, 16."""
    with Clients(cluster) as clients:
        clients.channel(1).exchange_declare(name, "fanout")
    for node in NODES:
        cluster.stop(node)
    cluster.start_all()
    cluster.wait_until_ready()
    with Clients(cluster) as clients, pytest.raises(pika.exceptions.ChannelClosedByBroker):
        clients.channel(2).exchange_declare(name, passive=True)


def await_gone(cluster: Cluster, clients: Clients, queue: str) -> None:
    """Until no node knows a queue."""
    path = f"/queues/%2F/{quote(queue, safe='')}"

    def is_known(node: int) -> bool:
        try:
            api(cluster, node, "GET", path)
        except Refused as error:
            return error.status != 404
        return True

    for node in NODES:
        eventually(lambda node=node: not is_known(node), within_s=LONG_S)  # type: ignore[misc]
    assert is_gone(clients.channel(2), queue)


def test_what_is_transient_stays_while_a_replica_goes_on(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """Transient messages and queues end with the last of their replicas, not with the first."""
    transient = f"{ha}.t"
    channel = clients.confirming(2)
    channel.queue_declare(ha, durable=True)
    channel.queue_declare(transient)
    for queue in (ha, transient):
        await_ring(cluster, queue, synchronised=NODES)
        channel.basic_publish("", queue, b"transient", mandatory=True)
    for node in (2, 3, 1):
        cluster.kill(node)
        cluster.start(node)
        for queue in (ha, transient):
            await_ring(cluster, queue, synchronised=NODES)
    for queue in (ha, transient):
        assert drain(clients.channel(1), queue) == [b"transient"]


def test_a_full_queue_answers_once(cluster: Cluster, clients: Clients, ha: str) -> None:
    """List B, 14: no message is both confirmed and refused, across a stop of the master."""
    arguments = {"x-max-length": 20, "x-overflow": "reject-publish"}
    clients.channel(1).queue_declare(ha, durable=True, arguments=arguments)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    channel = clients.confirming(2)
    accepted: list[bytes] = []
    refused = 0
    for i in range(120):
        if i == 60:
            cluster.stop(1)
        if i % 30 == 0:
            accepted_before = len(accepted)
            assert drain(clients.channel(3), ha) == accepted[-20:] if i else True
            assert len(accepted) == accepted_before
        try:
            channel.basic_publish("", ha, b"%d" % i, PERSISTENT, mandatory=True)
            accepted.append(b"%d" % i)
        except pika.exceptions.NackError:
            refused += 1
    assert (len(accepted), refused) == (80, 40)
    assert drain(clients.channel(3), ha) == accepted[-20:]
