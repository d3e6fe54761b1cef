"""Prefetch, confirms, transactions, expiry, dead letters and the rest, across nodes."""

from __future__ import annotations

import os
import time
from typing import Any

import pika
import pytest
from cluster_clients import NODES, Clients, Inbox, counts, drain, eventually, is_gone, refused, take

from warren.testing import Cluster

#: The client's node, and another one that is the queue's home.
across = pytest.mark.parametrize(("node", "home"), [(1, 2), (2, 3), (3, 1)])


@across
def test_prefetch_of_a_consumer(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name)
    channel = clients.channel(node)
    channel.basic_qos(prefetch_count=3)
    inbox = Inbox(channel, name)
    publisher = clients.confirming(home)
    for i in range(10):
        publisher.basic_publish("", name, b"%d" % i)
    inbox.wait(3)
    inbox.listen(lambda: False)
    assert inbox.bodies == [b"0", b"1", b"2"]
    channel.basic_ack(inbox.got[0][0].delivery_tag)
    inbox.wait(4)
    inbox.listen(lambda: False)
    assert inbox.bodies == [b"0", b"1", b"2", b"3"]
    channel.basic_ack(0, multiple=True)
    assert inbox.wait(7) == [b"%d" % i for i in range(7)]
    assert counts(publisher, name) == (3, 1)


@across
def test_prefetch_of_a_channel(clients: Clients, name: str, node: int, home: int) -> None:
    """Two consumers share the limit, on queues of two homes."""
    here, there = f"{name}.here", f"{name}.there"
    clients.channel(home).queue_declare(there)
    channel = clients.channel(node)
    channel.queue_declare(here)
    channel.basic_qos(prefetch_count=4, global_qos=True)
    inboxes = [Inbox(channel, there), Inbox(channel, here)]
    publisher = clients.confirming(home)
    for i in range(10):
        publisher.basic_publish("", there, b"%d" % i)
        publisher.basic_publish("", here, b"%d" % i)

    def so_far() -> int:
        return sum(len(inbox.got) for inbox in inboxes)

    inboxes[0].listen(lambda: so_far() >= 4, 10)
    inboxes[0].listen(lambda: False)
    assert so_far() == 4
    for count in range(1, 17):
        tags = sorted(method.delivery_tag for inbox in inboxes for method, _, _ in inbox.got)
        channel.basic_ack(tags[count - 1])
        inboxes[0].listen(lambda c=count: so_far() >= 4 + c, 10)
        assert so_far() == 4 + count
    for inbox in inboxes:
        assert inbox.bodies == [b"%d" % i for i in range(10)]


@across
def test_many_messages_keep_their_order(clients: Clients, name: str, node: int, home: int) -> None:
    count = 5000
    clients.channel(home).queue_declare(name)
    publisher = clients.channel(6 - node - home)
    for i in range(count):
        publisher.basic_publish("", name, b"%d" % i)
    inbox = Inbox(clients.channel(node), name, auto_ack=True)
    assert inbox.wait(count) == [b"%d" % i for i in range(count)]
    assert not any(method.redelivered for method, _, _ in inbox.got)


@across
def test_mandatory_and_refused(clients: Clients, name: str, node: int, home: int) -> None:
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    clients.channel(home).queue_declare(name, arguments=arguments)
    channel = clients.confirming(node)
    channel.basic_publish("", name, b"0", mandatory=True)
    channel.basic_publish("", name, b"1", mandatory=True)
    for _ in range(3):
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", name, b"2", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", f"{name}.none", b"2", mandatory=True)
    assert take(channel, name) == b"0"
    channel.basic_publish("", name, b"3", mandatory=True)
    assert drain(channel, name) == [b"1", b"3"]


@across
def test_transactions(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name, durable=True)
    channel = clients.channel(node)
    channel.tx_select()
    persistent = pika.BasicProperties(delivery_mode=2)
    for i in range(3):
        channel.basic_publish("", name, b"%d" % i, persistent)
    looking = clients.channel(home)
    assert counts(looking, name) == (0, 0)
    channel.tx_commit()
    assert counts(looking, name) == (3, 0)
    channel.basic_publish("", name, b"never", persistent)
    channel.tx_rollback()
    method, _, body = channel.basic_get(name)
    assert body == b"0"
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    channel.close()
    assert drain(looking, name) == [b"1", b"2"]


