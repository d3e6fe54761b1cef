"""Measures what a publisher notices while others list ten thousand queues; a tool, not a test.

    .venv/bin/python tests/management/listing_latency.py

Publishes with confirms, one at a time, first with nobody else there, then with a lister that asks
again as soon as it has its answer. The machine should be free: on a busy one both numbers are its
scheduler's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time

import pika

BROKER = """
import sys
from warren.model.queue_arguments import QueueDeclaration
from warren.testing.broker import Broker

def declare(node):
    vhost = node.engine.vhost("/")
    for number in range(int(sys.argv[1])):
        node.engine.add_queue(vhost, f"queue.{number:05}", QueueDeclaration(True), None)

with Broker(http=True) as broker:
    broker.call(declare)
    print(broker.url, broker.http_url, flush=True)
    sys.stdin.read()
"""
#: Between two publishes, so that the publisher does not itself fill the processor.
PAUSE_S = 0.002


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--path", default="/api/queues")
    options = parser.parse_args()
    broker = subprocess.Popen(
        [sys.executable, "-c", BROKER, str(options.queues)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert broker.stdin is not None
    assert broker.stdout is not None
    url, http_url = broker.stdout.readline().split()
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("latency", arguments={"x-max-length": 10})
    publish(channel, 1)
    print("alone    ", publish(channel, options.seconds))
    stop, lists = threading.Event(), []
    lister = threading.Thread(target=keep_listing, args=(stop, http_url + options.path, lists))
    lister.start()
    print("listing  ", publish(channel, options.seconds))
    stop.set()
    lister.join()
    print(f"{len(lists)} lists, {sum(lists) / len(lists):.2f} s each")
    connection.close()
    broker.stdin.close()
    broker.wait()


def publish(channel: pika.adapters.blocking_connection.BlockingChannel, seconds: float) -> str:
    """Publish for a while; the distribution of the time until the confirm."""
    times_ms = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        began_s = time.perf_counter()
        channel.basic_publish("", "latency", b"x" * 100)
        times_ms.append((time.perf_counter() - began_s) * 1000)
        time.sleep(PAUSE_S)
    times_ms.sort()
    p50, p99 = (times_ms[int(len(times_ms) * part)] for part in (0.5, 0.99))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {times_ms[-1]:.2f} ms"


def keep_listing(stop: threading.Event, url: str, lists: list[float]) -> None:
    """Ask in a process of its own: reading the answer must not slow the publisher down."""
    while not stop.is_set():
        began_s = time.monotonic()
        subprocess.run(["curl", "-s", "-o", "/dev/null", "-u", "guest:guest", url], check=True)
        lists.append(time.monotonic() - began_s)


if __name__ == "__main__":
    main()
