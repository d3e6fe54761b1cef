"""The handshake, word for word, and each way it can go wrong."""

from __future__ import annotations

import pytest
from pair import CAPABILITIES, Client, Received, frame, handshake, make_engine, method

import warren
from warren.session.states import ConnectionState
from warren.wire.constants import PROTOCOL_HEADER

START_OK = handshake()[1][0]


def words(frames: list[Received]) -> list[str]:
    """Frames as a transcript has them."""
    return [f"{received.channel} {received.name} {received.values}" for received in frames]


def transcript(client: Client, *steps: bytes) -> list[str]:
    lines = []
    for data in steps:
        lines += words(client.exchange(data))
    return lines


def test_golden_transcript() -> None:
    client = Client(make_engine(node_name="n@h", cluster_name="c"), login=False)
    steps = [data for data, _ in handshake()]
    closing = method(0, "connection.close", 200, "bye")
    properties = {
        "capabilities": dict.fromkeys(
            (
                "publisher_confirms",
                "exchange_exchange_bindings",
                "basic.nack",
                "consumer_cancel_notify",
                "connection.blocked",
                "consumer_priorities",
                "authentication_failure_close",
                "per_consumer_qos",
                "direct_reply_to",
            ),
            True,
        ),
        "cluster_name": "c",
        "copyright": "Licensed under the Apache License 2.0",
        "information": f"Warren {warren.__version__}, a broker for AMQP 0-9-1",
        "platform": "Warren",
        "product": "RabbitMQ",
        "version": "3.13.7",
        "warren_version": warren.__version__,
    }
    assert transcript(client, *steps, method(1, "channel.open"), closing) == [
        f"0 connection.start {(0, 9, properties, b'PLAIN AMQPLAIN', b'en_US')}",
        "0 connection.tune (2047, 131072, 60)",
        "0 connection.open-ok ('',)",
        "1 channel.open-ok (b'',)",
        "0 connection.close-ok ()",
    ]
    assert client.peer.state == ConnectionState.CLOSED
    assert not client.engine.connections


@pytest.mark.parametrize(
    "greeting",
    [
        b"AMQP\x01\x01\x00\x09",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"GET / HTTP/1.1\r\n",
        b"G",
        b"\0" * 8,
    ],
)
def test_other_protocols_are_told_ours(greeting: bytes) -> None:
    client = Client(make_engine(), login=False)
    client.send(greeting)
    assert client.output() == PROTOCOL_HEADER
    assert client.peer.state == ConnectionState.CLOSED


def test_greeting_may_come_byte_by_byte() -> None:
    client = Client(make_engine(), login=False)
    for octet in PROTOCOL_HEADER[:-1]:
        client.send(bytes((octet,)))
        assert client.output() == b""
    assert [received.name for received in client.exchange(PROTOCOL_HEADER[-1:])] == [
        "connection.start"
    ]


def start_ok(mechanism: str, response: bytes, capable: bool = True) -> bytes:
    properties = {"capabilities": CAPABILITIES} if capable else {}
    return method(0, "connection.start-ok", properties, mechanism, response, "en_US")


@pytest.mark.parametrize(
    ("mechanism", "response", "code"),
    [
        ("PLAIN", b"\0guest\0wrong", 403),
        ("PLAIN", b"\0nobody\0guest", 403),
        ("PLAIN", b"\0\xff\xfe\0\xff", 403),
        ("PLAIN", b"", 502),
        ("PLAIN", b"\0guest", 502),
        ("AMQPLAIN", b"\xff\xff", 502),
        ("AMQPLAIN", b"", 502),
        ("MAGIC", b"", 503),
        ("", b"", 503),
    ],
)
def test_refused_logins(mechanism: str, response: bytes, code: int) -> None:
    client = Client(make_engine(), login=False)
    client.exchange(PROTOCOL_HEADER)
    (close,) = client.exchange(start_ok(mechanism, response))
    assert (close.name, close["reply_code"]) == ("connection.close", code)


def test_old_clients_see_the_socket_closed_when_login_fails() -> None:
    client = Client(make_engine(), login=False)
    client.exchange(PROTOCOL_HEADER)
    assert client.exchange(start_ok("PLAIN", b"\0guest\0wrong", capable=False)) == []
    assert client.peer.state == ConnectionState.CLOSED


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "code"),
    [
        (2047, 131072, None),
        (1, 4096, None),
        (2048, 131072, 530),
        (0, 131072, 530),
        (2047, 131073, 530),
        (2047, 4095, 530),
        (2047, 0, 530),
    ],
)
def test_tuning(channel_max: int, frame_max: int, code: int | None) -> None:
    client = Client(make_engine(), login=False)
    client.exchange(PROTOCOL_HEADER)
    client.exchange(START_OK)
    answers = client.exchange(method(0, "connection.tune-ok", channel_max, frame_max, 0))
    assert [answer["reply_code"] for answer in answers] == ([] if code is None else [code])


def test_no_limit_is_fine_when_the_broker_has_none() -> None:
    client = Client(make_engine(frame_max=0, channel_max=0), login=False)
    client.login(frame_max=0, channel_max=0)
    assert client.call(65535, "channel.open").name == "channel.open-ok"


@pytest.mark.parametrize("vhost", ["", "nowhere", "//", "\udcff"])
def test_unknown_vhosts(vhost: str) -> None:
    client = Client(make_engine(), login=False)
    for data, _ in handshake()[:3]:
        client.exchange(data)
    close = client.call(0, "connection.open", vhost)
    assert (close.name, close["reply_code"]) == ("connection.close", 530)


def test_frames_are_small_before_the_login() -> None:
    limit = 8192
    client = Client(make_engine(), login=False)
    client.exchange(PROTOCOL_HEADER)
    response = b"\0guest\0" + b"x" * limit
    (close,) = client.exchange(start_ok("PLAIN", response))
    assert (close.name, close["reply_code"]) == ("connection.close", 501)
    assert client.peer.state == ConnectionState.CLOSED


def test_a_length_alone_is_enough_to_refuse_a_frame() -> None:
    client = Client(make_engine(), login=False)
    client.exchange(PROTOCOL_HEADER)
    (close,) = client.exchange(b"\x01\0\0\xff\xff\xff\xff")
    assert close["reply_code"] == 501


@pytest.mark.parametrize("repeats", [1, 2])
def test_tune_ok_comes_once(repeats: int) -> None:
    client = Client(make_engine(), login=False)
    client.exchange(PROTOCOL_HEADER)
    client.exchange(START_OK)
    tune_ok = handshake()[2][0]
    answers = client.exchange(tune_ok * repeats)
    assert [answer["reply_code"] for answer in answers] == [504] * (repeats - 1)


def test_heartbeats_are_taken_in_every_state() -> None:
    client = Client(make_engine(), login=False)
    heartbeat = frame(8, 0, b"")
    for data, expected in handshake():
        assert client.names(data + heartbeat) == expected