@across
def test_expiry_and_dead_letters(clients: Clients, name: str, node: int, home: int) -> None:
    """From a queue on one node into one on another, by expiry, reject and length."""
    grave = f"{name}.grave"
    clients.channel(node).queue_declare(grave)
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": grave,
        "x-max-length": 2,
    }
    clients.channel(home).queue_declare(name, arguments=arguments)
    channel = clients.confirming(6 - node - home)
    channel.basic_publish("", name, b"expires", pika.BasicProperties(expiration="100"))
    assert take(channel, grave) == b"expires"
    for body in (b"too long", b"rejected", b"stays"):
        channel.basic_publish("", name, body)
    assert take(channel, grave) == b"too long"
    method, _, body = channel.basic_get(name)
    assert body == b"rejected"
    channel.basic_reject(method.delivery_tag, requeue=False)

    def dead() -> Any:
        return channel.basic_get(grave, auto_ack=True)[1]

    properties = eventually(dead)
    assert properties.headers["x-death"][0]["queue"] == name
    assert properties.headers["x-death"][0]["reason"] == "rejected"
    assert properties.headers["x-first-death-queue"] == name


@across
def test_message_ttl_of_a_queue(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name, arguments={"x-message-ttl": 150})
    channel = clients.confirming(node)
    channel.basic_publish("", name, b"soon gone")
    eventually(lambda: counts(channel, name), (0, 0))


@across
def test_priorities(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name, arguments={"x-max-priority": 5})
    channel = clients.confirming(node)
    for priority in (1, 5, 3, 0, 5):
        properties = pika.BasicProperties(priority=priority)
        channel.basic_publish("", name, b"%d" % priority, properties)
    assert drain(channel, name) == [b"5", b"5", b"3", b"1", b"0"]


@across
def test_consumer_priorities(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name)
    low = Inbox(clients.channel(home), name)
    high = Inbox(clients.channel(node), name, arguments={"x-priority": 10})
    publisher = clients.confirming(home)
    for i in range(20):
        publisher.basic_publish("", name, b"%d" % i)
    high.wait(20)
    low.listen(lambda: False)
    assert low.bodies == []


@across
def test_single_active_consumer(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name, arguments={"x-single-active-consumer": True})
    first = Inbox(clients.channel(node), name, auto_ack=True)
    second = Inbox(clients.channel(home), name, auto_ack=True)
    third = Inbox(clients.channel(6 - node - home), name, auto_ack=True)
    publisher = clients.confirming(home)
    for wave, active in enumerate((first, second, third), start=1):
        for i in range(10):
            publisher.basic_publish("", name, b"%d" % i)
        assert active.wait(10) == [b"%d" % i for i in range(10)]
        for other in (first, second, third)[wave:]:
            other.listen(lambda: False, 0.1)
            assert other.bodies == []
        active.channel.connection.close()
        eventually(lambda w=wave: counts(publisher, name), (0, 3 - wave))


@across
def test_exclusive_consumer(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name)
    alone = clients.channel(node)
    inbox = Inbox(alone, name, exclusive=True)
    for other in NODES:
        channel = clients.channel(other)
        refused(403, "in exclusive use", lambda c=channel: Inbox(c, name))
    alone.basic_cancel(inbox.tag)
    Inbox(clients.channel(home), name)
    channel = clients.channel(node)
    refused(403, "in exclusive use", lambda: Inbox(channel, name, exclusive=True))


@across
def test_exclusive_queue(clients: Clients, name: str, node: int, home: int) -> None:
    owner = clients.channel(home)
    owner.queue_declare(name, exclusive=True)
    owner.exchange_declare(f"{name}.x", "fanout")
    owner.queue_bind(name, f"{name}.x")
    for act in (
        lambda channel: channel.queue_declare(name, exclusive=True),
        lambda channel: counts(channel, name),
        lambda channel: Inbox(channel, name),
        lambda channel: channel.basic_get(name),
        lambda channel: channel.queue_purge(name),
        lambda channel: channel.queue_delete(name),
        lambda channel: channel.queue_bind(name, f"{name}.x", "k"),
    ):
        channel = clients.channel(node)
        refused(405, "exclusive access", lambda a=act, c=channel: a(c))
    publisher = clients.confirming(node)
    publisher.basic_publish(f"{name}.x", "", b"for the owner", mandatory=True)
    assert take(owner, name) == b"for the owner"
    owner.connection.close()

    for other in NODES:
        eventually(lambda n=other: is_gone(clients.channel(n), name))
    clients.channel(node).queue_declare(name)


