"""A master is killed or stopped: another replica goes on, with everything and in order."""

from __future__ import annotations

import threading
import time
from typing import Any

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
)
from rings import (
    Ring,
    await_ring,
    await_that,
    clear_policy,
    make_master,
    mirror,
    queue_row,
    ring_of,
)

from warren.testing import Cluster

LONG_S = 60.0


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Any:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


@pytest.mark.parametrize("home", NODES)
def test_killed_right_after_the_confirm(
    cluster: Cluster, clients: Clients, ha: str, home: int
) -> None:
    """List B, 1."""
    channel = clients.confirming(home)
    channel.queue_declare(ha, durable=True)
    publish(channel, ha, [b"%d" % i for i in range(20)])
    cluster.kill(home)
    other = next(node for node in NODES if node != home)
    channel = clients.channel(other)
    eventually(lambda: counts(clients.channel(other), ha), (20, 0), LONG_S)
    assert drain(channel, ha) == [b"%d" % i for i in range(20)]


class Counting(threading.Thread):
    """Publishes numbers with confirms, some hundred at a time; in a thread of its own."""

    def __init__(self, cluster: Cluster, node: int, queue: str, count: int) -> None:
        super().__init__(daemon=True)
        self._url, self._queue, self._count = cluster.url(node), queue, count
        self.confirmed: set[int] = set()
        self.refused: set[int] = set()
        self.error: BaseException | None = None
        self.began = threading.Event()

    def run(self) -> None:
        try:
            self._publish_all()
        except BaseException as error:
            self.error = error

    def _publish_all(self) -> None:
        parameters = pika.URLParameters(self._url)
        parameters.heartbeat = 0
        connection = pika.BlockingConnection(parameters)
        # Beneath the blocking channel, which would wait for every single confirm.
        blocking = connection.channel()
        channel = blocking._impl
        answered = 0

        def on_answer(frame: Any) -> None:
            nonlocal answered
            into = self.confirmed if isinstance(frame.method, pika.spec.Basic.Ack) else self.refused
            first = answered + 1 if frame.method.multiple else frame.method.delivery_tag
            into.update(range(first, frame.method.delivery_tag + 1))
            while answered + 1 in self.confirmed or answered + 1 in self.refused:
                answered += 1

        channel.confirm_delivery(ack_nack_callback=on_answer)
        for number in range(1, self._count + 1):
            channel.basic_publish("", self._queue, b"%d" % number, PERSISTENT)
            if number % 50 == 0:
                connection.process_data_events(0)
            while number - answered > 500:
                connection.process_data_events(0.5)
            if number == self._count // 4:
                self.began.set()
        while answered < self._count:
            connection.process_data_events(0.5)
        connection.close()


@pytest.mark.parametrize("how", ["stop", "kill", "policy"])
@pytest.mark.parametrize("consumer", ["is told", "is not told", "could not be told"])
def test_publisher_and_consumer_on_other_nodes(
    cluster: Cluster, clients: Clients, ha: str, how: str, consumer: str
) -> None:
    """List B, 2: the master goes in the middle; every confirm comes, and every message."""
    count = 20_000
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    arguments = {"x-cancel-on-ha-failover": True} if consumer == "is told" else None
    understands = {"consumer_cancel_notify": consumer != "could not be told"}
    channel = clients.connection(2, capabilities=understands).channel()
    channel.basic_qos(prefetch_count=100)
    seen: list[tuple[int, bool]] = []

    def on_message(its: Any, method: Any, _properties: Any, body: bytes) -> None:
        seen.append((int(body), method.redelivered))
        its.basic_ack(method.delivery_tag)

    cancelled: list[object] = []
    times_cancelled = 0
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(ha, on_message, arguments=arguments)
    publisher = Counting(cluster, 3, ha, count)
    publisher.start()
    taking = threading.Thread(target=_take_master_away, args=(cluster, ha, how))
    until = threading.Event()
    timer = threading.Timer(200, until.set)
    timer.start()
    try:
        while not until.is_set() and not (
            len({number for number, _ in seen}) == count and not publisher.is_alive()
        ):
            channel.connection.process_data_events(0.05)
            if cancelled:
                times_cancelled += len(cancelled)
                cancelled.clear()
                channel.basic_consume(ha, on_message, arguments=arguments)
            if publisher.began.is_set() and taking.ident is None:
                taking.start()
    finally:
        timer.cancel()
        if taking.ident is not None:
            taking.join()
    if publisher.error is not None:
        raise publisher.error
    assert (len(publisher.confirmed), publisher.refused) == (count, set())
    assert {number for number, _ in seen} == set(range(1, count + 1))
    plain = [number for number, redelivered in seen if not redelivered]
    assert len(plain) == len(set(plain)), "a message came twice without a word"
    firsts = list(dict.fromkeys(number for number, _ in seen))
    assert firsts == sorted(firsts)
    # One that stops hands over, and takes its consumers along, with all that they hold.
    assert how != "stop" or len(plain) == len(seen)
    assert bool(times_cancelled) is (consumer == "is told" and how != "stop")
    eventually(lambda: counts(clients.channel(2), ha), (0, 1), LONG_S)
    if how == "policy":
        clear_policy(cluster, f"^{ha}$")


