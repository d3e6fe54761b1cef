"""A disk that fills up, for real: publishers wait, consumers go on, and all recovers by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from raw_client import RawChannel, RawConnection
from test_cli_dev import Command

DISK_BYTES = 200_000_000
FREE_WHEN_FULL_BYTES = 30_000_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, where this process may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def broker(small_disk: Path) -> Iterator[Command]:
    command = Command(
        "dev", "--port", "0", "--log-level", "info", "--data-dir", str(small_disk / "data")
    )
    yield command
    command.kill()


def fill(disk: Path) -> Path:
    """A file of somebody else that leaves less than the limit of 50 MB."""
    path = disk / "other"
    found = os.statvfs(disk)
    with path.open("wb") as file:
        free = found.f_bavail * found.f_frsize
        os.posix_fallocate(file.fileno(), 0, free - FREE_WHEN_FULL_BYTES)
    return path


def test_it_blocks_publishers_and_recovers(small_disk: Path, broker: Command) -> None:
    port = urlsplit(broker.url).port
    assert port is not None
    publisher, consumer = (
        RawConnection("127.0.0.1", port).handshake("/").channel() for _ in range(2)
    )
    consumer.declare("q")
    for body in (b"1", b"2"):
        publisher.publish("q", body)
    consumer.wait_depth("q", 2)
    for _ in range(2):
        other = fill(small_disk)
        wait_for_log(broker, "disk alarm (")
        publisher.publish("q", b"3")
        assert publisher.expect("connection.blocked").reason == "low on disk"
        publisher.publish("q", b"4")
        # What waits can be had meanwhile, and all else works.
        consumer.consume("q", "c")
        take(consumer, b"1", b"2")
        with RawConnection("127.0.0.1", port).handshake("/") as newcomer:
            newcomer.channel().declare("also.now", exclusive=True)
        other.unlink()
        publisher.expect("connection.unblocked")
        wait_for_log(broker, "disk alarm cleared (")
        take(consumer, b"3", b"4")
        consumer.call("basic.cancel", consumer_tag="c")
        for body in (b"1", b"2"):
            publisher.publish("q", body)
        consumer.wait_depth("q", 2)
    assert broker.stop()[0] == 0


def test_a_publisher_cannot_fill_the_disk(small_disk: Path, broker: Command) -> None:
    """It is told to wait before anything fails, and goes on when consumers have made room.

    Three times as much as the disk has room for, persistent and confirmed.
    """
    port = urlsplit(broker.url).port
    assert port is not None
    publisher, consumer = (
        RawConnection("127.0.0.1", port).handshake("/").channel() for _ in range(2)
    )
    publisher.declare("q", durable=True)
    publisher.call("confirm.select")
    size, sent, confirmed, taken, blocked = 200_000, 0, 0, 0, 0
    while sent * size < 3 * DISK_BYTES:
        publisher.publish("q", b"%d " % sent + bytes(size), delivery_mode=2)
        sent += 1
        while confirmed < sent:
            answer = publisher.next(60).name
            if answer == "basic.ack":
                confirmed += 1
            elif answer == "connection.blocked":
                blocked += 1
                found = os.statvfs(small_disk)
                assert found.f_bavail * found.f_frsize > 20_000_000
                # The log gives its room back when nobody needs it any more.
                while (got := consumer.get("q", no_ack=False)) is not None:
                    assert int(got.body.split()[0]) == taken
                    consumer.ack(got.delivery_tag)
                    taken += 1
            else:
                assert answer == "connection.unblocked"
    assert blocked >= 2
    assert [int(body.split()[0]) for body in consumer.bodies("q")] == list(range(taken, sent))
    code, _, errors = broker.stop()
    assert code == 0
    assert "disk alarm cleared (" in errors
    assert "[error]" not in errors
    assert "[critical]" not in errors


def take(consumer: RawChannel, *bodies: bytes) -> None:
    for body in bodies:
        delivery = consumer.delivery()
        assert delivery.body == body
        consumer.ack(delivery.delivery_tag)


def wait_for_log(broker: Command, text: str) -> None:
    assert broker.process.stderr is not None
    for line in broker.process.stderr:
        if text in line:
            return
    raise AssertionError(f"the broker ended without a word of '{text}'")
