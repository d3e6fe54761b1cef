"""`warrenctl bench`: how fast this broker is, seen by a client on this machine.

Three loads, one after the other: as much as goes through from a publisher to a consumer, persistent
messages with confirms, and single messages at an easy pace for the times they take. Client and
broker share the machine, so the numbers are a floor. With options that say how many clients and of
what kind there is one load instead, that one (`bench_load.py`).
"""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from warren.ctl.command import Command, Run, number
from warren.ctl.errors import UNAVAILABLE, CtlError, usage

if TYPE_CHECKING:
    from warren.client.address import BrokerAddress
    from warren.client.blocking import BlockingConnection

#: Publishes that may wait for their confirm.
WINDOW = 1000
#: Messages sent with one call.
BATCH = 100
#: The easy pace, a second.
EASY_PACE = 500
_NOW = struct.Struct(">d")
_COLUMNS = ("load", "messages", "msg_per_s", "mb_per_s", "p50_ms", "p99_ms", "max_ms")


def bench(run: Run) -> None:
    from warren.client.connection import ClientError

    size = number(run.options.get("size", "200"), "size")
    seconds = number(run.options.get("seconds", "3"), "seconds")
    if not 8 <= size <= 100_000 or not 1 <= seconds <= 600:
        raise usage("size must be between 8 and 100000, seconds between 1 and 600")
    from warren.ctl.bench_load import own_load

    load_of_ones_own = own_load(run)
    address = _address(run)
    queue = f"warrenctl.bench.{secrets.token_hex(4)}"
    if load_of_ones_own is not None:
        _own(run, load_of_ones_own, address, queue, seconds)
        return
    run.banner(f"Measuring {address.shown} with messages of {size} bytes, {seconds} s a load ...")
    rows: list[dict[str, Any]] = []
    loads: tuple[Callable[[BrokerAddress, str, int, int], list[dict[str, Any]]], ...] = (
        _through,
        _confirmed,
        _easy,
    )
    try:
        for load in loads:
            found = load(address, queue, size, seconds)
            rows += found
            if run.formatter == "table":
                for row in found:
                    run.say(_line(row))
    except ClientError as error:
        raise CtlError(UNAVAILABLE, f"Error: {error}") from error
    finally:
        _tidy_up(address, queue)
    if run.formatter != "table":
        run.table(rows, _COLUMNS)


def _own(run: Run, load: dict[str, Any], address: BrokerAddress, queue: str, seconds: int) -> None:
    """The load that the options describe, its clients in processes of their own."""
    from urllib.parse import quote

    from warren.client.blocking import BlockingConnection
    from warren.client.connection import ClientError
    from warren.ctl.bench_load import measure

    user, password = quote(address.user, safe=""), quote(address.password, safe="")
    place = f"{address.host or '127.0.0.1'}:{address.port}"
    uri = f"amqp://{user}:{password}@{place}/{quote(address.vhost, safe='')}"
    clients = f"{load['producers']} producers and {load['consumers']} consumers"
    run.banner(f"Measuring {address.shown} with {clients} for {seconds} s ...")
    try:
        with BlockingConnection(address, "warrenctl bench") as connection:
            _declare(connection, queue, load["persistent"])
        rows = measure(load, uri, queue, seconds)
    except ClientError as error:
        raise CtlError(UNAVAILABLE, f"Error: {error}") from error
    finally:
        _tidy_up(address, queue)
    if run.formatter != "table":
        run.table(rows, _COLUMNS)
        return
    for row in rows:
        run.say(_line(row))


def _line(row: dict[str, Any]) -> str:
    parts = []
    if row["msg_per_s"] is not None:
        parts.append(f"{row['msg_per_s']:>11,} msg/s {row['mb_per_s']:>9,.1f} MB/s")
    if row["p50_ms"] is not None:
        times = (f"{name} {row[f'{name}_ms']:.2f} ms" for name in ("p50", "p99", "max"))
        parts.append("   ".join(times))
    return f"{row['load']:<42} {'   '.join(parts)}"


