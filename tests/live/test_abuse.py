"""Clients that misbehave, against a broker process of its own: it stays small and serves others."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from raw_client import RawConnection, SocketClosedError, encode, frame

from warren.base.system import PAGE_BYTES
from warren.wire.constants import PROTOCOL_HEADER
from warren.wire.properties import encode_properties

MIB = 1024 * 1024
HOST = "127.0.0.1"
CONFIG = """\
listeners.tcp.default = 127.0.0.1:0
handshake_timeout = 1500
log.console.level = critical
management.tcp.ip = 127.0.0.1
management.tcp.port = 0
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = 0
"""
#: What a busy broker may take and give back without any client being to blame, in bytes.
NOISE_BYTES = 24 * MIB
HEARTBEAT = frame(8, 0, b"")

pytestmark = pytest.mark.slow


@dataclass
class Process:
    """A broker in a process of its own, looked at from outside."""

    pid: int
    port: int

    def connect(self, heartbeat: int = 0, channel_max: int | None = None) -> RawConnection:
        connection = RawConnection(HOST, self.port)
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection.handshake(heartbeat=heartbeat, channel_max=channel_max)

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def check_service(self) -> None:
        """A client that behaves gets its answers."""
        with self.connect() as connection:
            channel = connection.channel()
            channel.call("confirm.select")
            name = channel.declare("", exclusive=True)
            channel.send("basic.publish", routing_key=name)
            connection.send_content(1, {}, b"hello")
            channel.expect("basic.ack")
            channel.send("basic.get", queue=name, no_ack=True)
            assert channel.expect("basic.get-ok").body == b"hello"
            connection.close()


@contextlib.contextmanager
def run_broker(folder: Path, more: str = "") -> Iterator[Process]:
    config = folder / "rabbitmq.conf"
    config.write_text(CONFIG + more)
    ready, tell = os.pipe()
    command = [sys.executable, "-m", "warren", "serve", "--config", str(config), "--in-memory"]
    process = subprocess.Popen(
        [*command, "--ready-fd", str(tell)], pass_fds=[tell], stdout=subprocess.DEVNULL
    )
    os.close(tell)
    with os.fdopen(ready) as pipe:
        url = pipe.readline()
    try:
        assert url, "the broker did not start"
        yield Process(process.pid, int(url.strip().rstrip("/").rsplit(":", 1)[1]))
        assert process.poll() is None, "the broker died"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with run_broker(tmp_path_factory.mktemp("abuse")) as process:
        process.check_service()
        await_all_loaded(process)
        yield process


def await_all_loaded(process: Process) -> None:
    """The API is loaded while clients are served already: some 10 MB that no client has caused."""
    before, same = 0, 0
    deadline = time.monotonic() + 30
    while same < 5 and time.monotonic() < deadline:
        time.sleep(0.2)
        now = process.resident_bytes()
        before, same = now, same + 1 if now == before else 0


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.02)


def is_closed_by_broker(client: socket.socket, timeout_s: float) -> bool:
    client.settimeout(timeout_s)
    try:
        while client.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def push(client: socket.socket, data: bytes, seconds: float) -> int:
    """Send as much as the broker takes within a time; how many bytes that was."""
    client.settimeout(0.25)
    deadline = time.monotonic() + seconds
    sent = at = 0
    while time.monotonic() < deadline:
        try:
            count = client.send(data[at:])
        except TimeoutError:
            break
        sent += count
        at = (at + count) % len(data)
    return sent


def publish_frames(key: str, body: bytes, count: int = 1) -> bytes:
    one = frame(1, 1, encode("basic.publish", routing_key=key))
    one += frame(2, 1, encode_properties({}, len(body)))
    for at in range(0, len(body), 131000):
        one += frame(3, 1, body[at : at + 131000])
    return one * count


# -- before the login ------------------------------------------------------------------------------


@pytest.mark.parametrize("greeting", [b"", b"AM", PROTOCOL_HEADER])
def test_clients_that_never_get_going_are_dropped(broker: Process, greeting: bytes) -> None:
    with socket.create_connection((HOST, broker.port)) as client:
        client.sendall(greeting)
        assert is_closed_by_broker(client, 30.0)


def test_a_trickle_does_not_stretch_the_handshake(broker: Process) -> None:
    """Slowloris: one byte now and then is no progress."""
    # The time for the handshake is over after 1.5 s; this would take 40.
    slow = frame(1, 0, encode("connection.start-ok", mechanism="PLAIN", response=bytes(200)))
    with socket.create_connection((HOST, broker.port)) as client:
        client.sendall(PROTOCOL_HEADER)

        def trickle() -> None:
            for octet in slow:
                client.sendall(bytes((octet,)))
                time.sleep(0.2)

        with pytest.raises(ConnectionError):
            trickle()
        broker.check_service()


def test_large_frames_are_refused_before_the_login(broker: Process) -> None:
    with RawConnection(HOST, broker.port) as client:
        client.greet()
        client.start_ok(response=b"x" * 9000)
        close = client.expect(0, "connection.close")
        assert close.reply_code == 501
        with pytest.raises(SocketClosedError):
            client.read()


def test_a_flood_before_the_login_is_not_kept(broker: Process) -> None:
    before = broker.resident_bytes()
    clients = [socket.create_connection((HOST, broker.port)) for _ in range(50)]
    unfinished = b"\x01\0\0\0\0\x1f\xff" + b"x" * 8190
    for client in clients:
        client.sendall(PROTOCOL_HEADER + unfinished)
    broker.check_service()
    assert broker.resident_bytes() - before < NOISE_BYTES
    for client in clients:
        client.close()


# -- clients that do not read ----------------------------------------------------------------------


def test_a_consumer_that_never_reads(broker: Process) -> None:
    """A full queue for a client that does not read: the messages stay in the queue."""
    with broker.connect() as feeder, broker.connect() as sleeper:
        channel = feeder.channel()
        name = channel.declare("sleeper", auto_delete=False)
        channel.call("confirm.select")
        feeder.socket.sendall(publish_frames(name, bytes(100_000), 300))
        confirmed = 0
        while confirmed < 300:
            confirmed = channel.expect("basic.ack").delivery_tag
        before = broker.resident_bytes()
        sleeper.channel().send("basic.consume", queue=name, no_ack=True)
        time.sleep(0.3)
        broker.check_service()
        assert broker.resident_bytes() - before < 8 * MIB
        ready = channel.call("queue.declare", queue=name, passive=True).message_count
        assert ready > 200
        sleeper.drop()
        channel.call("queue.delete", queue=name)


def test_a_slow_consumer_gets_everything_and_costs_little(broker: Process) -> None:
    with broker.connect() as feeder, broker.connect() as slow:
        channel = feeder.channel()
        channel.declare("slow")
        before = broker.resident_bytes()
        body = bytes(10_000)
        feeder.socket.sendall(publish_frames("slow", body, 1500))
        consumer = slow.channel()
        consumer.send("basic.consume", queue="slow", no_ack=True)
        consumer.expect("basic.consume-ok")
        for number in range(1, 1501):
            if number % 100 == 0:
                time.sleep(0.05)
            found = consumer.expect("basic.deliver")
            assert (found.delivery_tag, len(found.body)) == (number, len(body))
            if number == 500:
                broker.check_service()
        assert broker.resident_bytes() - before < 15 * MIB + NOISE_BYTES
        consumer.call("queue.delete", queue="slow")


@pytest.mark.parametrize("name", ["queue.declare", "basic.get", "basic.qos"])
def test_requests_without_reading_the_replies(broker: Process, name: str) -> None:
    with broker.connect() as flooder:
        channel = flooder.channel()
        channel.declare("flooded")
        before = broker.resident_bytes()
        values = {} if name == "basic.qos" else {"queue": "flooded"}
        push(flooder.socket, frame(1, 1, encode(name, **values)) * 2000, 2.0)
        assert broker.resident_bytes() - before < NOISE_BYTES
        broker.check_service()


def test_few_bytes_do_not_ask_for_many(broker: Process) -> None:
    """The same large message again and again, by get and requeue, and never read."""
    with broker.connect() as greedy:
        channel = greedy.channel()
        channel.declare("large")
        greedy.socket.sendall(publish_frames("large", bytes(MIB)))
        before = broker.resident_bytes()
        get = frame(1, 1, encode("basic.get", queue="large"))
        back = frame(1, 1, encode("basic.nack", multiple=True, requeue=True))
        push(greedy.socket, (get + back) * 1000, 2.0)
        assert broker.resident_bytes() - before < NOISE_BYTES
        broker.check_service()
        greedy.drop()
        time.sleep(0.1)
    with broker.connect() as client:
        client.channel().call("queue.delete", queue="large")


def test_a_client_that_never_reads_is_cut_off_in_the_end(broker: Process) -> None:
    """With a heartbeat, one that takes nothing for two of them is gone."""
    files = broker.open_files()
    with broker.connect(heartbeat=1) as deaf:
        channel = deaf.channel()
        channel.declare("deaf", exclusive=True)
        deaf.socket.sendall(publish_frames("deaf", bytes(MIB)))
        get = frame(1, 1, encode("basic.get", queue="deaf"))
        back = frame(1, 1, encode("basic.nack", multiple=True, requeue=True))
        push(deaf.socket, (get + back) * 1000, 1.0)
        wait_until(lambda: broker.open_files() <= files, "the socket given back")
    broker.check_service()


def test_replies_come_when_the_client_reads_at_last(broker: Process) -> None:
    """Being stopped for not reading loses nothing."""
    with broker.connect() as client:
        channel = client.channel()
        channel.declare("patient")
        body = bytes(200_000)
        client.socket.sendall(publish_frames("patient", body, 60))
        requests = frame(1, 1, encode("basic.get", queue="patient", no_ack=True)) * 60
        client.socket.sendall(requests)
        time.sleep(0.5)
        for _ in range(60):
            assert len(channel.expect("basic.get-ok").body) == len(body)
        channel.call("queue.delete", queue="patient")


# -- publishers ------------------------------------------------------------------------------------


def test_memory_alarm_blocks_publishers(tmp_path: Path) -> None:
    with run_broker(tmp_path) as idle:
        idle.check_service()
        start = idle.resident_bytes()
    mark = start + 48 * MIB
    more = f"vm_memory_high_watermark.absolute = {mark}\n"
    with run_broker(tmp_path, more) as broker, broker.connect() as publisher:
        channel = publisher.channel()
        channel.declare("hoard")
        data = publish_frames("hoard", bytes(4000), 20)
        sent = push(publisher.socket, data, 20.0)
        assert publisher.expect(0, "connection.blocked").reason == "low on memory"
        # Read on for a while: nothing more is taken.
        assert push(publisher.socket, data, 1.0) < 16 * MIB
        assert broker.resident_bytes() < mark + 200 * MIB
        assert sent > 16 * MIB
        with broker.connect() as helper:
            # Those who publish nothing go on as before.
            purged = helper.channel().call("queue.purge", queue="hoard").message_count
            assert purged > 1000
        assert publisher.expect(0, "connection.unblocked")


def test_reset_in_the_middle_of_a_publish(broker: Process) -> None:
    files = broker.open_files()
    for cut in range(1, 400, 7):
        with broker.connect() as client:
            name = client.channel().declare("", exclusive=True)
            client.socket.sendall(publish_frames(name, bytes(300))[:cut])
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    broker.check_service()
    wait_until(lambda: broker.open_files() <= files, "all sockets given back")


# -- many of everything ----------------------------------------------------------------------------


def test_channels_up_to_the_limit_and_no_further(broker: Process) -> None:
    before = broker.resident_bytes()
    with broker.connect() as client:
        for number in range(1, 2048):
            client.send(number, "channel.open")
        for number in range(1, 2048):
            assert client.read().channel == number
        client.send(2048, "channel.open")
        assert client.closed().code == 530
    assert broker.resident_bytes() - before < NOISE_BYTES
    broker.check_service()


def test_65535_channels(broker: Process) -> None:
    """As many as the broker allows are opened, the next one closes the connection."""
    with broker.connect() as client:
        for number in range(1, 65536):
            client.send(number, "channel.open")
        closed = client.closed()
        assert closed.code == 530
        assert "(2047)" in closed.text
    broker.check_service()


def test_a_thousand_connections_come_and_go(broker: Process) -> None:
    files = broker.open_files()
    before = 0
    for round_number in range(5):
        clients = [broker.connect() for _ in range(200)]
        for i, client in enumerate(clients):
            if i % 2:
                client.drop()
            else:
                client.close()
        wait_until(lambda: broker.open_files() <= files, "all sockets given back")
        if round_number == 0:
            before = broker.resident_bytes()
    # Ended connections are garbage in cycles: some wait for the collector's next full round.
    assert broker.resident_bytes() - before < 4 * MIB
    broker.check_service()


# -- heartbeats ------------------------------------------------------------------------------------


def test_silence_ends_a_connection_with_heartbeats(
    broker: Process, judge_time: Callable[[float, float], None]
) -> None:
    with broker.connect(heartbeat=1) as client:
        began = time.monotonic()
        with pytest.raises(SocketClosedError):
            client.read()
        took_s = time.monotonic() - began
        assert took_s > 1.5
        judge_time(took_s, 6.0)
        assert client.heartbeats >= 1


def test_heartbeats_alone_keep_a_connection(broker: Process) -> None:
    with broker.connect(heartbeat=1) as client:
        for _ in range(8):
            client.socket.sendall(HEARTBEAT)
            time.sleep(0.5)
        client.channel().declare("", exclusive=True)


def test_a_flood_of_heartbeats(broker: Process) -> None:
    with broker.connect() as client:
        before = broker.resident_bytes()
        push(client.socket, HEARTBEAT * 5000, 1.0)
        assert broker.resident_bytes() - before < NOISE_BYTES
        broker.check_service()
        client.channel().declare("", exclusive=True)


# -- the end ---------------------------------------------------------------------------------------


def test_clients_that_do_not_answer_our_close_leave_nothing_behind(broker: Process) -> None:
    """They hang up while the broker waits for their answer, again and again."""
    before = 0
    for round_number in range(6):
        clients = [broker.connect() for _ in range(100)]
        for client in clients:
            client.send(0, "channel.flow", active=True)
            assert client.expect(0, "connection.close").reply_code == 504
        # The broker's rounds are a second apart: it has seen them waiting once.
        time.sleep(1.1)
        for client in clients:
            client.drop()
        if round_number == 1:
            before = broker.resident_bytes()
    assert broker.resident_bytes() - before < 2 * MIB


def test_a_client_that_asks_without_pause_does_not_keep_others_waiting(
    broker: Process, judge_time: Callable[[float, float], None]
) -> None:
    """It reads its answers, so nothing holds it back but its fair share."""
    with broker.connect() as flooder:
        flooder.channel().declare("busy")
        requests = frame(1, 1, encode("queue.declare", queue="busy")) * 2000
        answers = flooder.socket.dup()

        def drain() -> None:
            with contextlib.suppress(OSError):
                while answers.recv(MIB):
                    pass

        def flood() -> None:
            with contextlib.suppress(OSError):
                while True:
                    flooder.socket.sendall(requests)

        threads = [threading.Thread(target=drain), threading.Thread(target=flood)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        began = time.monotonic()
        broker.check_service()
        seconds = time.monotonic() - began
        answers.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        answers.close()
    judge_time(seconds, 2.0)
