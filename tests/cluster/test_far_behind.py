"""A node that was away for so long that it gets an image of the definitions, not their changes."""

from __future__ import annotations

import asyncio

import aiormq
import pika
from cluster_clients import Clients, counts, drain, is_gone

from warren.testing import Cluster

#: Enough for the others to drop the changes that the node has missed: more than they keep, and
#: more bytes than they keep before they make an image.
CHANGES = 1300
CHANGE_BYTES = 32_000
WORKERS = 8
PERSISTENT = pika.BasicProperties(delivery_mode=2)


async def change_much(urls: list[str], name: str) -> None:
    """Bindings come and go."""

    async def work(number: int) -> None:
        connection = await aiormq.connect(urls[number % len(urls)])
        channel = await connection.channel()
        queue = (await channel.queue_declare(f"{name}.w{number}", durable=True)).queue
        assert queue is not None
        for i in range(CHANGES // WORKERS // 2):
            arguments = {"k": f"{i:09}" + "x" * CHANGE_BYTES}
            await channel.queue_bind(queue, "amq.headers", arguments=arguments)  # type: ignore[arg-type]
            if i:
                await channel.queue_unbind(queue, "amq.headers", arguments=arguments)  # type: ignore[arg-type]
        await connection.close()

    await asyncio.gather(*(work(number) for number in range(WORKERS)))


def test_a_node_that_was_away_for_long(cluster: Cluster, clients: Clients, name: str) -> None:
    bodies = [b"%d" % i for i in range(100)]
    one = clients.confirming(1)
    for home in (1, 3):
        for i in range(3):
            clients.channel(home).queue_declare(f"{name}.{home}.{i}", durable=True)
    for body in bodies:
        one.basic_publish("", f"{name}.3.0", body, PERSISTENT)
    one.queue_bind(f"{name}.3.0", "amq.fanout")
    one.queue_bind(f"{name}.1.0", "amq.fanout")
    cluster.ctl(1, "add_user", name, name)
    cluster.kill(3)

    one.queue_delete(f"{name}.1.1")
    one.queue_delete(f"{name}.1.2")
    clients.channel(2).queue_declare(f"{name}.1.2", durable=True, arguments={"x-max-length": 7})
    one.queue_unbind(f"{name}.1.0", "amq.fanout")
    one.exchange_declare(name, "topic", durable=True)
    cluster.ctl(1, "delete_user", name)
    cluster.ctl(1, "set_policy", name, f"^{name}", '{"max-length":1000}')
    asyncio.run(change_much([cluster.url(1), cluster.url(2)], name))

    cluster.start(3)
    cluster.wait_until_ready()
    assert "all definitions were taken over" in cluster.log(3)
    three = clients.confirming(3)
    assert is_gone(clients.channel(3), f"{name}.1.1")
    arguments = {"x-max-length": 7}
    assert three.queue_declare(f"{name}.1.2", durable=True, arguments=arguments)
    three.exchange_declare(name, "topic", durable=True)
    assert name not in cluster.ctl(3, "list_users")
    assert cluster.ctl(3, "list_policies") == cluster.ctl(1, "list_policies")
    rows = [sorted(cluster.ctl(n, "list_bindings").splitlines()) for n in (1, 2, 3)]
    assert rows[0] == rows[1] == rows[2]
    three.basic_publish("amq.fanout", "", b"last", PERSISTENT, mandatory=True)
    assert counts(one, f"{name}.1.0") == (0, 0)
    assert drain(one, f"{name}.3.0") == [*bodies, b"last"]
    for i in (1, 2):
        three.basic_publish("", f"{name}.3.{i}", b"x", PERSISTENT, mandatory=True)
        one.basic_publish("", f"{name}.3.{i}", b"y", PERSISTENT, mandatory=True)
        assert drain(clients.channel(2), f"{name}.3.{i}") == [b"x", b"y"]

    cluster.kill(3)
    cluster.start(3)
    cluster.wait_until_ready()
    assert counts(one, f"{name}.3.0") == (0, 0)
    assert sorted(cluster.ctl(3, "list_bindings").splitlines()) == rows[0]
