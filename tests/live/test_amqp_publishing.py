"""Publishing: returns, checks of properties, confirms, transactions, copies, large messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import Clients
from live_broker import LiveNode
from raw_client import Closed, RawChannel, frame


def refused(code: int, text: str, scope: str = "channel") -> Closed:
    return Closed(scope, code, text)


def test_unknown_exchange(channel: RawChannel, vhost: str) -> None:
    assert channel.publish_refused("k", b"m", "x") == refused(
        404, f"NOT_FOUND - no exchange 'x' in vhost '{vhost}'"
    )


def test_exchange_deleted_under_a_publisher(channel: RawChannel) -> None:
    channel.exchange("x", "fanout")
    channel.bind(channel.declare("q"), "x")
    channel.publish("", b"1", "x")
    channel.call("exchange.delete", exchange="x")
    assert channel.publish_refused("", b"2", "x").code == 404


def test_immediate(channel: RawChannel) -> None:
    channel.send("basic.publish", routing_key="q", immediate=True)
    channel.connection.send_content(channel.number, {}, b"")
    assert channel.connection.closed(1) == refused(
        540, "NOT_IMPLEMENTED - immediate=true", "connection"
    )


def test_mandatory(channel: RawChannel) -> None:
    channel.declare("q")
    channel.publish("q", b"fits", mandatory=True)
    properties = {"message_id": "7", "headers": {"a": 1}}
    channel.publish("nowhere", b"lost", "amq.direct", mandatory=True, **properties)
    returned = channel.expect("basic.return")
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == ("amq.direct", "nowhere")
    assert returned.body == b"lost"
    assert returned.properties == properties
    channel.publish("nowhere", b"silently lost")
    assert channel.bodies("q") == [b"fits"]


def test_properties_arrive_unchanged(channel: RawChannel) -> None:
    channel.declare("q")
    sent = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"s": "text", "i": 5, "f": 1.5, "n": None, "t": {"x": [1, "two", True]}},
        "delivery_mode": 2,
        "priority": 9,
        "correlation_id": "c",
        "reply_to": "somewhere",
        "message_id": "m",
        "timestamp": 1700000000,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "z",
    }
    channel.publish("q", b"body", **sent)
    found = channel.wait_get("q")
    assert found.properties == sent


def test_user_id(clients: Clients, make_user: Callable[..., str]) -> None:
    channel = clients.channel()
    channel.declare("q")
    channel.publish("q", b"1", user_id="guest")
    assert channel.publish_refused("q", b"2", user_id="other") == refused(
        406,
        "PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was 'guest'",
    )
    user = make_user(tags=["impersonator"])
    channel = clients.channel(user=user, password=user)
    channel.publish("q", b"3", user_id="other")
    channel.wait_depth("q", 2)


@pytest.mark.parametrize(
    ("expiration", "fault"),
    [
        ("", "no_integer"),
        ("abc", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("10s", '{leftover_string,"s"}'),
        ("999999999999999", "{value_too_large,999999999999999}"),
    ],
)
@pytest.mark.parametrize("transactional", [False, True])
def test_bad_expiration(
    channel: RawChannel, expiration: str, fault: str, transactional: bool
) -> None:
    if transactional:
        channel.call("tx.select")
    assert channel.publish_refused("q", b"m", expiration=expiration) == refused(
        406, f"PRECONDITION_FAILED - invalid expiration '{expiration}': {fault}"
    )


def test_body_too_large(clients: Clients, node: LiveNode) -> None:
    channel = clients.channel()
    channel.send("basic.publish", routing_key="q")
    size = 600 * 1024 * 1024
    header = b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x00\x00"
    channel.connection.socket.sendall(frame(2, 1, header))
    refusal = channel.connection.closed(1)
    assert refusal[:2] == ("channel", 406)
    assert refusal.text.startswith(
        f"PRECONDITION_FAILED - message size {size} is larger than configured max size "
    )


@pytest.mark.parametrize("size", [0, 1, 131072 - 8, 131072 - 7, 300_000, 10 * 1024 * 1024])
def test_large_messages(clients: Clients, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"e" * (size % 256)
    publisher = clients.channel()
    publisher.declare("q")
    publisher.publish("q", body, message_id="big")
    found = publisher.wait_get("q")
    assert found.body == body
    small_frames = clients.channel(frame_max=4096)
    small_frames.consume("q", no_ack=True)
    small_frames.publish("q", body[:100_000])
    assert small_frames.delivery().body == body[:100_000]


# -- confirms --------------------------------------------------------------------------------------


def settled(channel: RawChannel, count: int) -> list[str]:
    """The verdicts on the first `count` publishes, in order."""
    verdicts: dict[int, str] = {}
    while len(verdicts) < count:
        found = channel.next()
        assert found.name in {"basic.ack", "basic.nack"}, found
        first = 1 if found.multiple else found.delivery_tag
        for tag in range(first, found.delivery_tag + 1):
            if tag in verdicts:
                assert found.multiple, "a message was settled twice"
            verdicts.setdefault(tag, found.name.removeprefix("basic."))
    return [verdicts[tag] for tag in range(1, count + 1)]


def test_confirms(confirming: RawChannel) -> None:
    confirming.declare("q")
    for number in range(200):
        confirming.publish("q", b"%d" % number)
    assert settled(confirming, 200) == ["ack"] * 200
    assert confirming.quiet()
    assert confirming.depth("q") == 200


def test_confirms_count_from_select(channel: RawChannel) -> None:
    channel.publish("nowhere")
    channel.call("confirm.select")
    channel.call("confirm.select")
    channel.publish("nowhere")
    found = channel.expect("basic.ack")
    assert (found.delivery_tag, found.multiple) == (1, False)


def test_return_comes_before_its_confirm(confirming: RawChannel) -> None:
    for number in range(3):
        confirming.publish("nowhere", b"%d" % number, mandatory=True)
    names = []
    acked = 0
    while acked < 3:
        found = confirming.next()
        names.append(found.name)
        if found.name == "basic.ack":
            acked = found.delivery_tag
            assert names.count("basic.return") >= acked
    assert names.count("basic.return") == 3


def test_nack_by_a_full_queue(confirming: RawChannel) -> None:
    confirming.declare("q", {"x-max-length": 2, "x-overflow": "reject-publish"})
    for _ in range(4):
        confirming.publish("q")
    assert settled(confirming, 4) == ["ack", "ack", "nack", "nack"]


def test_one_full_queue_of_two_nacks(confirming: RawChannel) -> None:
    confirming.declare("full", {"x-max-length": 0, "x-overflow": "reject-publish"})
    for queue in ("full", confirming.declare("q")):
        confirming.bind(queue, "amq.fanout")
    confirming.publish("", b"m", "amq.fanout")
    assert settled(confirming, 1) == ["nack"]
    assert confirming.depth("q") == 1


def test_confirms_before_an_error(confirming: RawChannel) -> None:
    confirming.publish("nowhere")
    confirming.publish("k", b"", "missing")
    assert confirming.connection.closed(2).code == 404


def test_confirm_and_tx_exclude_each_other(clients: Clients) -> None:
    channel = clients.channel()
    channel.call("confirm.select")
    assert channel.refused("tx.select") == refused(
        406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    )
    channel = clients.channel()
    channel.call("tx.select")
    assert channel.refused("confirm.select") == refused(
        406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    )


# -- transactions ----------------------------------------------------------------------------------


def test_tx_publish(clients: Clients) -> None:
    channel, other = clients.channel(), clients.channel()
    channel.declare("q")
    channel.call("tx.select")
    channel.publish("q", b"1")
    channel.publish("nowhere", b"2", mandatory=True)
    assert channel.quiet()
    assert other.depth("q") == 0
    channel.send("tx.commit")
    assert channel.expect("basic.return").body == b"2"
    channel.expect("tx.commit-ok")
    assert other.depth("q") == 1
    channel.publish("q", b"3")
    channel.call("tx.rollback")
    channel.call("tx.commit")
    assert other.bodies("q") == [b"1"]


def test_tx_acks(clients: Clients) -> None:
    channel, other = clients.channel(), clients.channel()
    channel.declare("q")
    for number in range(4):
        channel.publish("q", b"%d" % number)
    channel.wait_depth("q", 4)
    channel.call("tx.select")
    tags = []
    for _ in range(4):
        found = channel.get("q", no_ack=False)
        assert found is not None
        tags.append(found.delivery_tag)
    channel.ack(tags[0])
    channel.reject(tags[1], requeue=True)
    assert other.depth("q") == 0
    channel.call("tx.rollback")
    assert other.depth("q") == 0
    channel.ack(tags[0])
    channel.reject(tags[1], requeue=True)
    channel.nack(tags[2], requeue=False)
    channel.call("tx.commit")
    other.wait_depth("q", 1)
    channel.close()
    other.wait_depth("q", 2)
    assert other.bodies("q") == [b"1", b"3"]


def test_tx_uncommitted_is_lost_with_the_channel(clients: Clients) -> None:
    channel, other = clients.channel(), clients.channel()
    channel.declare("q")
    channel.call("tx.select")
    channel.publish("q", b"1")
    channel.close()
    assert other.depth("q") == 0


def test_tx_settlement_covers_what_was_out_then(clients: Clients) -> None:
    channel, other = clients.channel(), clients.channel()
    channel.declare("q")
    channel.call("tx.select")
    channel.consume("q")
    other.publish("q", b"1")
    channel.delivery()
    channel.ack(0, multiple=True)
    # The broker has read the ack once it answers this.
    channel.declare("other")
    other.publish("q", b"2")
    channel.delivery()
    channel.call("tx.commit")
    channel.close()
    other.wait_depth("q", 1)
    assert other.bodies("q") == [b"2"]


def test_tx_settles_once(channel: RawChannel) -> None:
    channel.declare("q")
    channel.publish("q", b"1")
    channel.wait_depth("q", 1)
    channel.call("tx.select")
    found = channel.get("q", no_ack=False)
    assert found is not None
    channel.ack(found.delivery_tag)
    channel.ack(found.delivery_tag)
    assert channel.connection.closed(1) == refused(
        406, f"PRECONDITION_FAILED - unknown delivery tag {found.delivery_tag}"
    )


@pytest.mark.parametrize("method", ["tx.commit", "tx.rollback"])
def test_tx_without_select(channel: RawChannel, method: str) -> None:
    assert channel.refused(method) == refused(
        406, "PRECONDITION_FAILED - channel is not transactional"
    )


# -- sender-selected distribution ------------------------------------------------------------------


def test_carbon_copies(channel: RawChannel) -> None:
    for queue in ("to", "cc", "bcc"):
        channel.declare(queue)
    headers = {"CC": ["cc", "to", "nowhere"], "BCC": ["bcc", "cc"], "kept": 1}
    channel.publish("to", b"m", headers=headers)
    for queue in ("to", "cc", "bcc"):
        found = channel.wait_get(queue)
        assert (found.body, found.routing_key) == (b"m", "to")
        assert found.headers == {"CC": ["cc", "to", "nowhere"], "kept": 1}
        assert channel.get(queue) is None


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_carbon_copies_of_wrong_type(channel: RawChannel, name: str) -> None:
    assert channel.publish_refused("q", b"m", headers={name: "q"}) == refused(
        406,
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",longstr}}',
    )


def test_carbon_copies_that_are_no_strings_do_not_count(channel: RawChannel) -> None:
    channel.declare("q")
    channel.publish("nowhere", b"m", headers={"CC": [1, None, "q"]})
    assert channel.wait_get("q").headers == {"CC": [1, None, "q"]}


def test_carbon_copies_route_by_topic(channel: RawChannel) -> None:
    channel.bind(channel.declare("q"), "amq.topic", "a.*")
    channel.publish("none", b"m", "amq.topic", headers={"CC": ["a.b", "a.c"]})
    assert channel.wait_get("q").routing_key == "none"
    assert channel.get("q") is None


# -- direct reply-to -------------------------------------------------------------------------------

REPLY_TO = "amq.rabbitmq.reply-to"


def test_direct_reply(clients: Clients) -> None:
    asking, answering = clients.channel(), clients.channel()
    answering.declare("rpc")
    asking.consume(REPLY_TO, no_ack=True)
    asking.publish("rpc", b"question", reply_to=REPLY_TO, correlation_id="1")
    question = answering.wait_get("rpc")
    address = question.properties["reply_to"]
    assert address.startswith(f"{REPLY_TO}.")
    found = answering.call("queue.declare", queue=address)
    assert (found.queue, found.message_count, found.consumer_count) == (address, 0, 1)
    answering.call("queue.declare", queue=address, passive=True)
    answering.publish(address, b"answer", correlation_id="1")
    answer = asking.delivery()
    assert (answer.body, answer.exchange, answer.routing_key) == (b"answer", "", address)
    assert answer.properties["correlation_id"] == "1"
    # The address is no queue, so to `mandatory` the message went nowhere.
    answering.publish(address, b"again", mandatory=True)
    assert asking.delivery().body == b"again"
    assert answering.expect("basic.return").reply_code == 312


def test_direct_reply_to_one_who_left(clients: Clients, vhost: str) -> None:
    asking, answering = clients.channel(), clients.channel()
    answering.declare("rpc")
    asking.consume(REPLY_TO, "tag", no_ack=True)
    asking.publish("rpc", b"question", reply_to=REPLY_TO)
    address = answering.wait_get("rpc").properties["reply_to"]
    asking.call("basic.cancel", consumer_tag="tag")
    answering.publish(address, b"late")
    assert asking.quiet()
    answering.publish(address, b"late", mandatory=True)
    assert answering.expect("basic.return").reply_code == 312
    assert answering.refused("queue.declare", queue=address) == refused(
        404, f"NOT_FOUND - no queue '{address}' in vhost '{vhost}'"
    )


def test_direct_reply_misuse(clients: Clients) -> None:
    channel = clients.channel()
    assert channel.refused("basic.consume", queue=REPLY_TO) == refused(
        406, "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    )
    channel = clients.channel()
    channel.consume(REPLY_TO, no_ack=True)
    assert channel.refused("basic.consume", queue=REPLY_TO, no_ack=True) == refused(
        406, "PRECONDITION_FAILED - reply consumer already set"
    )
    channel = clients.channel()
    assert channel.publish_refused("q", b"m", reply_to=REPLY_TO) == refused(
        406, "PRECONDITION_FAILED - fast reply consumer does not exist"
    )


def test_direct_reply_again_after_cancel(channel: RawChannel) -> None:
    for tag in ("a", "b"):
        channel.consume(REPLY_TO, tag, no_ack=True)
        channel.call("basic.cancel", consumer_tag=tag)
