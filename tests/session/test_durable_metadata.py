"""What clients declare and delete, as the log of a broker that keeps metadata sees it."""

from __future__ import annotations

import pytest
from pair import Client, fill, make_bare_engine

from warren.engine.metadata import MetadataKeeper
from warren.engine.metadata_format import unpack


class Log:
    """A broker, and its records as lines."""

    def __init__(self) -> None:
        self.engine = make_bare_engine()
        self.records: list[bytes] = []
        self.keeper = MetadataKeeper(self.engine, self.records.append)
        self.keeper.attach()
        fill(self.engine)
        self.records.clear()

    def lines(self) -> list[str]:
        found = [
            "; ".join(f"{'-' if c.value is None else '+'} {c}" for c in unpack(record)[1])
            for record in self.records
        ]
        self.records.clear()
        return found


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def client(log: Log) -> Client:
    return Client(log.engine, channels=1)


def test_declarations(log: Log, client: Client) -> None:
    client.call(1, "queue.declare", 0, "q", durable=True)
    client.call(1, "queue.declare", 0, "q", durable=True)
    client.call(1, "queue.declare", 0, "transient")
    client.call(1, "queue.declare", 0, "own", durable=True, exclusive=True)
    client.call(1, "exchange.declare", 0, "e", "topic", durable=True)
    client.call(1, "queue.bind", 0, "q", "e", "a.*")
    client.call(1, "queue.bind", 0, "own", "e", "a.*")
    client.call(1, "exchange.bind", 0, "e", "amq.fanout", "")
    assert log.lines() == [
        "+ queue '/', 'q'",
        "+ exchange '/', 'e'",
        "+ binding '/', 'e', 'queue', 'q'",
        "+ binding '/', 'amq.fanout', 'exchange', 'e'",
    ]
    client.call(1, "queue.unbind", 0, "q", "e", "a.*")
    client.call(1, "queue.unbind", 0, "q", "e", "a.*")
    client.call(1, "exchange.delete", 0, "e")
    client.call(1, "queue.delete", 0, "q")
    client.hang_up()
    assert log.lines() == [
        "- binding '/', 'e', 'queue', 'q'",
        "- exchange '/', 'e'",
        "- queue '/', 'q'",
    ]


def test_a_refused_declaration_leaves_nothing(log: Log, client: Client) -> None:
    answer = client.call(
        1, "queue.declare", 0, "q", durable=True, arguments={"x-max-priority": 1000}
    )
    assert answer.name == "channel.close"
    assert log.lines() == []


def test_an_auto_delete_queue_goes_with_its_last_consumer(log: Log, client: Client) -> None:
    client.call(1, "queue.declare", 0, "q", durable=True, auto_delete=True)
    client.call(1, "exchange.declare", 0, "e", "direct", durable=True, auto_delete=True)
    client.call(1, "queue.bind", 0, "q", "e", "k")
    client.call(1, "basic.consume", 0, "q", "tag")
    log.lines()
    client.hang_up()
    assert log.lines() == ["- queue '/', 'q'; - exchange '/', 'e'"]


def test_deleting_a_virtual_host_under_a_consumer(log: Log, client: Client) -> None:
    client.call(1, "queue.declare", 0, "q", durable=True, auto_delete=True)
    client.call(1, "basic.consume", 0, "q", "tag")
    log.lines()
    log.engine.delete_vhost("/")
    # The queue goes with it, not once more with its consumer.
    assert log.lines() == ["- vhost '/'"]
    client.hang_up()
    assert log.lines() == []


def test_names_with_any_octets_come_back(log: Log, client: Client) -> None:
    client.call(1, "queue.declare", 0, "q", durable=True)
    client.call(1, "queue.bind", 0, "q", "amq.topic", "k\udcff", arguments={"x\udcff": b"\xff"})
    again = make_bare_engine()
    MetadataKeeper(again, print).load(log.keeper.snapshot())
    before = log.engine.vhosts["/"].exchanges["amq.topic"].bindings()
    assert before[0].routing_key == b"k\xff"
    assert again.vhosts["/"].exchanges["amq.topic"].bindings() == before
