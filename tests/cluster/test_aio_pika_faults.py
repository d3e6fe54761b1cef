"""aio-pika while nodes are restarted, killed and cut off: those who use others notice nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aio_pika
import pytest
from cluster_clients import NODES, SOON_S

from warren.testing import Cluster


def run(work: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(work, 5 * SOON_S)

    return asyncio.run(bounded())


async def until(look: Callable[[], object], what: str) -> None:
    for _ in range(int(SOON_S / 0.02)):
        if look():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(what)


def persistent(body: bytes) -> aio_pika.Message:
    return aio_pika.Message(body, delivery_mode=2)


class Load:
    """All that a client does, from one node with a queue of another, until it is stopped."""

    def __init__(self, cluster: Cluster, queue: str, node: int) -> None:
        self._cluster, self._queue, self._node = cluster, queue, node
        self._is_over = False
        self.rounds = 0
        self.confirmed: list[bytes] = []
        self.got: list[bytes] = []
        self._task = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        async with await aio_pika.connect(self._cluster.url(self._node)) as connection:
            channel = await connection.channel()
            await channel.set_qos(10)
            queue = await channel.get_queue(self._queue)
            tag = await queue.consume(self._on_message)
            exchange = await channel.declare_exchange(f"{self._queue}.x", durable=True)
            while not self._is_over:
                body = b"%d" % self.rounds
                key = f"k{self.rounds}"
                await queue.bind(exchange, key)
                await exchange.publish(persistent(body), key, mandatory=True)
                self.confirmed.append(body)
                await queue.unbind(exchange, key)
                await queue.declare()
                # One that comes and goes, on the same node.
                brief = await channel.declare_queue(f"{self._queue}.b{self.rounds}", durable=True)
                await brief.delete()
                self.rounds += 1
            await until(lambda: len(self.got) >= len(self.confirmed), "what was confirmed comes")
            await queue.cancel(tag)

    async def _on_message(self, message: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with message.process():
            self.got.append(message.body)

    async def wait(self, rounds: int) -> None:
        """Until it has gone round so often, or has failed."""
        await until(lambda: self.rounds >= rounds or self._task.done(), "the load goes on")

    async def finish(self) -> None:
        self._is_over = True
        await self._task
        assert self.got == self.confirmed


async def declare(cluster: Cluster, home: int, queue: str) -> None:
    async with await aio_pika.connect(cluster.url(home)) as connection:
        await (await connection.channel()).declare_queue(queue, durable=True)


@pytest.mark.timeout(240)
def test_a_rolling_restart(cluster: Cluster, name: str) -> None:
    """Queues of both other nodes, used from both, never fail while one is away."""

    async def main() -> None:
        for home in NODES:
            await declare(cluster, home, f"{name}.{home}")
        for node in NODES:
            near, far = [other for other in NODES if other != node]
            loads = [Load(cluster, f"{name}.{near}", far), Load(cluster, f"{name}.{far}", far)]
            for load in loads:
                await load.wait(5)
            await asyncio.to_thread(cluster.stop, node)
            for load in loads:
                await load.wait(load.rounds + 5)
            await asyncio.to_thread(cluster.start, node)
            await asyncio.to_thread(cluster.wait_until_ready)
            for load in loads:
                await load.wait(load.rounds + 5)
                await load.finish()

    run(main())


@contextlib.asynccontextmanager
async def connected(cluster: Cluster, node: int) -> AsyncIterator[Any]:
    async with await aio_pika.connect(cluster.url(node)) as connection:
        yield await connection.channel()


@pytest.mark.parametrize("dead", NODES)
def test_a_killed_node(cluster: Cluster, name: str, dead: int) -> None:
    """Its queue is refused with the reason, and is back with all that was confirmed."""
    near, far = [node for node in NODES if node != dead]

    async def main() -> None:
        for home in (dead, far):
            await declare(cluster, home, f"{name}.{home}")
        async with connected(cluster, near) as channel:
            for body in (b"1", b"2"):
                await channel.default_exchange.publish(persistent(body), f"{name}.{dead}")
            load = Load(cluster, f"{name}.{far}", near)
            await load.wait(3)
            await asyncio.to_thread(cluster.kill, dead)
            await load.wait(load.rounds + 10)
            with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity, match="is down or inacc"):
                await channel.get_queue(f"{name}.{dead}")
        await asyncio.to_thread(cluster.start, dead)
        await asyncio.to_thread(cluster.wait_until_ready)
        await load.wait(load.rounds + 3)
        await load.finish()
        async with connected(cluster, near) as channel:
            queue = await channel.get_queue(f"{name}.{dead}")
            got = [(await queue.get(no_ack=True, timeout=SOON_S)).body for _ in range(2)]
            assert got == [b"1", b"2"]

    run(main())


def test_all_are_killed(cluster: Cluster, name: str) -> None:
    """What is durable is back, what is not is gone, also bindings between the two."""

    async def before() -> None:
        async with connected(cluster, 1) as channel:
            durable = await channel.declare_queue(name, durable=True)
            await channel.declare_queue(f"{name}.t")
            kept = await channel.declare_exchange(f"{name}.d", "fanout", durable=True)
            gone = await channel.declare_exchange(f"{name}.x", "fanout")
            await durable.bind(kept)
            await durable.bind(gone)
            await kept.publish(persistent(b"kept"), "")

    async def after() -> None:
        for node in NODES:
            for act in (
                lambda channel: channel.get_exchange(f"{name}.x"),
                lambda channel: channel.get_queue(f"{name}.t"),
            ):
                async with connected(cluster, node) as channel:
                    with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
                        await act(channel)
        async with connected(cluster, 3) as channel:
            # A new one of that name has no bindings of the old one's.
            made = await channel.declare_exchange(f"{name}.x", "fanout")
            await made.publish(persistent(b"nowhere"), "", mandatory=False)
            await (await channel.get_exchange(f"{name}.d")).publish(persistent(b"again"), "")
            queue = await channel.get_queue(name)
            got = [(await queue.get(no_ack=True, timeout=SOON_S)).body for _ in range(2)]
            assert got == [b"kept", b"again"]

    run(before())
    for node in NODES:
        cluster.kill(node)
    cluster.start_all()
    cluster.wait_until_ready()
    run(after())