def _take_master_away(cluster: Cluster, queue: str, how: str) -> None:
    if how == "policy":
        nodes = [cluster.nodes[1], cluster.nodes[2]]
        body: dict[str, object] = {"ha-mode": "nodes", "ha-params": nodes}
        mirror(cluster, f"^{queue}$", body, node=2)
    elif how == "stop":
        cluster.stop(1)
    else:
        cluster.kill(1)


def test_deliveries_come_again_flagged_and_in_place(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    clients.channel(1).queue_declare(ha, durable=True)
    bodies = [b"%d" % i for i in range(10)]
    publish(clients.confirming(2), ha, bodies)
    channel = clients.channel(2)
    channel.basic_qos(prefetch_count=4)
    inbox = Inbox(channel, ha)
    assert inbox.wait(4, LONG_S) == bodies[:4]
    cluster.kill(1)
    await_that(cluster, ha, lambda ring: ring.master in cluster.nodes[1:], "another master")
    # Tags of before acknowledge nothing any more, but make room: the client never has more than
    # it has asked for.
    channel.basic_ack(inbox.got[3][0].delivery_tag, multiple=True)
    inbox.wait(8, LONG_S)
    assert inbox.bodies[4:8] == bodies[:4]
    assert [method.redelivered for method, _, _ in inbox.got[4:8]] == [True] * 4
    channel.basic_ack(inbox.got[7][0].delivery_tag, multiple=True)
    # Of the rest the dead master may have sent some on their way: only what is new is surely so.
    publish(clients.confirming(3), ha, [b"new"])
    while len(inbox.got) < 15:
        count = len(inbox.got)
        inbox.wait(count + 1, LONG_S)
        channel.basic_ack(inbox.got[-1][0].delivery_tag, multiple=True)
    assert inbox.bodies[8:] == [*bodies[4:], b"new"]
    assert not inbox.got[-1][0].redelivered
    assert not inbox.cancelled


def test_a_planned_stop_moves_the_master(cluster: Cluster, clients: Clients, ha: str) -> None:
    clients.channel(1).queue_declare(ha, durable=True)
    publish(clients.confirming(2), ha, [b"a", b"b"])
    await_ring(cluster, ha, master=1, synchronised=NODES)
    cluster.stop(1)
    ring = await_ring(cluster, ha, synchronised=(2, 3))
    assert ring.master in cluster.nodes[1:]
    channel = clients.confirming(3)
    publish(channel, ha, [b"c"])
    cluster.start(1)
    again = await_ring(cluster, ha, synchronised=NODES)
    assert again.master == ring.master
    method, _, body = channel.basic_get(ha, auto_ack=True)
    assert (method.redelivered, body) == (False, b"a")
    assert drain(channel, ha) == [b"b", b"c"]


def test_an_exclusive_queue_goes_with_its_node(cluster: Cluster, clients: Clients, ha: str) -> None:
    """List B, 10."""
    owner = clients.connection(1).channel()
    owner.queue_declare(ha, exclusive=True)
    ring = ring_of(cluster, ha)
    assert ring is None or ring.replicas == [cluster.nodes[0]]
    cluster.kill(1)
    eventually(lambda: is_gone(clients.channel(2), ha), within_s=LONG_S)
    cluster.start(1)
    cluster.wait_until_ready()
    for node in NODES:
        assert is_gone(clients.channel(node), ha)


def _is_level(ring: Ring) -> bool:
    return all(row["lag_messages"] == 0 for row in ring.shown["replicas"])


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """Also when the consumer is lost together with the master."""
    channel = clients.channel(1)
    channel.queue_declare(ha, auto_delete=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    Inbox(channel, ha)
    eventually(lambda: queue_row(cluster, 2, ha).get("consumers"), 1, LONG_S)
    # That it has had a consumer is an operation like others: it takes some ms to the mirrors.
    await_that(cluster, ha, _is_level, "all mirrors to have everything")
    cluster.kill(1)
    eventually(lambda: ring_of(cluster, ha) is None, within_s=LONG_S)


def test_an_auto_delete_queue_stays_with_a_consumer_elsewhere(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """It goes when that one does; another that never had a consumer stays."""
    unused = f"{ha}.unused"
    for queue in (ha, unused):
        clients.channel(1).queue_declare(queue, auto_delete=True)
        await_ring(cluster, queue, master=1, synchronised=NODES)
    Inbox(clients.channel(1), ha)
    there = clients.channel(3)
    inbox = Inbox(there, ha)
    eventually(lambda: queue_row(cluster, 2, ha).get("consumers"), 2, LONG_S)
    cluster.kill(1)
    publish(clients.confirming(2), ha, [b"one"])
    assert inbox.wait(1, LONG_S) == [b"one"]
    # Longer than a new master waits for consumers to come back.
    time.sleep(5)
    assert ring_of(cluster, ha) is not None
    there.close()
    eventually(lambda: ring_of(cluster, ha) is None, within_s=LONG_S)
    assert ring_of(cluster, unused) is not None


def test_all_stop_in_turn_and_one_has_everything(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """List B, 11: with one more for the majority, which has no replica."""
    mirror(cluster, f"^{ha}$", {"ha-mode": "nodes", "ha-params": cluster.nodes[:2]})
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, synchronised=(1, 2))
    bodies = [b"%d" % i for i in range(50)]
    publish(clients.confirming(3), ha, bodies)
    for node in (3, 2, 1):
        cluster.stop(node)
    cluster.start(2, wait=False)
    cluster.start(3)
    channel = clients.channel(3)
    eventually(lambda: not is_gone(clients.channel(3), ha), within_s=LONG_S)
    assert drain(channel, ha) == bodies


def test_masters_can_be_moved(cluster: Cluster, clients: Clients, ha: str) -> None:
    clients.channel(1).queue_declare(ha, durable=True)
    bodies = [b"%d" % i for i in range(30)]
    publisher = clients.confirming(1)
    publish(publisher, ha, bodies[:10])
    await_ring(cluster, ha, synchronised=NODES)
    for turn, node in enumerate((2, 3), start=1):
        make_master(cluster, ha, node)
        publish(publisher, ha, bodies[turn * 10 : turn * 10 + 10])
    assert drain(clients.channel(2), ha) == bodies


@pytest.mark.parametrize("holder", [1, 3])
def test_what_came_back_before_a_handover_is_flagged(
    cluster: Cluster, clients: Clients, ha: str, holder: int
) -> None:
    """Whoever had it is gone, and the master moves only then: nothing else is flagged."""
    clients.channel(1).queue_declare(ha, durable=True)
    publish(clients.confirming(2), ha, [b"%d" % i for i in range(10)])
    await_ring(cluster, ha, synchronised=NODES)
    make_master(cluster, ha, 1)
    had = clients.channel(holder)
    assert [had.basic_get(ha)[2] for _ in range(3)] == [b"0", b"1", b"2"]
    had.close()
    eventually(lambda: counts(clients.channel(2), ha)[0], 10, LONG_S)
    make_master(cluster, ha, 2)
    channel = clients.channel(3)
    got = [channel.basic_get(ha, auto_ack=True) for _ in range(10)]
    flagged = [body for method, _, body in got if method.redelivered]
    assert [body for _, _, body in got] == [b"%d" % i for i in range(10)]
    assert flagged == [b"0", b"1", b"2"]
