"""The table of loads: what is asked of every broker, and how it is measured.

A load is data. Its `kind` names the procedure in bench/procedures.py that carries it out.
"""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How a load is carried out."""

    FLOW = "publish and consume for a while"
    FILL = "publish with no consumer, look at the memory, drain"
    QUEUES = "declare queues, look at the memory, delete them"
    CONNECTIONS = "hold idle connections, look at the memory, then use them"
    SYNC = "publish and consume, next to bare syncs of the same disk"
    FAN_OUT = "publish to many queues, look at what was written"
    RESTART = "fill, end the broker, wait for the messages to be back"
    PAGING = "fill far beyond the memory budget, drain from a cold cache"
    STEADY = "publish and consume at a fixed rate, look at the room on disk"
    PLACES = "publish and consume, the clients on the queue's node and on others"
    DECLARES = "declare queues over all nodes"
    FAILOVER = "declare while a node is killed"
    CATCH_UP = "start a node without data in a cluster that has much"
    MIRROR_FLOW = "publish to a mirrored queue, with and without a consumer"
    MIRROR_PACED = "publish to a mirrored queue and consume, at a fixed rate"
    MIRROR_KILLS = "publish through another node while the master's is killed"
    MIRROR_STOP = "publish through another node while the master's is stopped by a signal"
    MIRROR_SYNC = "publish while a new mirror gets a backlog"
    MIRROR_REJOIN = "a mirror that was away comes back to a backlog"
    MIRROR_MANY = "kill the node of many masters"
    MIRROR_ASYNC = "publish to queues that wait for their mirrors, and that do not"
    MIRROR_REBALANCE = "publish while many masters are spread over the nodes"
    MIRROR_REPLICAS = "publish to queues with more and more replicas"
    LISTING = "publish at a fixed rate while all queues are listed"


@dataclass(frozen=True, slots=True)
class Load:
    """One load; `amount` is what FILL, QUEUES and CONNECTIONS count, and most of the store's."""

    name: str
    title: str
    kind: Kind = Kind.FLOW
    arguments: tuple[str, ...] = ()
    amount: int = 0
    #: The amount of a quick run, where the full one takes minutes.
    quick_amount: int = 0
    #: The prototype knows one queue and the default exchange only.
    prototype: bool = False
    #: Latencies mean something only at a rate that every broker sustains.
    latencies: bool = False
    #: Slow to set up and steady in outcome: measured in the first round only.
    once: bool = False
    #: Kept on disk: goes to the brokers that have one.
    on_disk: bool = False
    #: Goes to clusters, not to single brokers.
    clustered: bool = False
    #: Says nothing beside another broker's number, or would take it all day.
    warren_only: bool = False
    #: The most that brokers other than ours are asked for, where all of it would take them long.
    others_amount: int = 0
    #: What the rate of a flow counts: without a consumer it is the confirms.
    counted: str = "consumed"
    #: The memory that the broker may take, as rabbitmq.conf says it, where that is measured.
    memory_budget: str = ""


AUTO_ACK = ("--auto-ack",)
MANUAL_ACK = ("--prefetch", "1000", "--ack-every", "100")


def fan_out(queues: int) -> Load:
    """One publish becomes `queues` deliveries over two consumer connections."""
    arguments = ("--size", "200", *AUTO_ACK, "--exchange", "fanout", "--queues", str(queues))
    return Load(
        f"fanout-{queues}",
        f"fan-out to {queues:,} queues, 200 B",
        # Confirms bound the backlog: otherwise one publisher fills a hundred queues with it.
        arguments=(*arguments, "--consumers", "2", "--window", "200"),
    )


def bindings(exchange: str, count: int) -> Load:
    """Each message matches exactly one of `count` bindings, chosen at random."""
    arguments = ("--size", "200", *AUTO_ACK, "--window", "1000", "--exchange", exchange)
    return Load(
        f"{exchange}-{count}",
        f"{exchange} exchange, {count:,} bindings, random keys, 200 B",
        arguments=(*arguments, "--queues", "10", "--bindings", str(count), "--keys", "random"),
    )


