"""Routes that RabbitMQ does not have."""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

import pika

from management.api import Api
from management.test_objects import publish
from warren.management.server import ROUTES
from warren.testing.broker import Broker

Channel = pika.adapters.blocking_connection.BlockingChannel


def test_unacked(api: Api, channel: Channel) -> None:
    channel.queue_declare("un.q", auto_delete=True)
    for _ in range(3):
        channel.basic_publish("", "un.q", b"x")
    channel.basic_get("un.q")
    channel.basic_consume("un.q", lambda *_: None, consumer_tag="holder")
    channel.connection.process_data_events(0.1)
    rows = api.get("/queues/%2F/un.q/unacked")
    assert [row["consumer_tag"] for row in rows] == [None, "holder", "holder"]
    assert [row["delivery_tag"] for row in rows] == [1, 2, 3]
    assert rows[0]["channel_details"]["user"] == "guest"
    assert 0 <= rows[0]["age_ms"] < 60_000


def contents(api: Api, vhost: str, name: str) -> list[tuple[str, bool]]:
    body = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"}
    rows = api.post(f"/queues/{vhost}/{name}/get", body)
    return [(row["payload"], row["redelivered"]) for row in rows]


def test_move(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    api.put(
        f"/queues/{vhost}/r", {"arguments": {"x-max-length": 4, "x-overflow": "reject-publish"}}
    )
    for number in range(10):
        publish(api, vhost, "q", payload=str(number))
    place = f"/queues/{vhost}/q/move"
    assert api.post(place, {"to": "r", "count": 3}) == {"moved": 3, "kept": 0}
    assert contents(api, vhost, "r") == [("0", False), ("1", False), ("2", False)]
    # The other queue takes one more and is full.
    assert api.post(place, {"to": "r"}) == {"moved": 1, "kept": 1}
    assert [payload for payload, _ in contents(api, vhost, "q")] == list("456789")
    assert api.refusal("POST", place, {"to": "none"})[0] == 404
    assert api.refusal("POST", place, {"to": "q"})[0] == 400
    assert api.refusal("POST", place, {"to": "r", "count": -1})[0] == 400


def test_redrive(api: Api, vhost: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    api.put(f"/queues/{vhost}/work", {"arguments": arguments})
    api.put(f"/queues/{vhost}/gone", {"arguments": arguments})
    api.put(f"/queues/{vhost}/dead")
    for number in range(3):
        publish(api, vhost, "work", payload=f"w{number}")
    publish(api, vhost, "gone", payload="g")
    publish(api, vhost, "dead", payload="never died")
    for name in ("work", "gone"):
        body = {"count": 9, "ackmode": "reject_requeue_false", "encoding": "auto"}
        api.post(f"/queues/{vhost}/{name}/get", body)
    api.delete(f"/queues/{vhost}/gone")
    assert api.post(f"/queues/{vhost}/dead/redrive") == {"moved": 3, "kept": 2}
    assert contents(api, vhost, "work") == [("w0", False), ("w1", False), ("w2", False)]
    assert [payload for payload, _ in contents(api, vhost, "dead")] == ["never died", "g"]


def test_move_wakes_consumers(api: Api, channel: Channel) -> None:
    channel.queue_declare("mv.a")
    channel.queue_declare("mv.b")
    taken: list[bytes] = []
    channel.basic_consume("mv.b", lambda _c, _m, _p, body: taken.append(body), auto_ack=True)
    publish(api, "%2F", "mv.a", payload="x")
    assert api.post("/queues/%2F/mv.a/move", {"to": "mv.b"})["moved"] == 1
    channel.connection.process_data_events(1)
    assert taken == [b"x"]


def test_mirrors(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    (row,) = api.get(f"/queues/{vhost}/q/mirrors")
    assert (row["role"], row["synchronised"]) == ("master", True)


def test_events(api: Api, vhost: str) -> None:
    before = api.get("/cluster/events")[-1]["id"]
    api.put(f"/queues/{vhost}/q")
    api.delete(f"/queues/{vhost}/q")
    events = api.get(f"/cluster/events?since={before}")
    assert [event["event"] for event in events] == ["queue.created", "queue.deleted"]
    assert events[0]["details"]["name"] == "q"
    assert api.refusal("GET", "/cluster/events?since=x")[0] == 400


def read_event(stream: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    while True:
        line = stream.readline().decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if not line and found:
            return found
        if line:
            key, _, value = line.partition(": ")
            found[key] = value


def test_live_events() -> None:
    with Broker(http=True) as broker:
        api = Api(broker.http_url)
        pair = base64.b64encode(b"guest:guest").decode()
        request = urllib.request.Request(
            f"{api.url}/api/cluster/events/stream", headers={"Authorization": f"Basic {pair}"}
        )
        with urllib.request.urlopen(request, timeout=10) as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            assert stream.readline() == b": listening\n"
            api.put("/queues/%2F/live")
            event = read_event(stream)
            assert event["event"] == "queue.created"
            number = event["id"]
            assert json.loads(event["data"])["details"] == {"vhost": "/", "name": "live"}
        api.delete("/queues/%2F/live")
        # Who was away is told what it missed.
        request.add_header("Last-Event-ID", number)
        with urllib.request.urlopen(request, timeout=10) as stream:
            assert read_event(stream)["event"] == "queue.deleted"
            # A broker that stops does not wait for who listens.
            broker.stop()


def test_description(api: Api) -> None:
    answer = api.as_user(None)("GET", "/api/openapi.json")
    described = answer.json
    assert described["openapi"] == "3.1.0"
    operations = [
        operation["operationId"]
        for path in described["paths"].values()
        for operation in path.values()
    ]
    assert len(operations) == len(ROUTES) == len(set(operations))
    for path in described["paths"].values():
        for operation in path.values():
            assert operation["summary"].endswith((".", ";"))
