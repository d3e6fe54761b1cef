"""What is declared, bound, published and taken through the API."""

from __future__ import annotations

import base64
from typing import Any

import pika
import pytest

from management.api import Api, q
from warren.testing.broker import Broker

Channel = pika.adapters.blocking_connection.BlockingChannel


def test_queues(api: Api, vhost: str) -> None:
    place = f"/queues/{vhost}/q"
    assert api.put(place, {"durable": True, "arguments": {"x-max-length": 5}}) == 201
    assert api.put(place, {"durable": True, "arguments": {"x-max-length": 5}}) == 204
    shown = api.get(place)
    assert (shown["durable"], shown["arguments"], shown["type"]) == (
        True,
        {"x-max-length": 5},
        "classic",
    )
    status, error, reason = api.refusal("PUT", place, {"durable": False})
    assert (status, error) == (400, "bad_request")
    assert reason.startswith("inequivalent arg 'durable' for queue 'q' in vhost '/t-")
    assert reason.endswith("received 'false' but current is 'true'")
    assert api.delete(place) == 204
    assert api.delete(place) == 404


def test_queue_conditions(api: Api, vhost: str) -> None:
    place = f"/queues/{vhost}/q"
    api.put(place)
    publish(api, vhost, "q")
    assert api.refusal("DELETE", f"{place}?if-empty=true")[0] == 400
    assert api.delete(f"{place}/contents") == 204
    assert api.delete(f"{place}?if-empty=true&if-unused=true") == 204


def test_exchanges(api: Api, vhost: str) -> None:
    place = f"/exchanges/{vhost}/x"
    assert api.put(place, {}) == 201
    assert api.get(place)["type"] == "direct"
    assert api.get(place)["user_who_performed_action"] == "guest"
    refused = api.refusal("PUT", f"/exchanges/{vhost}/y", {"type": "zz"})
    assert refused == (400, "bad_request", "unknown exchange type 'zz'")
    api.put(f"/queues/{vhost}/q")
    api("POST", f"/api/bindings/{vhost}/e/x/q/q", {})
    assert api.refusal("DELETE", f"{place}?if-unused=true")[0] == 400
    assert api.delete(place) == 204
    assert api.delete(place) == 404
    assert api.refusal("DELETE", f"/exchanges/{vhost}/amq.topic")[0] == 401
    assert api.refusal("PUT", f"/exchanges/{vhost}/amq.mine", {})[0] == 401
    assert api.get(f"/exchanges/{vhost}/amq.default")["name"] == ""


