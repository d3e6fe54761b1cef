"""A mirrored queue of a load: declared, waited for until its replicas are in sync, deleted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.brokers import BrokerError
from bench.clusters import Cluster, Ring
from bench.generator import run

#: A replica on every node, and new ones get what was there before them without being told.
EVERYWHERE = {"ha-mode": "all", "ha-sync-mode": "automatic"}
#: RabbitMQ needs a minute and a half for a gigabyte.
IN_SYNC_LIMIT_S = 300.0


def queue_of(prefix: list[str]) -> str:
    """The name that the generator gives the first queue of a load."""
    return f"{prefix[-1]}-q000000"


def await_in_sync(cluster: Cluster, queue: str, replicas: int) -> Ring:
    """Until so many replicas are in sync.

    Raises:
        BrokerError: they are not in time.
    """
    deadline = time.monotonic() + IN_SYNC_LIMIT_S
    while True:
        ring = cluster.ring(queue)
        if len(ring.in_sync) >= replicas:
            return ring
        if time.monotonic() > deadline:
            said = f"{len(ring.in_sync)} of {replicas} replicas in sync"
            raise BrokerError(f"{said} within {IN_SYNC_LIMIT_S:g} s\n{cluster.log_tail()}")
        time.sleep(cluster.look_again_s)


def check_in_sync(cluster: Cluster, queue: str, replicas: int) -> None:
    """What a ring does that has put mirrors out is no measure of the whole one.

    Raises:
        BrokerError: replicas were lost.
    """
    ring = cluster.ring(queue)
    if len(ring.in_sync) < replicas:
        left = ", ".join(ring.in_sync) or "none"
        raise BrokerError(f"of {replicas} replicas in sync are left: {left}")


def declare(cluster: Cluster, prefix: list[str], queues: int = 1) -> None:
    """Durable queues with their masters on the first node."""
    words = ["--mode", "declare", "--queues", str(queues), "--window", "50", "--keep"]
    run(cluster, ["--endpoints", cluster.endpoint, *words, *prefix])


def delete(cluster: Cluster, prefix: list[str]) -> None:
    """The queue of a load."""
    run(cluster, ["--endpoints", cluster.endpoint, "--mode", "delete", *prefix])


@contextmanager
def mirrored_queue(cluster: Cluster, prefix: list[str], replicas: int) -> Iterator[str]:
    """A queue whose replicas are in sync, and must be when it was used; its master is on the first.

    Raises:
        BrokerError: they are not.
    """
    declare(cluster, prefix)
    queue = queue_of(prefix)
    await_in_sync(cluster, queue, replicas)
    yield queue
    check_in_sync(cluster, queue, replicas)
    delete(cluster, prefix)
