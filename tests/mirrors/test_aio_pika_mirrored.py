"""Mirrored queues with aio-pika, whose connections mend themselves: of the acceptance list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from cluster_clients import NODES
from rings import await_ring, await_that, make_master, ring_of

from warren.testing import Cluster

LONG_S = 60.0
Result = TypeVar("Result")


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


def within(work: Coroutine[Any, Any, Result], seconds: float = 100.0) -> Result:
    """What it comes to; it must not take for ever."""
    return asyncio.run(asyncio.wait_for(work, seconds))


@asynccontextmanager
async def channel_to(cluster: Cluster, node: int) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    connection = await aio_pika.connect(cluster.url(node))
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def until(look: Callable[[], bool], within_s: float = LONG_S) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while not look():
        assert loop.time() < end_s
        await asyncio.sleep(0.02)


def persistent(body: bytes) -> aio_pika.Message:
    return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)


async def again(act: Callable[[], Awaitable[Result]], within_s: float = LONG_S) -> Result:
    """While a queue has no master it is refused: then once more."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while True:
        try:
            return await act()
        except aio_pika.exceptions.AMQPError:
            assert loop.time() < end_s
            await asyncio.sleep(0.1)


async def take_all(cluster: Cluster, node: int, queue: str) -> list[bytes]:
    """All that is in a queue now."""

    async def drain() -> list[bytes]:
        async with channel_to(cluster, node) as channel:
            taken = await channel.get_queue(queue)
            found = []
            while (message := await taken.get(fail=False)) is not None:
                await message.ack()
                found.append(message.body)
            return found

    return await again(drain)


@pytest.mark.parametrize("home", NODES)
def test_killed_right_after_the_confirm(cluster: Cluster, ha: str, home: int) -> None:
    """List B, 1."""

    async def main() -> list[bytes]:
        async with channel_to(cluster, home) as channel:
            await channel.declare_queue(ha, durable=True)
            await channel.default_exchange.publish(persistent(b"confirmed"), ha)
            await asyncio.to_thread(cluster.kill, home)
        return await take_all(cluster, home % 3 + 1, ha)

    assert within(main()) == [b"confirmed"]