def test_bindings(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q%2F1")
    pair = f"/bindings/{vhost}/e/amq.topic/q/q%2F1"
    answer = api("POST", f"/api{pair}", {"routing_key": "a.#", "arguments": {"k": 1}})
    assert (answer.status, answer.body) == (201, b"")
    location = answer.headers["location"]
    assert location.startswith("q%2F1/a.%2523~")
    (shown,) = api.get(pair)
    assert (shown["source"], shown["destination"], shown["routing_key"], shown["arguments"]) == (
        "amq.topic",
        "q/1",
        "a.#",
        {"k": 1},
    )
    one = f"/bindings/{vhost}/e/amq.topic/q/{location}"
    assert api.get(one) == shown
    assert api.get(f"{pair}/{q(shown['properties_key'])}") == shown
    assert api.get(f"/queues/{vhost}/q%2F1/bindings")[1] == shown
    assert api.get(f"/exchanges/{vhost}/amq.topic/bindings/source") == [shown]
    assert api.delete(one) == 204
    assert api.delete(one) == 404
    api("POST", f"/api{pair}", {})
    assert api.get(pair)[0]["properties_key"] == "~"
    assert api.delete(f"{pair}/~") == 204


def test_bindings_of_exchanges(api: Api, vhost: str) -> None:
    api.put(f"/exchanges/{vhost}/x", {"type": "fanout"})
    pair = f"/bindings/{vhost}/e/amq.topic/e/x"
    assert api("POST", f"/api{pair}", {"routing_key": "k"}).status == 201
    assert api.get(f"/exchanges/{vhost}/x/bindings/destination") == api.get(pair)
    assert api.delete(f"{pair}/k") == 204
    assert api.refusal("POST", f"/bindings/{vhost}/e/amq.topic/e/none", {})[0] == 404
    assert api.refusal("GET", f"/bindings/{vhost}/e/amq.topic/z/x")[0] == 404


def test_default_bindings(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    (shown,) = api.get(f"/bindings/{vhost}/e/amq.default/q/q")
    assert shown["properties_key"] == "q"
    assert api.refusal("DELETE", f"/bindings/{vhost}/e/amq.default/q/q/q")[0] == 400
    assert api.get(f"/exchanges/{vhost}/amq.default/bindings/source") == [shown]


def publish(api: Api, vhost: str, key: str, **more: Any) -> bool:
    body = {
        "routing_key": key,
        "payload": "hello",
        "payload_encoding": "string",
        "properties": {},
        **more,
    }
    routed: bool = api.post(f"/exchanges/{vhost}/amq.default/publish", body)["routed"]
    return routed


def take(api: Api, vhost: str, **more: Any) -> Any:
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", **more}
    return api.post(f"/queues/{vhost}/q/get", body)


def test_publish_and_get(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    properties = {"delivery_mode": 2, "headers": {"n": 1, "l": ["x", None]}, "timestamp": 5}
    assert publish(api, vhost, "q", properties=properties)
    assert not publish(api, vhost, "nobody")
    (found,) = take(api, vhost, ackmode="ack_requeue_true", truncate=3)
    assert found == {
        "payload_bytes": 5,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "message_count": 0,
        "properties": properties,
        "payload": "hel",
        "payload_encoding": "string",
    }
    (again,) = take(api, vhost)
    assert (again["redelivered"], again["payload"]) == (True, "hello")
    assert take(api, vhost) == []
    publish(api, vhost, "q")
    assert take(api, vhost)[0]["properties"] == []


def test_payloads(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    body = base64.b64encode(b"\xff\x00").decode()
    publish(api, vhost, "q", payload=body, payload_encoding="base64")
    (found,) = take(api, vhost, ackmode="reject_requeue_true")
    assert (found["payload"], found["payload_encoding"]) == (body, "base64")
    publish(api, vhost, "q", payload="äö")
    take(api, vhost)
    (cut,) = take(api, vhost, ackmode="reject_requeue_true", truncate=3)
    assert (cut["payload"], cut["payload_encoding"]) == ("ä", "string")
    (whole,) = take(api, vhost, encoding="base64")
    assert base64.b64decode(whole["payload"]).decode() == "äö"


def test_several_messages(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    for number in range(5):
        publish(api, vhost, "q", payload=str(number))
    found = take(api, vhost, count=3, ackmode="reject_requeue_true")
    assert [(row["payload"], row["message_count"]) for row in found] == [
        ("0", 4),
        ("1", 3),
        ("2", 2),
    ]
    assert [row["payload"] for row in take(api, vhost, count=99)] == list("01234")


def test_rejected_messages_are_dead_lettered(api: Api, vhost: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    api.put(f"/queues/{vhost}/q", {"arguments": arguments})
    api.put(f"/queues/{vhost}/dead")
    publish(api, vhost, "q")
    take(api, vhost, ackmode="reject_requeue_false")
    assert api.get(f"/queues/{vhost}/dead")["messages_ready"] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ackmode": "zz"}, "ackmode must be one of"),
        ({"encoding": "zz"}, "Unsupported encoding: zz"),
        ({"count": -1}, "count must be"),
        ({"count": "many"}, "count is of the wrong type"),
        ({"truncate": -1}, "count must be"),
    ],
)
def test_bad_gets(api: Api, vhost: str, change: dict[str, Any], reason: str) -> None:
    api.put(f"/queues/{vhost}/q")
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", **change}
    status, _, told = api.refusal("POST", f"/queues/{vhost}/q/get", body)
    assert status == 400
    assert told.startswith(reason)


@pytest.mark.parametrize(
    "change",
    [
        {"properties": {"no_such": 1}},
        {"properties": {"priority": "high"}},
        {"properties": {"priority": 1000}},
        {"properties": {"expiration": "soon"}},
        {"properties": {"user_id": "somebody"}},
        {"properties": {"headers": 5}},
        {"payload": 5},
        {"payload_encoding": "zz"},
        {"payload": "%", "payload_encoding": "base64"},
        {"routing_key": "x" * 256},
    ],
)
def test_bad_publishes(api: Api, vhost: str, change: dict[str, Any]) -> None:
    body = {"routing_key": "q", "payload": "x", "payload_encoding": "string", "properties": {}}
    refused = api.refusal("POST", f"/exchanges/{vhost}/amq.default/publish", {**body, **change})
    assert refused[:2] == (400, "bad_request")


def test_publish_needs_its_keys(api: Api, vhost: str) -> None:
    refused = api.refusal("POST", f"/exchanges/{vhost}/amq.default/publish", {"payload": "x"})
    assert refused == (400, "bad_request", "{key_missing,routing_key}")
    assert api.refusal("POST", f"/exchanges/{vhost}/none/publish", {})[0] == 404


def test_an_exclusive_queue_is_its_owners(api: Api, channel: Channel) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    shown = api.get(f"/queues/%2F/{name}")
    assert shown["exclusive"]
    assert shown["owner_pid_details"]["name"] == api.get("/connections")[0]["name"]
    assert api.refusal("DELETE", f"/queues/%2F/{name}/contents")[0] == 400
    assert api.refusal("DELETE", f"/queues/%2F/{name}")[0] == 400


def test_consumers_and_channels(api: Api, channel: Channel) -> None:
    channel.queue_declare("sac", arguments={"x-single-active-consumer": True})
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume("sac", lambda *_: None, consumer_tag="first")
    channel.basic_consume("sac", lambda *_: None, auto_ack=True, consumer_tag="second")
    first, second = api.get("/consumers/%2F")
    assert (first["consumer_tag"], first["active"], first["activity_status"]) == (
        "first",
        True,
        "single_active",
    )
    assert (second["active"], second["ack_required"], second["prefetch_count"]) == (False, False, 3)
    assert api.get("/queues/%2F/sac")["single_active_consumer_tag"] == "first"
    (shown,) = api.get("/channels")
    assert (shown["consumer_count"], shown["prefetch_count"]) == (2, 3)
    connection = shown["connection_details"]["name"]
    assert api.get(f"/connections/{q(connection)}/channels") == api.get("/channels")
    whole = api.get(f"/channels/{q(shown['name'])}")
    assert {row["consumer_tag"] for row in whole["consumer_details"]} == {"first", "second"}
    channel.queue_delete("sac")


def test_connections_are_closed_with_a_reason(broker: Broker, api: Api) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    (shown,) = api.get("/connections")
    path = f"/api/connections/{q(shown['name'])}"
    assert api("DELETE", path, headers={"X-Reason": "spring cleaning"}).status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="spring cleaning"):
        connection.process_data_events(5)
    assert api.refusal("DELETE", f"/connections/{q(shown['name'])}")[0] == 404


def test_actions(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    for action in ("sync", "cancel_sync"):
        refused = api.refusal("POST", f"/queues/{vhost}/q/actions", {"action": action})
        assert refused == (400, "bad_request", "not_mirrored")
    assert api.refusal("POST", f"/queues/{vhost}/q/actions", {"action": "jump"})[0] == 400
    assert api("POST", "/api/rebalance/queues", {}).status == 204
