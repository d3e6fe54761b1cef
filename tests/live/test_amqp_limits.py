"""What takes messages out of queues by itself: time to live, length limits, dead-lettering."""

from __future__ import annotations

import time
from typing import Any

import pytest
from conftest import Clients
from live_broker import Operator
from raw_client import Frame, RawChannel


def fill(channel: RawChannel, queue: str, bodies: list[bytes], **properties: Any) -> None:
    for body in bodies:
        channel.publish(queue, body, **properties)


# -- time to live ----------------------------------------------------------------------------------


def test_queue_ttl(channel: RawChannel) -> None:
    channel.declare("q", {"x-message-ttl": 1500})
    started = time.monotonic()
    fill(channel, "q", [b"1", b"2"])
    channel.wait_depth("q", 2)
    channel.wait_depth("q", 0)
    assert time.monotonic() - started >= 1.5


def test_message_ttl(channel: RawChannel) -> None:
    channel.declare("q")
    channel.publish("q", b"short", expiration="1500")
    channel.publish("q", b"kept")
    channel.wait_depth("q", 2)
    channel.wait_depth("q", 1)
    assert channel.bodies("q") == [b"kept"]


@pytest.mark.parametrize(("queue_ms", "message_ms"), [(40, "60000"), (60000, "40")])
def test_shorter_ttl_wins(channel: RawChannel, queue_ms: int, message_ms: str) -> None:
    arguments = {
        "x-message-ttl": queue_ms,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    channel.declare("q", arguments)
    channel.declare("dead")
    channel.publish("q", b"m", expiration=message_ms)
    assert channel.wait_get("dead").body == b"m"


def test_expires_at_the_head_only(channel: RawChannel) -> None:
    channel.declare("q")
    channel.publish("q", b"long", expiration="60000")
    channel.publish("q", b"short", expiration="20")
    time.sleep(0.1)
    assert channel.depth("q") == 2
    # It is never delivered, though.
    assert channel.bodies("q") == [b"long"]


def test_ttl_zero(channel: RawChannel) -> None:
    channel.declare("q", {"x-message-ttl": 0})
    channel.publish("q", b"nobody there")
    time.sleep(0.02)
    assert channel.get("q") is None
    channel.consume("q")
    channel.publish("q", b"taken")
    assert channel.delivery().body == b"taken"


def test_requeue_keeps_the_expiry(channel: RawChannel) -> None:
    """It is held for longer than its time to live: put back, it is gone at once."""
    channel.declare("q", {"x-message-ttl": 2500})
    channel.publish("q", b"m")
    held = channel.wait_get("q", no_ack=False)
    time.sleep(2.6)
    channel.nack(held.delivery_tag)
    started = time.monotonic()
    channel.wait_depth("q", 0)
    assert time.monotonic() - started < 2.4


def test_unacked_does_not_expire(channel: RawChannel) -> None:
    channel.declare("q", {"x-message-ttl": 1000})
    channel.publish("q", b"m")
    held = channel.wait_get("q", no_ack=False)
    time.sleep(1.1)
    channel.ack(held.delivery_tag)
    channel.declare("other")


# -- length limits ---------------------------------------------------------------------------------


def test_drop_head(channel: RawChannel) -> None:
    channel.declare("q", {"x-max-length": 2})
    fill(channel, "q", [b"1", b"2", b"3", b"4"])
    channel.wait_depth("q", 2)
    assert channel.bodies("q") == [b"3", b"4"]


def test_length_counts_ready_only(channel: RawChannel) -> None:
    channel.declare("q", {"x-max-length": 1})
    channel.publish("q", b"1")
    held = channel.wait_get("q", no_ack=False)
    channel.publish("q", b"2")
    channel.wait_depth("q", 1)
    channel.nack(held.delivery_tag)
    # Put back in its place it is the oldest, so it goes.
    time.sleep(0.02)
    assert channel.bodies("q") == [b"2"]


def test_max_length_bytes(channel: RawChannel) -> None:
    channel.declare("q", {"x-max-length-bytes": 10})
    fill(channel, "q", [b"aaaa", b"bbbb", b"cc", b"d"])
    channel.wait_depth("q", 3)
    assert channel.bodies("q") == [b"bbbb", b"cc", b"d"]
    channel.publish("q", b"x" * 11)
    time.sleep(0.02)
    assert channel.get("q") is None


def test_max_length_zero(channel: RawChannel) -> None:
    channel.declare("q", {"x-max-length": 0})
    channel.publish("q", b"m")
    time.sleep(0.02)
    assert channel.get("q") is None
    channel.consume("q", no_ack=True)
    channel.publish("q", b"handed over")
    assert channel.delivery().body == b"handed over"


def test_reject_publish(channel: RawChannel) -> None:
    channel.declare("q", {"x-max-length": 2, "x-overflow": "reject-publish"})
    fill(channel, "q", [b"1", b"2", b"3"])
    time.sleep(0.02)
    assert channel.bodies("q") == [b"1", b"2"]


def test_length_limits_by_policy(channel: RawChannel, vhost: str, operator: Operator) -> None:
    channel.declare("q", {"x-max-length": 5})
    fill(channel, "q", [b"%d" % number for number in range(5)])
    channel.wait_depth("q", 5)
    # The smaller of argument and policy holds, for what is there already too.
    operator.set_policy(vhost, "p", "q", {"max-length": 3})
    channel.wait_depth("q", 3)
    operator.set_policy(vhost, "p", "q", {"max-length": 9})
    fill(channel, "q", [b"x", b"y", b"z"])
    channel.wait_depth("q", 5)
    assert channel.bodies("q") == [b"3", b"4", b"x", b"y", b"z"]


# -- dead letters ----------------------------------------------------------------------------------


def dead_letters(channel: RawChannel, arguments: dict[str, Any] | None = None) -> None:
    """Queue `q` dead-letters to the fanout exchange `dlx`, from where all goes to `dead`."""
    channel.exchange("dlx", "fanout")
    channel.bind(channel.declare("dead"), "dlx")
    channel.declare("q", {"x-dead-letter-exchange": "dlx", **(arguments or {})})


def death(found: Frame) -> dict[str, Any]:
    entry: dict[str, Any] = found.headers["x-death"][0]
    return entry


def test_rejected(channel: RawChannel) -> None:
    dead_letters(channel)
    before = int(time.time())
    channel.publish("q", b"m", message_id="7", headers={"mine": 1})
    held = channel.wait_get("q", no_ack=False)
    channel.reject(held.delivery_tag)
    found = channel.wait_get("dead")
    assert (found.body, found.exchange, found.routing_key) == (b"m", "dlx", "q")
    assert found.properties["message_id"] == "7"
    headers = found.headers
    assert headers["mine"] == 1
    (entry,) = headers["x-death"]
    assert before <= entry.pop("time") <= time.time() + 1
    assert entry == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "exchange": "",
        "routing-keys": ["q"],
    }
    # The count is a long, the time a timestamp.
    assert b"\x05countl" in found.header
    assert b"\x04timeT" in found.header
    assert headers["x-first-death-reason"] == "rejected"
    assert headers["x-first-death-queue"] == "q"
    assert headers["x-first-death-exchange"] == ""


