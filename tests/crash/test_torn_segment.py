"""A kill between making a segment's file and writing its head: the next start takes its name."""

from __future__ import annotations

import asyncio
from pathlib import Path

from async_client import AsyncClient, Confirms
from broker_process import BrokerProcess

MESSAGES = 20
#: Longer than the upkeep waits before it deletes a segment that nobody needs.
UPKEEP_S = 1.6


async def publish(broker: BrokerProcess) -> None:
    client = await AsyncClient.connect(broker.host, broker.port)
    channel = await client.channel()
    await channel.call("queue.declare", queue="q", durable=True)
    await channel.call("confirm.select")
    confirms = Confirms(channel, lambda _: None)
    for _ in range(MESSAGES):
        channel.publish("", "q", {"delivery_mode": 2}, b"kept", mandatory=True)
        confirms.add(None)
    await confirms.fewer_than(1)


async def count(broker: BrokerProcess) -> int:
    client = await AsyncClient.connect(broker.host, broker.port)
    channel = await client.channel()
    found = await channel.call("queue.declare", queue="q", passive=True)
    return int(found["message_count"])


async def torn_start(base: Path) -> int:
    """Messages found after a start on a log with an empty segment, some publishes and a kill."""
    broker = BrokerProcess(base)
    try:
        await broker.start()
        await publish(broker)
        broker.kill()
        # A start that is killed leaves the name of the segment it would write, and nothing in it.
        before = set(broker.segments())
        await broker.start()
        await publish(broker)
        broker.kill()
        (newest,) = set(broker.segments()) - before
        newest.write_bytes(bytes(newest.stat().st_size))
        await broker.start()
        await publish(broker)
        await asyncio.sleep(UPKEEP_S)
        broker.kill()
        await broker.start()
        return await count(broker)
    finally:
        broker.end()


def test_a_segment_without_a_head_is_forgotten(tmp_path: Path) -> None:
    # The second lot was wiped out by the test itself.
    assert asyncio.run(torn_start(tmp_path)) == 2 * MESSAGES
