"""aio-pika across nodes: its patterns, and its connections that mend themselves."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest
from aio_pika.patterns import RPC
from cluster_clients import SOON_S

from warren.testing import Cluster


def test_publish_and_iterate(cluster: Cluster, name: str) -> None:
    async def main() -> list[bytes]:
        async with (
            await aio_pika.connect(cluster.url(1)) as one,
            await aio_pika.connect(cluster.url(2)) as two,
            await aio_pika.connect(cluster.url(3)) as three,
        ):
            queue = await (await two.channel()).declare_queue(name, durable=True)
            exchange = await (await one.channel()).declare_exchange(name, "topic")
            await queue.bind(name, "a.#")
            for i in range(200):
                message = aio_pika.Message(b"%d" % i, delivery_mode=2)
                await exchange.publish(message, "a.b")
            got = []
            channel = await three.channel()
            await channel.set_qos(10)
            async with (await channel.get_queue(name)).iterator(timeout=SOON_S) as messages:
                async for message in messages:
                    async with message.process():
                        got.append(message.body)
                    if len(got) == 200:
                        break
            return got

    assert asyncio.run(main()) == [b"%d" % i for i in range(200)]


@pytest.mark.parametrize(("asking", "answering"), [(1, 2), (3, 1)])
def test_rpc(cluster: Cluster, name: str, asking: int, answering: int) -> None:
    async def multiply(*, x: int, y: int) -> int:
        return x * y

    async def main() -> list[int]:
        async with (
            await aio_pika.connect(cluster.url(asking)) as client,
            await aio_pika.connect(cluster.url(answering)) as server,
        ):
            serving = await RPC.create(await server.channel())
            await serving.register(name, multiply, auto_delete=True)
            rpc = await RPC.create(await client.channel())
            calls = (rpc.call(name, kwargs={"x": i, "y": 3}) for i in range(30))
            return list(await asyncio.gather(*calls))

    assert asyncio.run(main()) == [3 * i for i in range(30)]


def test_a_consumer_that_mends_itself(cluster: Cluster, name: str) -> None:
    """Its queue's home is killed and comes back; then its own node."""

    async def until(got: list[bytes], count: int) -> None:
        for _ in range(int(SOON_S / 0.05)):
            if len(got) >= count:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"only {got}")

    async def restart(node: int) -> None:
        await asyncio.to_thread(cluster.kill, node)
        await asyncio.sleep(0.5)  # that it is away for a while, is all
        await asyncio.to_thread(cluster.start, node)
        await asyncio.to_thread(cluster.wait_until_ready)

    async def publish(body: bytes) -> None:
        async with await aio_pika.connect(cluster.url(3)) as connection:
            channel = await connection.channel()
            await channel.default_exchange.publish(aio_pika.Message(body, delivery_mode=2), name)

    async def main() -> list[bytes]:
        got: list[bytes] = []

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                got.append(message.body)

        async with await aio_pika.connect(cluster.url(2)) as owner:
            await (await owner.channel()).declare_queue(name, durable=True)
        connection = await aio_pika.connect_robust(cluster.url(1), reconnect_interval=0.2)
        async with connection:
            queue = await (await connection.channel()).get_queue(name)
            await queue.consume(on_message)
            await publish(b"1")
            await until(got, 1)
            await restart(1)
            await publish(b"2")
            await until(got, 2)
        return got

    assert asyncio.run(main()) == [b"1", b"2"]