def test_last_death(channel: RawChannel, node: object) -> None:
    dead_letters(channel)
    channel.publish("q", b"m")
    channel.reject(channel.wait_get("q", no_ack=False).delivery_tag)
    headers = channel.wait_get("dead").headers
    assert headers["x-last-death-reason"] == "rejected"
    assert headers["x-last-death-queue"] == "q"
    assert headers["x-last-death-exchange"] == ""


def test_nack_dead_letters_all(channel: RawChannel) -> None:
    dead_letters(channel)
    fill(channel, "q", [b"1", b"2", b"3"])
    for _ in range(3):
        channel.wait_get("q", no_ack=False)
    channel.nack(0, multiple=True, requeue=False)
    channel.wait_depth("dead", 3)
    assert channel.bodies("dead") == [b"1", b"2", b"3"]


def test_expired(channel: RawChannel) -> None:
    dead_letters(channel)
    channel.publish("q", b"m", expiration="30")
    found = channel.wait_get("dead")
    assert "expiration" not in found.properties
    entry = death(found)
    assert (entry["reason"], entry["original-expiration"]) == ("expired", "30")


def test_expired_by_queue_ttl(channel: RawChannel) -> None:
    dead_letters(channel, {"x-message-ttl": 0})
    channel.publish("q", b"m")
    entry = death(channel.wait_get("dead"))
    assert entry["reason"] == "expired"
    assert "original-expiration" not in entry


