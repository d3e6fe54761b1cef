"""Everything a client does to a queue works alike on every node, wherever the queue's home is."""

from __future__ import annotations

import threading
from collections import Counter

import pika
import pytest
from cluster_clients import PAIRS, Clients, Inbox, counts, drain, eventually, refused, take

from warren.testing import Cluster

pairs = pytest.mark.parametrize(("node", "home"), PAIRS)


def homes_of(cluster: Cluster, prefix: str) -> dict[str, int]:
    """The numbers of the nodes that the queues with a prefix are on."""
    rows = cluster.ctl(1, "list_queues", "name", "node", "--quiet").splitlines()
    found = dict(row.split("\t") for row in rows if "\t" in row)
    numbers = {node: number for number, node in enumerate(cluster.nodes, start=1)}
    # The first row names the columns.
    found.pop("name", None)
    return {queue: numbers[node] for queue, node in found.items() if queue.startswith(prefix)}


@pairs
def test_publish_get_purge_delete(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name, durable=True)
    channel = clients.confirming(node)
    assert counts(channel, name) == (0, 0)
    for i in range(5):
        channel.basic_publish("", name, b"%d" % i, mandatory=True)
    assert counts(channel, name) == (5, 0)

    method, _, body = channel.basic_get(name)
    assert (body, method.redelivered, method.message_count) == (b"0", False, 4)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = channel.basic_get(name)
    assert (body, method.redelivered, method.message_count) == (b"0", True, 4)
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, _, body = channel.basic_get(name)
    assert body == b"1"
    channel.basic_ack(method.delivery_tag)
    assert counts(channel, name) == (3, 0)

    refused(406, "not empty", lambda: channel.queue_delete(name, if_empty=True))
    channel = clients.channel(node)
    assert channel.queue_purge(name).method.message_count == 3
    inbox = Inbox(clients.channel(home), name)
    refused(406, "in use", lambda: channel.queue_delete(name, if_unused=True))
    channel = clients.channel(node)
    channel.basic_publish("", name, b"last")
    assert inbox.wait(1) == [b"last"]
    assert channel.queue_delete(name).method.message_count == 0
    inbox.wait_cancelled()
    refused(404, "no queue", lambda: counts(channel, name))


@pairs
def test_delete_counts_what_was_in_it(clients: Clients, name: str, node: int, home: int) -> None:
    channel = clients.confirming(node)
    clients.channel(home).queue_declare(name)
    for _ in range(3):
        channel.basic_publish("", name, b"x")
    assert channel.queue_delete(name).method.message_count == 3
    assert channel.queue_delete(name).method.message_count == 0


@pairs
def test_consume_with_all_settlements(clients: Clients, name: str, node: int, home: int) -> None:
    clients.channel(home).queue_declare(name)
    channel = clients.channel(node)
    inbox = Inbox(channel, name)
    assert counts(clients.channel(home), name) == (0, 1)
    publisher = clients.channel(1)
    for i in range(6):
        publisher.basic_publish("", name, b"%d" % i)
    assert inbox.wait(6) == [b"%d" % i for i in range(6)]
    tags = [method.delivery_tag for method, _, _ in inbox.got]
    channel.basic_ack(tags[1], multiple=True)
    channel.basic_nack(tags[3], multiple=True, requeue=True)
    channel.basic_reject(tags[4], requeue=False)
    again = inbox.wait(8)[6:]
    assert again == [b"2", b"3"]
    assert [method.redelivered for method, _, _ in inbox.got] == [False] * 6 + [True] * 2
    channel.basic_cancel(inbox.tag)
    channel.close()
    looking = clients.channel(home)
    eventually(lambda: counts(looking, name), (3, 0))
    found = drain(looking, name)
    assert found == [b"2", b"3", b"5"]


@pairs
def test_bindings_of_all_kinds(clients: Clients, name: str, node: int, home: int) -> None:
    channel = clients.confirming(node)
    clients.channel(home).queue_declare(name)
    for kind in ("fanout", "topic", "headers", "direct"):
        channel.exchange_declare(f"{name}.{kind}", kind)
    channel.queue_bind(name, f"{name}.fanout")
    channel.queue_bind(name, f"{name}.topic", "a.*.#")
    channel.queue_bind(name, f"{name}.headers", arguments={"x-match": "all", "k": 1})
    channel.exchange_bind(f"{name}.fanout", f"{name}.direct", "through")
    other = clients.confirming(home)
    publishes = [("fanout", "", {}), ("topic", "a.b.c", {}), ("headers", "", {"k": 1})]
    publishes.append(("direct", "through", {}))
    for number, (kind, key, headers) in enumerate(publishes):
        for publisher in (channel, other):
            properties = pika.BasicProperties(headers=headers)
            body = b"%d" % number
            publisher.basic_publish(f"{name}.{kind}", key, body, properties, mandatory=True)
    assert drain(channel, name) == [b"0", b"0", b"1", b"1", b"2", b"2", b"3", b"3"]
    for kind, key in (("topic", "b"), ("headers", ""), ("direct", "elsewhere")):
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(f"{name}.{kind}", key, b"", mandatory=True)
    other.queue_unbind(name, f"{name}.fanout")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(f"{name}.fanout", "", b"", mandatory=True)
    other.exchange_delete(f"{name}.topic")
    refused(404, "no exchange", lambda: channel.exchange_declare(f"{name}.topic", passive=True))


