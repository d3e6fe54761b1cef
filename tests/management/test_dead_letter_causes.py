"""Dead letters by cause, over a whole queue, and their way back by cause."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from management.api import Api
from warren.management import dead_letter_causes
from warren.testing.broker import Broker

Channel = pika.adapters.blocking_connection.BlockingChannel


@pytest.fixture
def grave(channel: Channel) -> str:
    """Dead letters of three causes: 300 rejected, 40 pushed out, 3 that nobody knows of."""
    channel.exchange_declare("causes.in", "topic")
    channel.queue_declare("causes.grave")
    to_grave = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "causes.grave"}
    channel.queue_declare("causes.[*]", arguments=to_grave)
    channel.queue_declare("causes.full", arguments={**to_grave, "x-max-length": 10})
    channel.queue_bind("causes.[*]", "causes.in", "reject")
    for number in range(300):
        channel.basic_publish("causes.in", "reject", b"rejected %d" % number)
    for number in range(50):
        channel.basic_publish("", "causes.full", b"%d" % number)
    for _ in range(3):
        channel.basic_publish("", "causes.grave", b"alive")
    for _ in range(300):
        how, _, _ = channel.basic_get("causes.[*]")
        channel.basic_nack(how.delivery_tag, requeue=False)
    channel.connection.process_data_events(0.1)
    yield "causes.grave"
    for name in ("causes.grave", "causes.[*]", "causes.full"):
        channel.queue_delete(name)
    channel.exchange_delete("causes.in")


def causes(api: Api, body: dict[str, Any]) -> dict[str, Any]:
    answer = api("POST", "/api/queues/%2F/causes.grave/causes", body)
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


def short(found: dict[str, Any]) -> list[tuple[str | None, str | None, str | None, int]]:
    keys = ("reason", "queue", "exchange", "messages")
    return [tuple(row[key] for key in keys) for row in found["causes"]]  # type: ignore[misc]


def test_the_whole_queue_is_grouped(api: Api, grave: str) -> None:
    found = causes(api, {})
    assert short(found) == [
        ("rejected", "causes.[*]", "causes.in", 300),
        ("maxlen", "causes.full", "", 40),
        (None, None, None, 3),
    ]
    assert (found["looked_at"], found["untold"], found["is_over"]) == (343, 0, True)
    example = found["causes"][0]["example"]
    assert example["payload"].startswith("rejected ")
    assert found["causes"][0]["newest"] >= found["causes"][0]["oldest"] > 1_600_000_000_000
    # Nobody was taken out, nobody marked.
    row = api.get(f"/queues/%2F/{grave}")
    assert (row["messages_ready"], row["messages_unacknowledged"]) == (343, 0)


def test_it_goes_on_from_where_an_answer_ended(api: Api, grave: str) -> None:
    first = causes(api, {"count": 100})
    assert (first["looked_at"], first["is_over"]) == (100, False)
    rest = causes(api, {"after": first["last_slot"]})
    assert first["looked_at"] + rest["looked_at"] == 343
    assert rest["is_over"]
    assert api("POST", f"/api/queues/%2F/{grave}/causes", {"after": -1}).status == 400


def test_no_more_causes_than_so_many(api: Api, grave: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_causes, "CAUSES_MAX", 1)
    found = causes(api, {})
    assert len(found["causes"]) == 1
    assert found["untold"] + found["causes"][0]["messages"] == 343


def test_it_takes_the_right_to_read(api: Api, broker: Broker, grave: str) -> None:
    broker.add_user("blind", "pw", ["management"])
    api.put("/permissions/%2F/blind", {"configure": "", "write": "", "read": "^$"})
    answer = api.as_user("blind")("POST", f"/api/queues/%2F/{grave}/causes", {})
    assert answer.status in {401, 403}


def test_one_cause_goes_back_and_the_others_stay(api: Api, grave: str) -> None:
    """A name is taken literally: its stars and brackets are put in brackets."""
    match = {"reason": "rejected", "queue": "causes.[[][*]]", "published_to": "causes.in"}
    would = api("POST", f"/api/queues/%2F/{grave}/redrive", {"match": match, "dry_run": True}).json
    assert (would["moved"], would["to"]) == (300, {"causes.[*]": 300})
    done = api("POST", f"/api/queues/%2F/{grave}/redrive", {"match": match}).json
    assert (done["moved"], done["unmatched"]) == (300, 43)
    assert short(causes(api, {})) == [
        ("maxlen", "causes.full", "", 40),
        (None, None, None, 3),
    ]


def test_the_first_message_tells_its_age(api: Api, channel: Channel) -> None:
    channel.queue_declare("aged")
    made = pika.BasicProperties(timestamp=1_700_000_000)
    channel.basic_publish("", "aged", b"x", made)
    channel.connection.process_data_events(0.1)
    assert api.get("/queues/%2F/aged")["head_message_timestamp"] == 1_700_000_000
    channel.queue_delete("aged")
