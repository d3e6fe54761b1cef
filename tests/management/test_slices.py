"""Long answers stay off the message path: the loop is never kept from its clients for long.

What counts is the processor time of the broker's thread between two turns of its loop, which other
programs on the machine do not change.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pika
import pyarrow as pa
import pytest

from management.api import Api
from warren.management.pace import ALONE_SLICE_S, CALM_SLICE_S, LIST_SLICE_S
from warren.model.queue_arguments import QueueDeclaration
from warren.node.node import Node
from warren.spark.blocks import Block, from_batch
from warren.spark.client import Client
from warren.spark.options import read_options
from warren.testing.broker import Broker

QUEUES = 10_000
#: How long a turn of the loop may be while a list is made. The interpreter collects its garbage now
#: and then, which takes longer the more objects there are: so many turns may be longer.
TURN_MS, LONGER_TURNS_MAX = 10.0, 2
#: What a list works at a time.
SLICE_MS = LIST_SLICE_S * 1000
#: So many rows are some blocks; and what is worked at a time while a client is there, and alone.
ROWS, BLOCK_SLICE_MS, ALONE_SLICE_MS = 60_000, CALM_SLICE_S * 1000, ALONE_SLICE_S * 1000


@pytest.fixture(scope="module")
def crowded() -> Iterator[Broker]:
    def declare(node: Node) -> None:
        vhost = node.engine.vhost("/")
        for number in range(QUEUES):
            node.engine.add_queue(vhost, f"q.{number:05}", QueueDeclaration(True), None)

    with Broker(http=True) as broker:
        broker.call(declare)
        yield broker


class Turns:
    """Takes the processor time of every turn of the broker's loop while it is open."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._open = True
        self.times_ms: list[float] = []

    def __enter__(self) -> Turns:
        self._broker.call(lambda _: self._tick(time.thread_time()))
        return self

    def _tick(self, before_s: float) -> None:
        import asyncio

        now_s = time.thread_time()
        self.times_ms.append((now_s - before_s) * 1000)
        if self._open:
            asyncio.get_running_loop().call_soon(self._tick, now_s)

    def __exit__(self, *_: object) -> None:
        self._open = False
        self.times_ms.sort()


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("/queues", QUEUES),
        ("/queues/%2F?sort=messages&sort_reverse=true&columns=name", QUEUES),
        ("/bindings", QUEUES),
        ("/definitions", None),
        ("/overview", None),
    ],
)
def test_no_turn_is_long(crowded: Broker, path: str, count: int | None) -> None:
    api = Api(crowded.http_url)
    api.get("/whoami")
    with Turns(crowded) as turns:
        found = api.get(path)
    if count is not None:
        assert len(found) == count
    longer = [time_ms for time_ms in turns.times_ms if time_ms > TURN_MS]
    assert len(longer) <= LONGER_TURNS_MAX, longer


def test_a_list_is_made_in_short_slices(crowded: Broker) -> None:
    """Shorter than what a publish takes anyway, nearly all of them."""
    api = Api(crowded.http_url)
    api.get("/whoami")
    with Turns(crowded) as turns:
        assert len(api.get("/queues")) == QUEUES
    slices = [time_ms for time_ms in turns.times_ms if time_ms > SLICE_MS / 2]
    assert len(slices) > 300
    assert slices[int(len(slices) * 0.95)] < SLICE_MS * 4


def test_a_long_list_is_whole(crowded: Broker) -> None:
    answer = Api(crowded.http_url)("GET", "/api/queues", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    import gzip

    names = [row["name"] for row in json.loads(gzip.decompress(answer.body))]
    assert names == [f"q.{number:05}" for number in range(QUEUES)]


def test_pages_of_a_long_list(crowded: Broker) -> None:
    page = Api(crowded.http_url).get("/queues?page=100&page_size=100&columns=name")
    assert page["items"][-1] == {"name": "q.09999"}
    assert (page["page_count"], page["total_count"]) == (100, QUEUES)


def check_slices(turns: Turns, slice_ms: float, factors: tuple[int, int]) -> None:
    """Half of the slices, and nine of ten, are no longer than so many times what is meant."""
    slices = [time_ms for time_ms in turns.times_ms if time_ms > slice_ms / 2]
    assert len(slices) > 10
    assert slices[len(slices) // 2] < slice_ms * factors[0]
    assert slices[int(len(slices) * 0.9)] < slice_ms * factors[1]


@contextmanager
def publishing(url: str) -> Iterator[None]:
    """A client that publishes, message by message, for as long as the block lasts."""
    over = threading.Event()

    def publish() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        channel.queue_declare("beside", durable=True)
        channel.confirm_delivery()
        while not over.is_set():
            channel.basic_publish("", "beside", b"x" * 200, pika.BasicProperties(delivery_mode=2))
        connection.close()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("is_alone", [False, True])
def test_ranges_are_read_and_trimmed_in_short_slices(tmp_path: Path, is_alone: bool) -> None:
    """Shorter than what a publish takes that meets nobody; no longer than that when nobody is there
    to publish."""
    slice_ms, factors = (ALONE_SLICE_MS, (2, 3)) if is_alone else (BLOCK_SLICE_MS, (3, 8))
    with Broker(http=True, data_dir=tmp_path) as broker:
        client = Client(read_options({"endpoints": broker.http_url}))
        broker.call(
            lambda node: node.engine.add_queue(
                node.engine.vhost("/"), "long", QueueDeclaration(True), None
            )
        )
        bodies = ["x" * 200] * ROWS
        rows = {"exchange": [""] * ROWS, "routing_key": ["long"] * ROWS, "body": bodies}
        told = client.stage("p", 1, "0", "0", from_batch(pa.RecordBatch.from_pydict(rows)))
        client.commit("p", 1, [["0", "0", told["staged"]]])
        cursor = client.open_cursor("long", "c", {"mode": "drain"})
        read = 0
        with nullcontext() if is_alone else publishing(broker.url):
            time.sleep(0.2)
            with Turns(broker) as turns:
                while read < ROWS:
                    read = Block(client.read_range("long", {"from": read, "to": ROWS})).end
            check_slices(turns, slice_ms, factors)
            with Turns(broker) as turns:
                client.trim("long", "c", {"token": cursor["token"], "upto": ROWS})
            check_slices(turns, slice_ms, factors)