def test_maxlen(channel: RawChannel) -> None:
    dead_letters(channel, {"x-max-length": 1})
    fill(channel, "q", [b"1", b"2"])
    found = channel.wait_get("dead")
    assert (found.body, death(found)["reason"]) == (b"1", "maxlen")


def test_reject_publish_dlx(confirming: RawChannel) -> None:
    dead_letters(confirming, {"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    confirming.publish("q", b"1")
    assert confirming.next().name == "basic.ack"
    confirming.publish("q", b"2")
    assert confirming.next().name == "basic.nack"
    found = confirming.wait_get("dead")
    assert (found.body, death(found)["reason"]) == (b"2", "maxlen")
    assert confirming.bodies("q") == [b"1"]


def test_reject_publish_does_not_dead_letter(channel: RawChannel) -> None:
    dead_letters(channel, {"x-max-length": 1, "x-overflow": "reject-publish"})
    fill(channel, "q", [b"1", b"2"])
    time.sleep(0.03)
    assert channel.depth("dead") == 0


def test_purge_and_delete_do_not_dead_letter(channel: RawChannel) -> None:
    dead_letters(channel)
    fill(channel, "q", [b"1", b"2"])
    channel.wait_depth("q", 2)
    channel.call("queue.purge", queue="q")
    channel.publish("q", b"3")
    channel.wait_depth("q", 1)
    channel.call("queue.delete", queue="q")
    time.sleep(0.02)
    assert channel.depth("dead") == 0


def test_routing_key_of_the_dead(channel: RawChannel) -> None:
    channel.bind(channel.declare("dead"), "amq.direct", "new")
    channel.declare(
        "q", {"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "new"}
    )
    channel.publish("q", b"m", headers={"CC": ["copy"]}, expiration="1")
    found = channel.wait_get("dead")
    assert (found.exchange, found.routing_key) == ("amq.direct", "new")
    assert death(found)["routing-keys"] == ["q", "copy"]
    assert "CC" not in found.headers


def test_original_keys_of_the_dead(channel: RawChannel) -> None:
    """Without a key of its own, a dead letter goes where its keys and copies lead."""
    for queue in ("by-key", "by-cc", "by-bcc"):
        channel.declare(queue)
    for queue, key in (("by-key", "q"), ("by-cc", "cc"), ("by-bcc", "bcc")):
        channel.bind(queue, "amq.direct", key)
    channel.declare("q", {"x-dead-letter-exchange": "amq.direct"})
    channel.publish("q", b"m", headers={"CC": ["cc"], "BCC": ["bcc"]}, expiration="1")
    for queue in ("by-key", "by-cc", "by-bcc"):
        found = channel.wait_get(queue)
        assert found.routing_key == "q"
        assert death(found)["routing-keys"] == ["q", "cc"]
        assert found.headers["CC"] == ["cc"]
        assert "BCC" not in found.headers


def test_missing_dead_letter_exchange(channel: RawChannel) -> None:
    channel.declare("q", {"x-dead-letter-exchange": "later"})
    channel.publish("q", b"lost", expiration="1")
    channel.wait_depth("q", 0)
    channel.exchange("later", "fanout")
    channel.bind(channel.declare("dead"), "later")
    channel.publish("q", b"kept", expiration="1")
    assert channel.wait_get("dead").body == b"kept"
    assert channel.get("dead") is None


def test_dead_letters_through_the_default_exchange(channel: RawChannel) -> None:
    channel.declare("dead")
    channel.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    channel.publish("q", b"m", expiration="1")
    assert channel.wait_get("dead").body == b"m"


def test_deaths_newest_first(channel: RawChannel) -> None:
    for queue, target in (("a", "b"), ("b", "c")):
        channel.declare(queue, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target})
    channel.declare("c")
    channel.publish("a", b"m", expiration="1")
    channel.reject(channel.wait_get("b", no_ack=False).delivery_tag)
    headers = channel.wait_get("c").headers
    assert [(d["queue"], d["reason"], d["count"]) for d in headers["x-death"]] == [
        ("b", "rejected", 1),
        ("a", "expired", 1),
    ]
    assert headers["x-first-death-queue"] == "a"
    assert headers["x-first-death-reason"] == "expired"


def test_rejected_loop_counts(channel: RawChannel) -> None:
    channel.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
    channel.declare(
        "wait",
        {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "q",
            "x-message-ttl": 5,
        },
    )
    channel.publish("q", b"m")
    for _ in range(3):
        channel.reject(channel.wait_get("q", no_ack=False).delivery_tag)
    found = channel.wait_get("q")
    assert [(d["queue"], d["reason"], d["count"]) for d in found.headers["x-death"]] == [
        ("wait", "expired", 3),
        ("q", "rejected", 3),
    ]
    assert found.headers["x-first-death-queue"] == "q"


def test_cycle_is_cut(channel: RawChannel) -> None:
    for queue, target in (("a", "b"), ("b", "a")):
        channel.declare(
            queue,
            {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": target,
                "x-message-ttl": 10,
            },
        )
    channel.publish("a", b"m")
    time.sleep(0.15)
    channel.wait_depth("a", 0)
    channel.wait_depth("b", 0)
    assert channel.depth("a") == 0


def test_queue_that_is_its_own_dead_letter_queue(channel: RawChannel) -> None:
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "q",
        "x-max-length": 1,
    }
    channel.declare("q", arguments)
    fill(channel, "q", [b"1", b"2"])
    time.sleep(0.03)
    # The dead letter would come straight back: it is dropped.
    assert channel.bodies("q") == [b"2"]
    channel.publish("q", b"3")
    channel.reject(channel.wait_get("q", no_ack=False).delivery_tag)
    # A rejection is somebody's decision, so it may go round.
    again = channel.wait_get("q")
    assert (again.body, death(again)["reason"]) == (b"3", "rejected")


def test_broken_history_is_reset(channel: RawChannel) -> None:
    dead_letters(channel)
    channel.publish("q", b"m", headers={"x-death": "nonsense"}, expiration="1")
    assert len(channel.wait_get("dead").headers["x-death"]) == 1


def test_dead_letter_exchange_by_policy(
    channel: RawChannel, vhost: str, operator: Operator
) -> None:
    channel.declare("q")
    channel.declare("dead")
    definition = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    operator.set_policy(vhost, "dlx", "^q$", definition)
    channel.publish("q", b"m", expiration="1")
    assert channel.wait_get("dead").body == b"m"
    operator.clear_policy(vhost, "dlx")
    channel.publish("q", b"m", expiration="1")
    channel.wait_depth("q", 0)
    assert channel.depth("dead") == 0


def test_dead_letters_reach_consumers(clients: Clients) -> None:
    channel = clients.channel()
    dead_letters(channel)
    other = clients.channel()
    other.consume("dead", no_ack=True)
    channel.publish("q", b"m", expiration="5")
    assert other.delivery().body == b"m"


def test_alternate_exchange_takes_dead_letters(channel: RawChannel) -> None:
    channel.exchange("spare", "fanout")
    channel.bind(channel.declare("dead"), "spare")
    channel.exchange("dlx", "direct", {"alternate-exchange": "spare"})
    channel.declare("q", {"x-dead-letter-exchange": "dlx"})
    channel.publish("q", b"m", expiration="1")
    assert channel.wait_get("dead").body == b"m"