def test_one_message_for_queues_on_all_nodes(clients: Clients, name: str) -> None:
    channel = clients.confirming(1)
    channel.exchange_declare(name, "fanout")
    for home in (1, 2, 3):
        for i in range(2):
            clients.channel(home).queue_declare(f"{name}.{home}.{i}")
            channel.queue_bind(f"{name}.{home}.{i}", name)
    channel.basic_publish(name, "", b"all", mandatory=True)
    for home in (1, 2, 3):
        for i in range(2):
            assert drain(clients.channel(2), f"{name}.{home}.{i}") == [b"all"]


def at_once(actions: list[object]) -> list[object]:
    """Runs actions in threads that start together; their results or errors."""
    outcomes: list[object] = [None] * len(actions)
    gate = threading.Barrier(len(actions))

    def run(number: int) -> None:
        gate.wait()
        try:
            outcomes[number] = actions[number]()  # type: ignore[operator]
        except Exception as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_the_same_name_at_the_same_moment(clients: Clients, name: str) -> None:
    channels = [clients.channel(node) for node in (1, 2, 3)]
    for i in range(30):
        queue = f"{name}.{i}"
        outcomes = at_once([lambda c=c, q=queue: c.queue_declare(q) for c in channels])
        assert all(isinstance(outcome, pika.frame.Method) for outcome in outcomes), outcomes
        channels[0].basic_publish("", queue, b"one")
        assert [take(channels[2], queue)] == [b"one"]


def test_others_of_the_same_name_at_the_same_moment(clients: Clients, name: str) -> None:
    for i in range(10):
        queue = f"{name}.{i}"
        channels = [clients.channel(node) for node in (1, 2, 3)]
        outcomes = at_once(
            [
                lambda c=c, q=queue, n=n: c.queue_declare(q, arguments={"x-max-length": n})
                for n, c in enumerate(channels, start=1)
            ]
        )
        errors = [one for one in outcomes if isinstance(one, Exception)]
        assert len(errors) == 2, outcomes
        for error in errors:
            assert isinstance(error, pika.exceptions.ChannelClosedByBroker)
            assert error.reply_code == 406
        for channel in channels:
            channel.connection.close()


def test_a_queue_that_differs_is_refused_everywhere(clients: Clients, name: str) -> None:
    clients.channel(2).queue_declare(name, durable=True)
    for node in (1, 2, 3):
        channel = clients.channel(node)
        refused(406, "inequivalent arg 'durable'", lambda c=channel: c.queue_declare(name))


def test_names_made_by_the_broker(clients: Clients) -> None:
    made = {clients.channel(node).queue_declare("").method.queue for node in (1, 2, 3)}
    assert len(made) == 3
    for queue in made:
        assert counts(clients.channel(1), queue) == (0, 0)


def test_where_queues_are_put_by_argument(cluster: Cluster, clients: Clients, name: str) -> None:
    for node in (1, 2, 3):
        arguments = {"x-queue-master-locator": "client-local"}
        clients.channel(node).queue_declare(f"{name}.here.{node}", arguments=arguments)
    assert homes_of(cluster, f"{name}.here") == {f"{name}.here.{node}": node for node in (1, 2, 3)}
    channel = clients.channel(1)
    for i in range(30):
        arguments = {"x-queue-master-locator": "random"}
        channel.queue_declare(f"{name}.random.{i}", arguments=arguments)
    assert set(homes_of(cluster, f"{name}.random").values()) == {1, 2, 3}
    refused(
        406,
        "queue-master-locator",
        lambda: channel.queue_declare(name, arguments={"x-queue-master-locator": "nowhere"}),
    )


def test_where_queues_are_put_by_policy(cluster: Cluster, clients: Clients, name: str) -> None:
    pattern = f"^{name}\\."
    cluster.ctl(3, "set_policy", name, pattern, '{"queue-master-locator":"min-masters"}')
    channel = clients.channel(1)
    for i in range(60):
        channel.queue_declare(f"{name}.{i}")
    per_node = Counter(homes_of(cluster, "").values())
    assert max(per_node.values()) - min(per_node.values()) <= 1, per_node
    cluster.ctl(3, "clear_policy", name)


def test_where_queues_are_put_by_configuration() -> None:
    pair = Cluster(2, config={"queue_master_locator": "min-masters"})
    with pair as cluster, Clients(cluster) as clients:
        channel = clients.channel(1)
        for i in range(6):
            channel.queue_declare(f"q{i}")
        channel.queue_declare("mine", exclusive=True)
        local = {"x-queue-master-locator": "client-local"}
        clients.channel(2).queue_declare("local", arguments=local)
        homes = homes_of(cluster, "")
    assert Counter(homes[f"q{i}"] for i in range(6)) == {1: 3, 2: 3}
    assert (homes["mine"], homes["local"]) == (1, 2)