def _address(run: Run) -> BrokerAddress:
    """What was named, or the AMQP listener of the node that is spoken to, as guest."""
    from warren.client.address import BadAddress, parse_address

    try:
        if "uri" in run.options:
            return parse_address(run.options["uri"])
        rows = run.client.get("/overview?columns=listeners")["listeners"]
        ports = [row["port"] for row in rows if row["protocol"] == "amqp"]
        if not ports:
            raise CtlError(UNAVAILABLE, "Error: the node has no listener without TLS: name --uri")
        from urllib.parse import quote

        host, vhost = run.client.host, quote(run.vhost, safe="")
        return parse_address(f"amqp://guest:guest@{host}:{ports[0]}/{vhost}")
    except BadAddress as error:
        raise usage(str(error)) from error


def _declare(connection: BlockingConnection, queue: str, durable: bool) -> None:
    connection.call("queue.declare", 0, queue, False, durable, False, False, False, {})


def _tidy_up(address: BrokerAddress, queue: str) -> None:
    from warren.client.blocking import BlockingConnection
    from warren.client.connection import ClientError

    try:
        with BlockingConnection(address, "warrenctl bench") as connection:
            for name in (queue, f"{queue}.kept"):
                connection.call("queue.delete", 0, name, False, False, False)
    except ClientError:
        # The node is gone, and said so already.
        return


def _publish(queue: str, size: int, persistent: bool, body: bytes = b"") -> bytes:
    from warren.client.connection import CHANNEL
    from warren.client.frames import content_frames, method_frame
    from warren.wire.properties import encode_properties

    body = body.ljust(size, b"x")
    header = encode_properties({"delivery_mode": 2} if persistent else {}, size)
    return method_frame(CHANNEL, "basic.publish", 0, "", queue, False, False) + content_frames(
        CHANNEL, header, body, 131_072
    )


def _row(load: str, count: int, seconds: float, size: int) -> dict[str, Any]:
    rate = count / seconds
    return {
        "load": load,
        "messages": count,
        "msg_per_s": round(rate),
        "mb_per_s": round(rate * size / 1e6, 1),
        "p50_ms": None,
        "p99_ms": None,
        "max_ms": None,
    }


