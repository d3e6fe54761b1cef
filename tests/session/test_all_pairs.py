"""Every state of a connection and a channel × every method: nothing but legal outcomes.

Legal are: silence, an answer to the method, a close of the channel or the connection with a code
from the protocol. An exception is never legal, nor is a code that blames the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pair import CAPABILITIES, Client, frame, handshake, header, make_engine, method, payload

from warren.session.states import ConnectionState
from warren.wire.spec import METHODS, Method

STEPS = [data for data, _ in handshake()]
CHANNEL_CODES = {403, 404, 405, 406}
CONNECTION_CODES = {403, 501, 502, 503, 504, 505, 530, 540}
#: What may follow each method besides its own `-ok`.
EXTRAS = {
    "basic.consume": {"basic.deliver"},
    "basic.recover": {"basic.deliver"},
    "basic.recover-async": {"basic.deliver"},
    "basic.reject": {"basic.deliver"},
    "basic.nack": {"basic.deliver"},
    "basic.ack": {"basic.deliver"},
    "basic.qos": {"basic.deliver"},
    "basic.get": {"basic.get-empty"},
    "queue.delete": {"basic.cancel"},
    "connection.start-ok": {"connection.tune"},
}


def after_steps(count: int) -> Callable[[], Client]:
    def make() -> Client:
        client = Client(make_engine(), login=False)
        for data in STEPS[:count]:
            client.exchange(data)
        return client

    return make


def running(*frames: bytes) -> Callable[[], Client]:
    """A connection with channel 1 open, a queue with three messages, and these frames sent."""

    def make() -> Client:
        client = Client(make_engine(), channels=1)
        client.call(1, "queue.declare", queue="q")
        for _ in range(3):
            client.send(method(1, "basic.publish", 0, "", "q") + header(1, 0))
        client.send(b"".join(frames))
        client.output()
        return client

    return make


CLOSING_CHANNEL = method(1, "basic.get", 0, "none")
CLOSING_CONNECTION = method(1, "basic.recover", False)
STATES: dict[str, Callable[[], Client]] = {
    "await start-ok": after_steps(1),
    "await tune-ok": after_steps(2),
    "await open": after_steps(3),
    "open": after_steps(4),
    "channel open": running(),
    "channel closed": running(method(1, "channel.close")),
    "channel closing": running(CLOSING_CHANNEL),
    "awaiting header": running(method(1, "basic.publish", 0, "", "q")),
    "awaiting body": running(method(1, "basic.publish", 0, "", "q"), header(1, 5)),
    "consuming": running(method(1, "basic.consume", 0, "q", "c")),
    "consuming with a limit": running(
        method(1, "basic.qos", 0, 1, True), method(1, "basic.consume", 0, "q", "c")
    ),
    "delivery outstanding": running(method(1, "basic.get", 0, "q")),
    "confirming": running(method(1, "confirm.select")),
    "in a transaction": running(method(1, "tx.select"), method(1, "basic.get", 0, "q")),
    "queue deleted": running(method(1, "basic.get", 0, "q"), method(1, "queue.delete", 0, "q")),
    "connection closing": running(CLOSING_CONNECTION),
    "connection closed": running(CLOSING_CONNECTION, method(0, "connection.close-ok")),
}


def versions(known: Method) -> Iterator[bytes]:
    """A method's payload with all its fields zero, with sensible ones, and with all bits set."""
    yield payload(known.name)
    sensible = {
        "queue": "q",
        "exchange": "amq.topic",
        "source": "amq.topic",
        "destination": "amq.fanout",
        "type": "topic",
        "routing_key": "k",
        "consumer_tag": "c",
        "delivery_tag": 1,
        "virtual_host": "/",
        "mechanism": "PLAIN",
        "response": b"\0guest\0guest",
        "channel_max": 10,
        "frame_max": 4096,
        "client_properties": {"capabilities": CAPABILITIES},
    }
    named = {field: sensible[field] for field, _ in known.fields if field in sensible}
    yield payload(known.name, **named)
    bits = {field: True for field, kind in known.fields if kind == "bit"}
    if bits:
        yield payload(known.name, **named, **bits)


def check_outcome(client: Client, known: Method, channel: int) -> None:
    for received in client.frames():
        if not received.name:
            continue
        if received.name == "channel.close":
            assert received["reply_code"] in CHANNEL_CODES
            assert received.channel == channel != 0
        elif received.name == "connection.close":
            assert received["reply_code"] in CONNECTION_CODES
            assert received.channel == 0
            assert client.peer.state >= ConnectionState.CLOSING
        else:
            allowed = EXTRAS.get(known.name, set()) | {f"{known.name}-ok"}
            assert received.name in allowed


def check_end(client: Client) -> None:
    for queue in client.engine.vhosts["/"].queues.values():
        queue.check()
    client.hang_up()
    assert client.engine.channel_count == 0
    assert not client.engine.connections
    for queue in client.engine.vhosts["/"].queues.values():
        queue.check()
        assert queue.unacked == 0
        assert not queue.consumers


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("channel", [0, 1, 2])
def test_every_method_in_every_state(state: str, channel: int) -> None:
    for known in METHODS.values():
        for data in versions(known):
            client = STATES[state]()
            client.send(frame(1, channel, data))
            check_outcome(client, known, channel)
            check_end(client)


@pytest.mark.parametrize("state", STATES)
def test_every_content_frame_in_every_state(state: str) -> None:
    for channel in (0, 1, 2):
        for data in (header(channel, 0), header(channel, 5), frame(3, channel, b"hello")):
            client = STATES[state]()
            client.send(data)
            for received in client.frames():
                assert received.name == "connection.close"
                assert received["reply_code"] in {501, 503, 504, 505}
            check_end(client)


@pytest.mark.parametrize("state", STATES)
def test_two_methods_in_a_row(state: str) -> None:
    """What one method leaves behind must not upset the next; the engine stays sound."""
    firsts = [payload("channel.open"), payload("tx.select"), payload("channel.close")]
    for first in firsts:
        for known in METHODS.values():
            client = STATES[state]()
            for data in versions(known):
                client.send(frame(1, 1, first) + frame(1, 1, data))
            client.frames()
            check_end(client)
