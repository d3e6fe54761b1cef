"""Well-formed frames with values that only an enemy, or a broken client, would send."""

from __future__ import annotations

from typing import Any

import pytest
from pair import Client, make_engine, method, publish

from warren.wire.tables import LongBytes


@pytest.fixture
def client() -> Client:
    return Client(make_engine(), channels=1)


def get_headers(client: Client, queue: str) -> dict[str, Any]:
    from warren.wire.properties import decode_properties

    found = client.exchange(method(1, "basic.get", 0, queue, True))
    assert found[0].name == "basic.get-ok"
    headers: dict[str, Any] = decode_properties(found[1].payload)["headers"]
    return headers


def test_carbon_copies_need_not_be_utf8(client: Client) -> None:
    client.call(1, "queue.declare", 0, "q")
    client.call(1, "queue.bind", 0, "q", "amq.topic", "#")
    headers = {"CC": [LongBytes(b"\xff\xfe"), b"raw", "text"]}
    assert client.exchange(publish(1, "amq.topic", "key", headers=headers)) == []
    assert client.engine.vhosts["/"].queues["q"].ready == 1


@pytest.mark.parametrize("delay", ["²", "--7", "9" * 5000, 2**62, -1, None, True, 1.5, [], ""])
def test_nonsense_delays_are_none(client: Client, delay: object) -> None:
    arguments = {"x-delayed-type": "fanout"}
    client.call(1, "exchange.declare", 0, "later", "x-delayed-message", arguments=arguments)
    client.call(1, "queue.declare", 0, "q")
    client.call(1, "queue.bind", 0, "q", "later", "")
    assert client.exchange(publish(1, "later", "", headers={"x-delay": delay})) == []
    assert client.engine.vhosts["/"].queues["q"].ready == 1
    assert client.engine.delayed_messages == 0


@pytest.mark.parametrize("count", [2**63 - 1, -5, "many", None, 1e300, [1], {}])
@pytest.mark.parametrize("queue", ["q", "elsewhere"])
def test_forged_histories_of_death(client: Client, count: object, queue: str) -> None:
    arguments = {"x-dead-letter-exchange": "amq.fanout"}
    client.call(1, "queue.declare", 0, "q", arguments=arguments)
    client.call(1, "queue.declare", 0, "dead")
    client.call(1, "queue.bind", 0, "dead", "amq.fanout", "")
    forged = [{"queue": queue, "reason": "rejected", "count": count}, 7]
    client.send(publish(1, "", "q", headers={"x-death": forged}))
    client.exchange(method(1, "basic.get", 0, "q"))
    assert client.exchange(method(1, "basic.reject", 1, False)) == []
    newest = get_headers(client, "dead")["x-death"][0]
    assert (newest["queue"], newest["reason"], newest["count"]) == ("q", "rejected", 1)


def test_dead_letter_routing_key_must_fit_a_short_string(client: Client) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k" * 256}
    close = client.call(1, "queue.declare", 0, "q", arguments=arguments)
    assert (close.name, close["reply_code"]) == ("channel.close", 406)