def connections(count: int) -> Load:
    """Half of them publish, half consume, each pair through a queue of its own."""
    half = str(count // 2)
    pairs = ("--producers", half, "--consumers", half, "--queues", half)
    return Load(
        f"connections-{count}",
        f"{count:,} connections, 200 B, auto-ack",
        Kind.CONNECTIONS,
        ("--size", "200", *AUTO_ACK, "--window", "100", *pairs),
        amount=count,
    )


def fill(messages: int) -> Load:
    """A backlog of 200 B transient messages in one queue."""
    return Load(
        f"fill-{messages}",
        f"{messages:,} queued messages of 200 B",
        Kind.FILL,
        ("--size", "200", "--window", "2000"),
        amount=messages,
        once=True,
    )


def queues(count: int) -> Load:
    """Declares with 50 requests in flight on one connection."""
    return Load(
        f"queues-{count}",
        f"{count:,} queues declared",
        Kind.QUEUES,
        ("--window", "50"),
        amount=count,
        once=True,
    )


LOADS = (
    Load("16B", "16 B, auto-ack", arguments=("--size", "16", *AUTO_ACK), prototype=True),
    Load("1000B", "1000 B, auto-ack", arguments=("--size", "1000", *AUTO_ACK), prototype=True),
    Load(
        "200B-ack",
        "200 B, manual ack, prefetch 1000",
        arguments=("--size", "200", *MANUAL_ACK),
        prototype=True,
    ),
    Load(
        "rate-20k",
        "200 B, manual ack, confirms, at 20,000 msg/s",
        # A window that never closes at this rate: the schedule is the only thing that holds back.
        arguments=("--size", "200", *MANUAL_ACK, "--window", "20000", "--rate", "20000"),
        latencies=True,
    ),
    fan_out(100),
    bindings("topic", 10_000),
    bindings("headers", 1_000),
    connections(1_000),
    queues(10_000),
    fill(500_000),
)


@dataclass(frozen=True, slots=True)
class Curve:
    """A load at one, two, four and eight times its size, and the cost that must not grow."""

    name: str
    title: str
    points: tuple[Load, ...]
    sizes: tuple[int, ...]
    #: The metric that is compared.
    metric: str
    unit: str
    #: One message may cost in proportion to the size (a headers exchange may try each binding).
    per_size: bool = False


CURVES = (
    Curve(
        "fanout",
        "queues in a fan-out",
        tuple(fan_out(n) for n in (25, 50, 100, 200)),
        (25, 50, 100, 200),
        "cpu_us",
        "CPU µs a delivery",
    ),
    Curve(
        "topic",
        "bindings of a topic exchange",
        tuple(bindings("topic", n) for n in (2_500, 5_000, 10_000, 20_000)),
        (2_500, 5_000, 10_000, 20_000),
        "cpu_us",
        "CPU µs a message",
    ),
    Curve(
        "headers",
        "bindings of a headers exchange",
        tuple(bindings("headers", n) for n in (250, 500, 1_000, 2_000)),
        (250, 500, 1_000, 2_000),
        "cpu_us",
        "CPU µs a message and 1,000 bindings",
        per_size=True,
    ),
    Curve(
        "connections",
        "connections",
        tuple(connections(n) for n in (250, 500, 1_000, 2_000)),
        (250, 500, 1_000, 2_000),
        "cpu_us",
        "CPU µs a message",
    ),
    Curve(
        "queued",
        "queued messages, filled and drained",
        tuple(fill(n) for n in (125_000, 250_000, 500_000, 1_000_000)),
        (125_000, 250_000, 500_000, 1_000_000),
        "cpu_us",
        "CPU µs a message",
    ),
)
