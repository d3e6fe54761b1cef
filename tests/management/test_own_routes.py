"""Routes that RabbitMQ does not have."""

from __future__ import annotations

import base64
import json
import time
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


def peek(api: Api, vhost: str, name: str, **body: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.post(f"/queues/{vhost}/{name}/peek", {"count": 100, **body})
    return found


def payloads(rows: list[dict[str, Any]]) -> list[str]:
    return [row["payload"] for row in rows]


def test_peek_changes_nothing(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    for number in range(300):
        publish(api, vhost, "q", payload=str(number), properties={"priority": number % 3})
    everything = [str(number) for number in range(300)]
    assert payloads(peek(api, vhost, "q", count=1000)) == everything
    assert payloads(peek(api, vhost, "q", count=3, offset=200)) == ["200", "201", "202"]
    rows = peek(api, vhost, "q", count=2, offset=298)
    assert payloads(rows) == ["298", "299"]
    assert payloads(peek(api, vhost, "q", after=rows[0]["slot"])) == ["299"]
    assert peek(api, vhost, "q", offset=300) == []
    assert peek(api, vhost, "q", after=rows[1]["slot"]) == []
    assert [row["message_count"] for row in rows] == [1, 0]
    assert rows[0]["properties"] == {"priority": 1}
    (cut,) = peek(api, vhost, "q", count=1, truncate=0, encoding="base64")
    assert (cut["payload"], cut["payload_bytes"], cut["payload_encoding"]) == ("", 1, "base64")
    shown = api.get(f"/queues/{vhost}/q")
    assert (shown["messages_ready"], shown["messages_unacknowledged"]) == (300, 0)
    assert shown["message_stats"]["deliver_get"] == 0
    # And nothing was marked.
    assert contents(api, vhost, "q")[0] == ("0", False)
    assert peek(api, vhost, "q", count=1)[0]["redelivered"]


def test_peek_by_priority_and_what_is_out(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q", {"arguments": {"x-max-priority": 5}})
    for priority in (0, 5, 2, 9, 0):
        properties = {"priority": priority}
        publish(api, vhost, "q", payload=str(priority), properties=properties)
    assert payloads(peek(api, vhost, "q")) == ["5", "9", "2", "0", "0"]
    rows = peek(api, vhost, "q", count=3)
    assert payloads(peek(api, vhost, "q", after=rows[2]["slot"])) == ["0", "0"]
    assert payloads(peek(api, vhost, "q", offset=1, count=2)) == ["9", "2"]
    assert peek(api, vhost, "q", unacked=True) == []


def test_peek_at_what_is_unacknowledged(api: Api, channel: Channel) -> None:
    channel.queue_declare("pk.q", auto_delete=True)
    for number in range(3):
        channel.basic_publish("", "pk.q", str(number).encode())
    channel.basic_get("pk.q")
    rows = peek(api, "%2F", "pk.q", unacked=True)
    assert payloads(rows) == ["0"]
    assert not rows[0]["ready"]
    assert payloads(peek(api, "%2F", "pk.q")) == ["1", "2"]


def test_peek_is_refused(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    place = f"/queues/{vhost}/q/peek"
    for body in (
        {"count": -1},
        {"count": 10_001},
        {"offset": -1},
        {"after": -1},
        {"after": "x"},
        {"encoding": "x"},
        {"truncate": -1},
        {"match": {"colour": "red"}},
        {"match": {"payload": "*****"}},
        {"match": {"payload": []}},
    ):
        assert api.refusal("POST", place, body)[0] == 400, body
    assert api.refusal("POST", f"/queues/{vhost}/none/peek", {})[0] == 404


def test_match(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    for number in range(40):
        properties = {"type": "odd" if number % 2 else "even", "headers": {"n": number}}
        publish(api, vhost, "q", payload=f"<{number}>", properties=properties)

    def found(**match: Any) -> list[str]:
        return payloads(peek(api, vhost, "q", match=match))

    assert found(payload="*7>") == ["<7>", "<17>", "<27>", "<37>"]
    assert found(type="odd", payload="<?>") == ["<1>", "<3>", "<5>", "<7>", "<9>"]
    assert found(**{"headers.n": 12}) == ["<12>"]
    assert found(**{"headers.n": "1[23]"}) == ["<12>", "<13>"]
    assert found(routing_key="q", exchange="") == [f"<{number}>" for number in range(40)]
    assert found(**{"headers.m": "*"}) == found(routing_key="Q") == found(reason="*") == []


def test_move(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    api.put(
        f"/queues/{vhost}/r", {"arguments": {"x-max-length": 4, "x-overflow": "reject-publish"}}
    )
    for number in range(10):
        publish(api, vhost, "q", payload=str(number))
    place = f"/queues/{vhost}/q/move"

    def moved(**body: Any) -> tuple[int, int, int]:
        outcome = api.post(place, {"to": "r", **body})
        assert outcome["to"] == ({"r": outcome["moved"]} if outcome["moved"] else {})
        return outcome["moved"], outcome["kept"], outcome["unmatched"]

    assert moved(dry_run=True) == (10, 0, 0)
    assert moved(dry_run=True, match={"payload": "[135]"}) == (3, 0, 7)
    assert len(peek(api, vhost, "q")) == 10
    assert moved(count=3) == (3, 0, 0)
    assert payloads(peek(api, vhost, "r")) == ["0", "1", "2"]
    # The other queue takes one more and is full.
    assert moved(match={"payload": "[57]"}) == (1, 1, 3)
    # Those that stay keep their order, and are not marked.
    rows = peek(api, vhost, "q")
    assert [(row["payload"], row["redelivered"]) for row in rows] == [
        (payload, False) for payload in "346789"
    ]
    assert api.refusal("POST", place, {"to": "none"})[0] == 404
    assert api.refusal("POST", place, {"to": "q"})[0] == 400
    assert api.refusal("POST", place, {"to": "r", "count": -1})[0] == 400
    assert api.refusal("POST", place, {"to": "r", "match": {"x": "y"}})[0] == 400


def test_move_from_behind_a_message(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    api.put(f"/queues/{vhost}/r")
    for number in range(10):
        publish(api, vhost, "q", payload=str(number))
    place = f"/queues/{vhost}/q/move"
    first = api.post(place, {"to": "r", "count": 2, "match": {"payload": "[24]"}})
    assert (first["moved"], first["unmatched"]) == (2, 3)
    second = api.post(place, {"to": "r", "count": 1, "after": first["last_slot"]})
    assert second["moved"] == 1
    assert payloads(peek(api, vhost, "r")) == ["2", "4", "5"]


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
    place = f"/queues/{vhost}/dead/redrive"
    planned = api.post(place, {"dry_run": True})
    assert (planned["moved"], planned["kept"], planned["to"]) == (3, 2, {"work": 3})
    picked = api.post(place, {"match": {"queue": "work", "reason": "rejected", "payload": "?1"}})
    assert (picked["moved"], picked["kept"], picked["unmatched"]) == (1, 0, 4)
    done = api.post(place)
    assert (done["moved"], done["kept"]) == (2, 2)
    (first,) = peek(api, vhost, "work", count=1)
    headers = first["properties"]["headers"]
    assert (headers["x-redriven"]["count"], headers["x-redriven"]["from"]) == (1, "dead")
    assert abs(headers["x-redriven"]["time"] - time.time()) < 60
    assert headers["x-death"][0]["queue"] == "work"
    assert contents(api, vhost, "work") == [("w1", False), ("w0", False), ("w2", False)]
    # What dies again and is sent back again is counted.
    name = "work"
    body = {"count": 9, "ackmode": "reject_requeue_false", "encoding": "auto"}
    api.post(f"/queues/{vhost}/{name}/get", body)
    assert api.post(place)["moved"] == 3
    rows = peek(api, vhost, "work")
    assert [row["properties"]["headers"]["x-redriven"]["count"] for row in rows] == [2, 2, 2]
    assert contents(api, vhost, "dead") == [("never died", False), ("g", False)]


def test_messages_at_positions_are_moved(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/p")
    api.put(f"/queues/{vhost}/to")
    for number in range(6):
        publish(api, vhost, "p", payload=str(number))
    place = f"/queues/{vhost}/p/move"
    body = {"to": "to", "positions": [4, 1, 99]}
    assert api.post(place, {**body, "dry_run": True})["moved"] == 2
    assert api.post(place, body)["moved"] == 2
    assert contents(api, vhost, "to") == [("1", False), ("4", False)]
    assert api.post(place, {"to": "to", "positions": [0]})["moved"] == 1
    assert api.post(place, {"to": "to", "positions": []})["moved"] == 0
    assert payloads(peek(api, vhost, "p")) == ["2", "3", "5"]
    for wrong in ({"positions": ["1"]}, {"positions": 3}):
        assert api.refusal("POST", place, {"to": "to", **wrong})[0] == 400
    other = {"to": "to", "positions": [2], "incarnation": "another"}
    assert api.refusal("POST", place, other)[0] == 412


def test_tail(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    place = f"/queues/{vhost}/q/tail"
    publish(api, vhost, "q", payload="old")
    begun = api.get(place)
    assert payloads(begun["messages"]) == ["old"]
    assert api.get(f"{place}?count=0")["messages"] == []

    def since(cursor: str) -> tuple[list[str], int, str]:
        answer = api.get(f"{place}?since={cursor}")
        return payloads(answer["messages"]), answer["missed"], answer["cursor"]

    assert since(begun["cursor"]) == ([], 0, begun["cursor"])
    publish(api, vhost, "q", payload="new")
    found, missed, cursor = since(begun["cursor"])
    assert (found, missed) == (["new"], 0)
    for payload in "abc":
        publish(api, vhost, "q", payload=payload)
    taken = {"count": 3, "ackmode": "ack_requeue_false", "encoding": "auto"}
    api.post(f"/queues/{vhost}/q/get", taken)
    assert since(cursor)[:2] == (["b", "c"], 1)
    for wrong in ("x", "1:2", "1:2.", "1:-1.2", ":"):
        assert api.refusal("GET", f"{place}?since={wrong}")[0] == 400, wrong


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
    ring = api.get(f"/queues/{vhost}/q/mirrors")
    (row,) = ring["replicas"]
    assert (row["role"], row["synchronised"], row["online"]) == ("master", True, True)
    assert (ring["state"], ring["master"], ring["epoch"]) == ("running", row["node"], 0)
    assert ring["explain"] == [
        f"it has no mirrors: if {row['node']} dies now, it is down until {row['node']} is back"
    ]
    policy = {"pattern": "^q$", "definition": {"ha-mode": "all"}}
    api.put(f"/policies/{vhost}/ha", policy)
    explained = api.get(f"/queues/{vhost}/q/mirrors")["explain"]
    assert explained[0].startswith("a policy wants mirrors, and this node is in no cluster")
    assert explained[1].startswith("it has no mirrors")


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
        with urllib.request.urlopen(request, timeout=60) as stream:
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
        with urllib.request.urlopen(request, timeout=60) as stream:
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