def _through(address: BrokerAddress, queue: str, size: int, seconds: int) -> list[dict[str, Any]]:
    """Deliveries are all of one length, so the consumer counts bytes."""
    from warren.client.blocking import READ_BYTES, BlockingConnection
    from warren.wire.constants import FRAME_BODY

    with (
        BlockingConnection(address, "warrenctl bench: publisher") as publisher,
        BlockingConnection(address, "warrenctl bench: consumer") as consumer,
    ):
        _declare(publisher, queue, False)
        consumer.call("basic.consume", 0, queue, "c", False, True, False, False, {})
        one = _publish(queue, size, False)
        publisher.socket.sendall(one)
        length = 0
        while True:
            frames = consumer.take_frames()
            length += sum(len(payload) + 8 for _, _, payload in frames)
            if frames[-1][0] == FRAME_BODY:
                break
        is_over = threading.Event()

        def send() -> None:
            batch = one * BATCH
            while not is_over.is_set():
                publisher.socket.sendall(batch)

        sender = threading.Thread(target=_quietly(send), daemon=True)
        room = bytearray(READ_BYTES)
        begun_s = time.perf_counter()
        sender.start()
        count = 0
        while time.perf_counter() - begun_s < seconds:
            count += consumer.socket.recv_into(room)
        spent_s = time.perf_counter() - begun_s
        is_over.set()
        publisher.socket.shutdown(2)
        sender.join(5)
    return [_row("publish to consume, auto-ack", count // length, spent_s, size)]


def _quietly(work: Callable[[], None]) -> Callable[[], None]:
    """A sender whose socket is closed under it has nothing to tell."""

    def run() -> None:
        try:
            work()
        except OSError:
            return

    return run


def _confirmed(address: BrokerAddress, queue: str, size: int, seconds: int) -> list[dict[str, Any]]:
    from warren.client.blocking import BlockingConnection
    from warren.wire.methods import decode_method

    with BlockingConnection(address, "warrenctl bench: publisher") as publisher:
        kept = f"{queue}.kept"
        _declare(publisher, kept, True)
        publisher.call("confirm.select", False)
        batch = _publish(kept, size, True) * BATCH
        sent = told = 0
        begun_s = time.perf_counter()
        while (spent_s := time.perf_counter() - begun_s) < seconds or told < sent:
            while sent - told <= WINDOW - BATCH and spent_s < seconds:
                publisher.socket.sendall(batch)
                sent += BATCH
            for _, _, payload in publisher.take_frames():
                method, arguments = decode_method(payload)
                if method.name in {"basic.ack", "basic.nack"}:
                    told = max(told, arguments[0])
    return [_row(f"persistent, confirmed, {WINDOW} in flight", told, spent_s, size)]


def _easy(address: BrokerAddress, queue: str, size: int, seconds: int) -> list[dict[str, Any]]:
    """A message at a time: from publish to delivery, and from publish to confirm."""
    from warren.client.blocking import BlockingConnection
    from warren.wire.constants import FRAME_BODY

    delivered: list[float] = []
    confirmed: list[float] = []
    with (
        BlockingConnection(address, "warrenctl bench: publisher") as publisher,
        BlockingConnection(address, "warrenctl bench: consumer") as consumer,
    ):
        kept = f"{queue}.kept"
        publisher.call("queue.purge", 0, kept, False)
        publisher.call("confirm.select", False)
        consumer.call("basic.consume", 0, kept, "c", False, True, False, False, {})

        def receive() -> None:
            while True:
                for kind, _, payload in consumer.take_frames():
                    if kind == FRAME_BODY:
                        delivered.append(time.perf_counter() - _NOW.unpack_from(payload)[0])

        receiver = threading.Thread(target=_until_closed(receive), daemon=True)
        receiver.start()
        begun_s = time.perf_counter()
        while (now_s := time.perf_counter()) - begun_s < seconds:
            publisher.socket.sendall(_publish(kept, size, True, _NOW.pack(now_s)))
            publisher.wait("basic.ack")
            confirmed.append(time.perf_counter() - now_s)
            time.sleep(max(0.0, 1 / EASY_PACE - confirmed[-1]))
        waited_s = time.perf_counter()
        while len(delivered) < len(confirmed) and time.perf_counter() - waited_s < 5:
            time.sleep(0.01)
        consumer.socket.shutdown(2)
        receiver.join(5)
    return [
        _times("one at a time, publish to deliver", delivered),
        _times("one at a time, publish to confirm", confirmed),
    ]


def _until_closed(work: Callable[[], None]) -> Callable[[], None]:
    from warren.client.connection import ClientError

    def run() -> None:
        try:
            work()
        except (ClientError, OSError):
            return

    return run


def _times(load: str, took_s: list[float]) -> dict[str, Any]:
    took_s.sort()
    last = len(took_s) - 1
    if last < 0:
        raise CtlError(UNAVAILABLE, "Error: nothing came back")
    return {
        "load": load,
        "messages": len(took_s),
        "msg_per_s": None,
        "mb_per_s": None,
        "p50_ms": round(took_s[last // 2] * 1000, 3),
        "p99_ms": round(took_s[last * 99 // 100] * 1000, 3),
        "max_ms": round(took_s[last] * 1000, 3),
    }


COMMANDS = (
    Command(
        "bench",
        "",
        "Measures rates and times of publishing, consuming and confirming",
        bench,
        {
            "size": True,
            "seconds": True,
            "uri": True,
            "producers": True,
            "consumers": True,
            "sizes": True,
            "window": True,
            "rate": True,
            "prefetch": True,
            "transient": False,
        },
    ),
)