class Reader:
    """A consumer on a robust connection that notes what comes and acknowledges it."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, bool]] = []

    async def on_message(self, message: AbstractIncomingMessage) -> None:
        self.got.append((message.body, bool(message.redelivered)))
        await message.ack()

    @property
    def firsts(self) -> list[bytes]:
        return list(dict.fromkeys(body for body, _ in self.got))

    @property
    def unflagged(self) -> list[bytes]:
        return [body for body, redelivered in self.got if not redelivered]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_publisher_and_consumer_on_other_nodes(cluster: Cluster, ha: str, how: str) -> None:
    """List B, 2: every publish is confirmed, all comes in order, what comes twice says so."""
    bodies = [b"%d" % i for i in range(3_000)]
    reader = Reader()

    async def publish_all(exchange: Any) -> None:
        for at in range(0, len(bodies), 100):
            await asyncio.gather(
                *(exchange.publish(persistent(body), ha) for body in bodies[at : at + 100])
            )

    async def main() -> None:
        async with channel_to(cluster, 1) as channel:
            await channel.declare_queue(ha, durable=True)
        await asyncio.to_thread(await_ring, cluster, ha, master=1, synchronised=NODES)
        consuming = await aio_pika.connect_robust(cluster.url(2), reconnect_interval=0.2)
        publishing = await aio_pika.connect_robust(cluster.url(3), reconnect_interval=0.2)
        async with consuming, publishing:
            inward = await consuming.channel()
            await inward.set_qos(100)
            await (await inward.get_queue(ha)).consume(reader.on_message)
            outward = await publishing.channel()
            work = asyncio.create_task(publish_all(outward.default_exchange))
            await until(lambda: len(reader.got) > 500)
            await asyncio.to_thread(cluster.stop if how == "stop" else cluster.kill, 1)
            await work
            await until(lambda: len(reader.firsts) == len(bodies))

    within(main())
    assert reader.firsts == bodies
    assert len(reader.unflagged) == len(set(reader.unflagged))


def test_a_consumer_whose_own_node_dies(cluster: Cluster, ha: str) -> None:
    """Its connection mends itself when the node is back; meanwhile others publish and go on."""
    reader = Reader()

    async def main() -> None:
        async with channel_to(cluster, 2) as channel:
            await channel.declare_queue(ha, durable=True)
        await asyncio.to_thread(await_ring, cluster, ha, master=2, synchronised=NODES)
        consuming = await aio_pika.connect_robust(cluster.url(1), reconnect_interval=0.2)
        async with consuming, channel_to(cluster, 3) as channel:
            await (await (await consuming.channel()).get_queue(ha)).consume(reader.on_message)
            await channel.default_exchange.publish(persistent(b"before"), ha)
            await until(lambda: reader.firsts == [b"before"])
            await asyncio.to_thread(cluster.kill, 1)
            await channel.default_exchange.publish(persistent(b"meanwhile"), ha)
            await asyncio.to_thread(cluster.start, 1)
            await channel.default_exchange.publish(persistent(b"after"), ha)
            await until(lambda: len(reader.firsts) == 3)

    within(main())
    assert reader.firsts == [b"before", b"meanwhile", b"after"]


def test_what_is_not_acknowledged_comes_again(cluster: Cluster, ha: str) -> None:
    """Part A, 7: the consumer stays connected, and hears that it may have had it before."""
    got: list[tuple[bytes, bool | None]] = []

    async def on_message(message: AbstractIncomingMessage) -> None:
        got.append((message.body, message.redelivered))
        if message.redelivered:
            await message.ack()

    async def main() -> bool:
        async with channel_to(cluster, 2) as channel:
            await channel.declare_queue(ha, durable=True)
        await asyncio.to_thread(await_ring, cluster, ha, master=2, synchronised=NODES)
        async with channel_to(cluster, 1) as channel, channel_to(cluster, 3) as publishing:
            await (await channel.get_queue(ha)).consume(on_message)
            await publishing.default_exchange.publish(persistent(b"held"), ha)
            await until(lambda: len(got) == 1)
            await asyncio.to_thread(cluster.kill, 2)
            await until(lambda: len(got) == 2)
            return channel.is_closed

    assert within(main()) is False
    assert got == [(b"held", False), (b"held", True)]


def test_an_exclusive_queue_goes_with_its_node(cluster: Cluster, ha: str) -> None:
    """List B, 10."""

    async def main() -> None:
        connection = await aio_pika.connect(cluster.url(1))
        await (await connection.channel()).declare_queue(ha, exclusive=True)
        await asyncio.to_thread(cluster.kill, 1)
        await connection.close()
        await asyncio.to_thread(cluster.start, 1)
        await asyncio.to_thread(cluster.wait_until_ready)
        for node in NODES:
            async with channel_to(cluster, node) as channel:
                with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
                    await channel.declare_queue(ha, passive=True)

    within(main())
    assert ring_of(cluster, ha) is None


def test_a_full_queue_answers_once(cluster: Cluster, ha: str) -> None:
    """List B, 14: confirmed or refused, across a stop of the master; all that came was taken."""

    async def main() -> tuple[list[bytes], list[bytes], list[bytes]]:
        arguments: Any = {"x-max-length": 30, "x-overflow": "reject-publish"}
        async with channel_to(cluster, 1) as channel:
            await channel.declare_queue(ha, durable=True, arguments=arguments)
        await asyncio.to_thread(await_ring, cluster, ha, master=1, synchronised=NODES)
        accepted: list[bytes] = []
        refused: list[bytes] = []
        async with channel_to(cluster, 2) as channel:

            async def publish(body: bytes) -> None:
                try:
                    await channel.default_exchange.publish(persistent(body), ha)
                    accepted.append(body)
                except aio_pika.exceptions.DeliveryError:
                    refused.append(body)

            stopping = asyncio.create_task(asyncio.to_thread(cluster.stop, 1))
            for i in range(60):
                await publish(b"%d" % i)
            await stopping
        return accepted, refused, await take_all(cluster, 3, ha)

    accepted, refused, found = within(main())
    assert (len(accepted), len(refused)) == (30, 30)
    assert found == accepted


def test_everything_stops_and_comes_back(cluster: Cluster, ha: str) -> None:
    """List B, 16."""

    async def before() -> None:
        async with channel_to(cluster, 1) as channel:
            exchange = await channel.declare_exchange(ha, "topic", durable=True)
            queue = await channel.declare_queue(ha, durable=True)
            await queue.bind(exchange, "a.*")
            await exchange.publish(persistent(b"persistent"), "a.b")
            await exchange.publish(aio_pika.Message(b"transient"), "a.b")

    async def after() -> list[bytes]:
        async with channel_to(cluster, 3) as channel:
            exchange = await channel.get_exchange(ha)
            await again(lambda: exchange.publish(persistent(b"again"), "a.c"))
        return await take_all(cluster, 2, ha)

    within(before())
    for node in NODES:
        cluster.stop(node)
    cluster.start_all()
    cluster.wait_until_ready()
    assert within(after()) == [b"persistent", b"again"]


def test_queues_as_shards(cluster: Cluster, ha: str) -> None:
    """List B, 17: three masters on three nodes, clients that know one node only; one node dies."""
    shards = [f"{ha}.{node}" for node in NODES]
    readers = [Reader() for _ in shards]
    bodies = [b"%d" % i for i in range(300)]

    async def main() -> None:
        async with channel_to(cluster, 3) as channel:
            exchange = await channel.declare_exchange(ha, "x-consistent-hash", durable=True)
            for node, shard in zip(NODES, shards, strict=True):
                queue = await channel.declare_queue(shard, durable=True)
                await queue.bind(exchange, "1")
                await asyncio.to_thread(await_ring, cluster, shard, synchronised=NODES)
                await asyncio.to_thread(make_master, cluster, shard, node)
            for shard, reader in zip(shards, readers, strict=True):
                await (await channel.get_queue(shard)).consume(reader.on_message)
            for i, body in enumerate(bodies):
                if i == 150:
                    await asyncio.to_thread(cluster.kill, 1)
                await exchange.publish(persistent(body), body.decode())
            await until(lambda: sum(len(reader.firsts) for reader in readers) == len(bodies))

    within(main())
    assert sorted((body for it in readers for body in it.firsts), key=int) == bodies
    assert all(reader.firsts == sorted(reader.firsts, key=int) for reader in readers)
    others = cluster.nodes[1:]
    await_that(cluster, shards[0], lambda ring: ring.master in others, "another master")