@across
def test_auto_delete_queue(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name, auto_delete=True)
    inboxes = [Inbox(clients.channel(one), name) for one in (node, 6 - node - home)]
    looking = clients.channel(home)
    assert counts(looking, name) == (0, 2)
    inboxes[0].channel.basic_cancel(inboxes[0].tag)
    assert counts(looking, name) == (0, 1)
    inboxes[1].channel.connection.close()

    eventually(lambda: is_gone(clients.channel(node), name))


def test_queue_expiry(cluster: Cluster, clients: Clients, name: str) -> None:
    node, home = 1, 2
    clients.channel(home).queue_declare(name, arguments={"x-expires": 2500})
    inbox = Inbox(clients.channel(node), name)
    inbox.listen(lambda: False, 2.8)
    looking = clients.channel(node)
    assert counts(looking, name) == (0, 1)
    inbox.channel.basic_cancel(inbox.tag)
    for _ in range(6):
        time.sleep(0.5)
        assert looking.basic_get(name) == (None, None, None)
    # Neither this nor any other list is use of the queue.
    eventually(lambda: name not in cluster.ctl(3, "list_queues", "-q", "name").split())
    refused(404, "no queue", lambda: counts(looking, name))


@across
def test_sizes(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name, durable=True)
    channel = clients.confirming(node)
    sizes = [0, 1, 131072 - 8, 1 << 20, (1 << 20) + 1, 5 << 20]
    bodies = [os.urandom(size) for size in sizes]
    for body in bodies:
        channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2))
    inbox = Inbox(clients.channel(node), name)
    assert inbox.wait(len(bodies), 30) == bodies
    inbox.channel.connection.close()
    eventually(lambda: counts(channel, name), (len(bodies), 0))
    assert drain(channel, name) == bodies


@across
def test_properties(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name)
    channel = clients.confirming(node)
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"s": "ä", "i": -5, "b": True, "l": [1, "x"], "t": {"n": None}, "y": b"\0\xff"},
        delivery_mode=2,
        priority=4,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1234567890,
        type="t",
        user_id="guest",
        app_id="a",
        cluster_id="k",
    )
    channel.basic_publish("", name, b"x", sent)
    channel.basic_publish("", name, b"x", sent)
    by_get = channel.basic_get(name, auto_ack=True)[1]
    inbox = Inbox(clients.channel(node), name)
    inbox.wait(1)
    method, by_consume, _ = inbox.got[0]
    assert by_get.__dict__ == by_consume.__dict__ == sent.__dict__
    assert (method.exchange, method.routing_key) == ("", name)


@pytest.mark.parametrize(("asking", "answering"), [(1, 2), (2, 1), (3, 3), (1, 3)])
def test_direct_replies(clients: Clients, name: str, asking: int, answering: int) -> None:
    """The one who asks and the one who answers are on different nodes, the queue on a third."""
    clients.channel(2).queue_declare(name)
    client = clients.channel(asking)
    replies = Inbox(client, "amq.rabbitmq.reply-to", auto_ack=True)
    server = clients.confirming(answering)
    questions = Inbox(server, name, auto_ack=True)
    for i in range(20):
        properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id=str(i))
        client.basic_publish("", name, b"question %d" % i, properties)
    questions.wait(20)
    for _, properties, body in questions.got:
        assert server.queue_declare(properties.reply_to, passive=True).method.consumer_count == 1
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        server.basic_publish("", properties.reply_to, b"re: " + body, reply)
    assert replies.wait(20) == [b"re: question %d" % i for i in range(20)]
    assert [p.correlation_id for _, p, _ in replies.got] == [str(i) for i in range(20)]
    address = questions.got[0][1].reply_to
    client.connection.close()
    server.basic_publish("", address, b"nobody is there")
    refused(404, "no queue", lambda: server.queue_declare(address, passive=True))


def test_a_policy_of_another_node_governs_at_once(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    clients.channel(2).queue_declare(name)
    cluster.ctl(1, "set_policy", name, f"^{name}$", '{"max-length":3}', "--apply-to", "queues")
    channel = clients.confirming(3)
    for i in range(10):
        channel.basic_publish("", name, b"%d" % i)
    assert drain(channel, name) == [b"7", b"8", b"9"]
    cluster.ctl(3, "clear_policy", name)
    for i in range(5):
        channel.basic_publish("", name, b"%d" % i)
    assert len(drain(channel, name)) == 5
