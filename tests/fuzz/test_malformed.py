"""Each kind of malformed input gets its precise reply code, and nobody else notices."""

from __future__ import annotations

import malformed
import pytest
from malformed import Malformed
from pair import Client, make_engine, method, publish

from warren.engine.engine import Engine
from warren.session.states import ConnectionState


@pytest.fixture(scope="module")
def engine() -> Engine:
    return make_engine()


@pytest.fixture(scope="module")
def neighbour(engine: Engine) -> Client:
    """Somebody else's connection, in use all the time."""
    client = Client(engine, channels=1)
    client.call(1, "queue.declare", queue="neighbour")
    client.call(1, "confirm.select")
    return client


@pytest.mark.parametrize("case", malformed.ALL, ids=lambda case: case.name.replace(" ", "-"))
def test_reply_code(case: Malformed, engine: Engine, neighbour: Client) -> None:
    client = Client(engine, channels=1)
    closes = [f for f in client.exchange(case.data) if f.name.endswith(".close")]
    assert [close["reply_code"] for close in closes] == [case.code]
    assert closes[0].name == ("connection.close" if case.connection else "channel.close")
    assert closes[0].channel == (0 if case.connection else 1)
    assert closes[0]["reply_text"].split(" ")[0].isupper()
    finish(client, case)
    assert neighbour.names(publish(1, "", "neighbour", b"x")) == ["basic.ack"]
    answer, *_ = neighbour.exchange(method(1, "basic.get", 0, "neighbour", True))
    assert answer.name == "basic.get-ok"
    assert engine.channel_count == 1


def finish(client: Client, case: Malformed) -> None:
    """Both sides go on as they must after the close."""
    if case.connection:
        assert client.peer.state == ConnectionState.CLOSING
        client.send(method(0, "connection.close-ok"))
    else:
        assert client.names(method(1, "channel.close-ok") + method(1, "channel.open")) == [
            "channel.open-ok"
        ]
        client.send(method(0, "connection.close", 200))
    assert client.peer.state == ConnectionState.CLOSED


@pytest.mark.parametrize("case", malformed.ALL, ids=lambda case: case.name.replace(" ", "-"))
def test_split_at_every_byte(case: Malformed) -> None:
    """However the bytes are cut, the answers are the same."""
    whole = Client(make_engine(), channels=1)
    whole.send(case.data)
    expected = whole.output()
    cuts = range(1, len(case.data))
    for cut in cuts if len(cuts) < 200 else cuts[:: len(cuts) // 100]:
        client = Client(make_engine(), channels=1)
        client.send(case.data[:cut])
        client.send(case.data[cut:])
        assert client.output() == expected, f"cut at {cut}"


def test_errors_name_their_method() -> None:
    client = Client(make_engine(), channels=1)
    (close,) = client.exchange(publish(1, "none", "key", b"x"))
    assert (close["class_id"], close["method_id"]) == (60, 40)
    client = Client(make_engine(), channels=1)
    (close,) = client.exchange(method(1, "basic.ack", 7))
    assert (close["class_id"], close["method_id"]) == (60, 80)
    client = Client(make_engine(), channels=1)
    (close,) = client.exchange(method(2, "queue.declare"))
    assert (close["class_id"], close["method_id"]) == (50, 10)
