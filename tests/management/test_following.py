"""Whoever follows a queue sees all that comes, and costs nobody anything when it has gone."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import unquote

import pika
import pytest

from management.api import Api
from warren.management import routes_following
from warren.testing.broker import Broker


def follow(api: Api, vhost: str, **body: Any) -> Any:
    return api.post(f"/queues/{vhost}/q/tail", {"name": "f", **body})


def publish(api: Api, vhost: str, *payloads: str) -> None:
    for payload in payloads:
        body = {"properties": {}, "routing_key": "q", "payload": payload}
        api.post(f"/exchanges/{vhost}/amq.default/publish", {**body, "payload_encoding": "string"})


def payloads(answer: Any) -> list[str]:
    return [row["payload"] for row in answer["messages"]]


def take(api: Api, vhost: str, count: int) -> list[str]:
    body = {"count": count, "ackmode": "ack_requeue_false", "encoding": "auto"}
    return [row["payload"] for row in api.post(f"/queues/{vhost}/q/get", body)]


def test_what_has_left_is_shown_once(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    publish(api, vhost, "a", "b", "c")
    begun = follow(api, vhost, count=2)
    assert payloads(begun) == ["b", "c"]
    publish(api, vhost, "d", "e")
    assert take(api, vhost, 5) == ["a", "b", "c", "d", "e"]
    shown = follow(api, vhost, since=begun["cursor"])
    assert (payloads(shown), shown["missed"]) == (["d", "e"], 0)
    # An answer that was lost on the way is had again.
    assert payloads(follow(api, vhost, since=begun["cursor"])) == ["d", "e"]
    assert payloads(follow(api, vhost, since=shown["cursor"])) == []
    assert api("POST", f"/api/queues/{vhost}/q/tail", {"name": "f", "since": 0}).status == 410
    publish(api, vhost, "x1", "y2")
    matched = follow(api, vhost, since=shown["cursor"], match={"payload": "y*"})
    assert payloads(matched) == ["y2"]
    assert take(api, vhost, 2) == ["x1", "y2"]


def test_it_waits_for_what_comes(api: Api, vhost: str, broker: Broker) -> None:
    api.put(f"/queues/{vhost}/q")
    begun = follow(api, vhost)
    assert begun["messages"] == []
    parameters = pika.URLParameters(broker.url)
    parameters.virtual_host = unquote(vhost)
    connection = pika.BlockingConnection(parameters)
    connection.channel().basic_publish("", "q", b"now")
    assert payloads(follow(api, vhost, since=begun["cursor"], wait_ms=10_000)) == ["now"]
    connection.close()


def test_who_is_too_slow_is_told(api: Api, vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_following, "BEHIND_MAX", 4)
    monkeypatch.setattr(routes_following, "TAIL_MAX", 2)
    api.put(f"/queues/{vhost}/q")
    begun = follow(api, vhost)
    publish(api, vhost, *"abcdef")
    shown = follow(api, vhost, since=begun["cursor"])
    assert (payloads(shown), shown["missed"]) == (["e", "f"], 4)
    (cursor,) = api.get(f"/queues/{vhost}/q/cursors")
    assert (cursor["name"], cursor["lag"]) == ("tail.f", 2)


def test_refusals(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    place = f"/api/queues/{vhost}/q/tail"
    assert api("POST", place, {}).status == 400
    assert api("POST", place, {"name": "f", "count": -1}).status == 400
    assert api("POST", place, {"name": "f", "since": 0}).status == 404
    follow(api, vhost)
    assert api("POST", place, {"name": "f"}).status == 409
    assert api("POST", place, {"name": "f", "since": 99}).status == 400
    assert api("POST", f"/api/queues/{vhost}/none/tail", {"name": "f"}).status == 404


def test_one_that_has_gone_is_forgotten(
    api: Api, vhost: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_following, "FOLLOWER_GONE_MS", 200)
    api.put(f"/queues/{vhost}/q")
    follow(api, vhost)
    publish(api, vhost, "a")
    take(api, vhost, 1)
    queue = broker.call(lambda node: node.engine.vhost(unquote(vhost)).queues["q"])
    for _ in range(100):
        if not api.get(f"/queues/{vhost}/q/cursors"):
            break
        time.sleep(0.1)
    assert api.get(f"/queues/{vhost}/q/cursors") == []
    assert queue.retained == 0


def test_reading_takes_the_right_to_read(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    api.put("/users/writer", {"password": "pw", "tags": "management"})
    rights = {"configure": ".*", "write": ".*", "read": ""}
    api.put(f"/permissions/{vhost}/writer", rights)
    answer = Api(api.url, "writer", "pw")("POST", f"/api/queues/{vhost}/q/tail", {"name": "f"})
    assert answer.status in {401, 403}
    api.delete("/users/writer")
