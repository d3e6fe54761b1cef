"""Who is not let in, and that the logs of both sides say why; strangers and their bytes."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections.abc import Callable

import pytest
from peer_nodes import CONTROL, DATA, SECRET, Node, join, node, run, until

from warren.net.peers import handshake
from warren.net.peers.handshake import HELLO, PROOF, Greeting, Hello, Refusal, Role
from warren.net.peers.settings import PeerOptions

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IB", len(payload) + 1, kind) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    data = await reader.readexactly(length)
    return data[0], data[1:]


async def call(target: Node) -> Streams:
    return await asyncio.open_connection(*target.address)


async def ends(reader: asyncio.StreamReader, within_s: float = 30.0) -> None:
    """The other side hangs up."""
    async with asyncio.timeout(within_s):
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass


async def greet(target: Node, name: str = "x", incarnation: int = 1) -> Streams:
    """A connection by hand, as far as the end of the greeting."""
    reader, writer = await call(target)
    own = Hello(Role.DIALLER, "warren-1", name, incarnation, b"n" * 32)
    greeting = Greeting(own, SECRET, lambda _: None)
    answers = greeting.start()
    while answers:
        for kind, payload in answers:
            writer.write(frame(kind, payload))
        if greeting.is_done:
            break
        answers = greeting.take(*await read_frame(reader))
    return reader, writer


def warnings(caplog: pytest.LogCaptureFixture, name: str) -> str:
    return "\n".join(
        r.getMessage()
        for r in caplog.records
        if r.name == f"peers.{name}" and r.levelname == "WARNING"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"secret": b"another"}, Refusal.WRONG_SECRET),
        ({"cluster_id": "warren-2"}, Refusal.OTHER_CLUSTER),
        ({"cluster_id": "", "secret": b"another"}, Refusal.WRONG_SECRET),
    ],
)
def test_both_logs_say_why(
    options: dict[str, object], reason: Refusal, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        a, b = node("a", **options), node("b")
        a.network.set_peers({"b": b.address})
        await until(lambda: a.network.status()[0].last_refusal)
        assert reason.text in (a.network.status()[0].last_refusal or "")
        assert f"refuses us: {reason.text}" in warnings(caplog, "a")
        assert f"refused by us: {reason.text}" in warnings(caplog, "b")
        assert "'a'" in warnings(caplog, "b")
        # It goes on trying, and the logs do not grow with it.
        await asyncio.sleep(0.5)
        assert warnings(caplog, "a").count("\n") == 0
        assert warnings(caplog, "b").count("\n") == 0
        assert not a.notes.events
        assert not b.notes.events
        everything = caplog.text
        assert "carrots" not in everything
        assert "another'" not in everything

    run(scenario)


def test_a_node_about_to_join_is_let_in() -> None:
    async def scenario() -> None:
        a, b = node("a", cluster_id=""), node("b")
        await join(a, b)

    run(scenario)


def test_the_owner_decides_on_members(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        b.notes.refuse["a"] = Refusal.NOT_A_MEMBER
        a.network.set_peers({"b": b.address})
        await until(lambda: a.network.status()[0].last_refusal)
        assert Refusal.NOT_A_MEMBER.text in warnings(caplog, "a")
        del b.notes.refuse["a"]
        await until(lambda: a.is_up("b"))
        assert a.network.status()[0].last_refusal is None

    run(scenario)


def test_an_older_incarnation(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        b = node("b")
        new = node("a", incarnation=5)
        new.network.set_peers({"b": b.address})
        await until(lambda: new.is_up("b"))
        old = node("a", incarnation=4)
        old.network.set_peers({"b": b.address})
        await until(lambda: old.network.status()[0].last_refusal)
        assert Refusal.OLDER_INCARNATION.text in warnings(caplog, "b")
        assert new.is_up("b")
        assert b.notes.count("lost", "home", "a") == 0
        new.network.close()
        b.network.forget("a")
        await until(lambda: old.is_up("b"))

    run(scenario)


def test_a_dialler_refuses_an_older_incarnation() -> None:
    async def scenario() -> None:
        a, new = node("a"), node("b", incarnation=5)
        await join(a, new)
        new.network.close()
        old = node("b", incarnation=4, port=new.port)
        await until(lambda: a.network.status()[0].last_refusal)
        assert "newer incarnation" in (a.network.status()[0].last_refusal or "")
        assert a.notes.count("up", "b", 4) == 0
        assert old.notes.events == []

    run(scenario)


def test_oneself_and_another_name(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        a.network.set_peers({"c": a.address, "d": b.address})
        await until(lambda: all(peer.last_refusal for peer in a.network.status()))
        reasons = [peer.last_refusal or "" for peer in a.network.status()]
        assert Refusal.ONESELF.text in reasons[0]
        assert Refusal.OTHER_NAME.text in reasons[1]
        assert not a.is_up("c")
        assert not a.is_up("d")
        await until(lambda: Refusal.OTHER_NAME.text in warnings(caplog, "b"))

    run(scenario)


def test_an_unknown_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        b = node("b")
        reader, writer = await call(b)
        hello = Hello(Role.DIALLER, "warren-1", "x", 1, b"n" * 32)
        writer.write(frame(HELLO, handshake.encode_hello(hello, 2)))
        assert await read_frame(reader) == (3, bytes((Refusal.UNKNOWN_VERSION,)))
        await ends(reader)
        assert Refusal.UNKNOWN_VERSION.text in warnings(caplog, "b")

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: b\r\n\r\n",
        b"AMQP\0\0\x09\x01",
        b"\0\0\0\0\0\0\0\0",
        b"\0\0\x10\x01",  # one byte more than a greeting may have
        frame(CONTROL, b"vote"),
        frame(DATA, b"publish"),
        frame(PROOF, b"p" * 32),
        frame(4),
        frame(HELLO, b"no hello"),
        frame(HELLO, handshake.MARK + b"\x01" + b"\xdd\xff\xff\xff\xff"),
        frame(3),
        frame(200, b"?"),
    ],
)
def test_garbage_before_the_greeting(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        b = node("b", options=PeerOptions())
        reader, writer = await call(b)
        writer.write(garbage)
        await ends(reader)
        assert warnings(caplog, "b").count("\n") == 0
        assert "cannot be right" in warnings(caplog, "b")
        assert not b.notes.events

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0\0\0\0",
        struct.pack(">I", (1 << 20) + 65),
        b"\xff\xff\xff\xff",
        frame(HELLO, b"again"),
        frame(15, b"?"),
        frame(96, b"?"),
        frame(255, b"?"),
        frame(5, b"\0" * 8),  # credit, to one who is not limited
        frame(6),  # a piece of nothing
        frame(3),  # a refusal without a reason
    ],
)
def test_garbage_after_the_greeting(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        b = node("b", options=PeerOptions())
        reader, writer = await greet(b)
        await until(lambda: b.notes.home_links)
        writer.write(garbage)
        await ends(reader)
        assert b.notes.count("lost", "home", "x") == 1
        assert "cannot be right" in warnings(caplog, "b")

    run(scenario)


def test_control_frames_without_an_end() -> None:
    async def scenario() -> None:
        b = node("b", options=PeerOptions())
        reader, writer = await greet(b)
        piece = frame(6, bytes(1 << 20))
        for _ in range(17):
            writer.write(piece)
        await ends(reader)
        assert b.notes.control == []

    run(scenario)


def test_more_data_than_granted_is_not_taken() -> None:
    async def scenario() -> None:
        b = node("b", options=PeerOptions(window_bytes=1 << 16))
        b.network.hold_credit(True)
        reader, writer = await greet(b)
        writer.write(frame(DATA, b"x"))
        await ends(reader)
        assert b.notes.frames == []

    run(scenario)


def test_half_a_greeting_does_not_last(judge_time: Callable[[float, float], None]) -> None:
    async def scenario() -> None:
        b = node("b")
        silent, _ = await call(b)
        reader, writer = await call(b)
        hello = Hello(Role.DIALLER, "warren-1", "x", 1, b"n" * 32)
        writer.write(frame(HELLO, handshake.encode_hello(hello)))
        began = time.monotonic()
        await ends(silent)
        await ends(reader)
        took = time.monotonic() - began
        assert took > 0.2
        judge_time(took, 1.5)

    run(scenario)


def test_a_reset_that_comes_with_bytes_is_told_at_once(
    judge_time: Callable[[float, float], None],
) -> None:
    async def scenario() -> None:
        b = node("b", options=PeerOptions())
        _, writer = await greet(b)
        await until(lambda: b.notes.home_links)
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.write(frame(DATA, b"last words"))
        writer.transport.abort()
        began = time.monotonic()
        await until(lambda: b.notes.count("lost", "home", "x"))
        judge_time(time.monotonic() - began, 0.4)

    run(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_spoiled_frames_never_hurt_the_node(seed: int) -> None:
    async def scenario() -> None:
        dice = random.Random(seed)
        b, other = node("b"), node("a")
        other.network.set_peers({"b": b.address})
        await until(lambda: other.is_up("b"))
        for number in range(15):
            reader, writer = await greet(b, f"x{number}")
            data = bytearray()
            for _ in range(30):
                kind = dice.choice([CONTROL, DATA, 4, 5, 6, 7, dice.randrange(256)])
                data += frame(kind, dice.randbytes(dice.choice([0, 1, 8, 8, 100, 5000])))
            for _ in range(dice.randrange(3)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            cut = dice.randrange(len(data))
            writer.write(data[:cut])
            await asyncio.sleep(0)
            writer.write(data[cut:])
            writer.close()
            await ends(reader)
        assert other.is_up("b")
        assert other.notes.count("down", "b") == 0

    run(scenario)


def test_one_octet_at_a_time() -> None:
    async def scenario() -> None:
        b = node("b")
        _, writer = await greet(b)
        for octet in frame(DATA, b"slow") + frame(CONTROL, b"too"):
            writer.write(bytes((octet,)))
            await asyncio.sleep(0.002)
        await until(lambda: b.notes.frames and b.notes.control)
        assert b.notes.frames == [("x", DATA, b"slow")]

    run(scenario)


def test_strangers_push_each_other_out() -> None:
    async def scenario() -> None:
        b = node("b", options=PeerOptions(strangers_max=3))
        strangers = [await call(b) for _ in range(4)]
        await ends(strangers[0][0])
        with pytest.raises(TimeoutError):
            await ends(strangers[1][0], 0.1)
        a = node("a")
        a.network.set_peers({"b": b.address})
        await until(lambda: a.is_up("b"))

    run(scenario)


def test_nobody_home_behind_an_open_port() -> None:
    async def scenario() -> None:
        # The kernel takes the call, and nobody ever picks it up.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            a = node("a")
            port = silent.getsockname()[1]
            a.network.set_peers({"b": ("127.0.0.1", port), "c": ("no.such.host.invalid", 1)})
            await asyncio.sleep(0.8)
            assert not a.notes.events
            assert not any(peer.connected for peer in a.network.status())

    run(scenario)
