"""Valid conversations, made by chance: what the fuzzer starts from.

A phrase is a list of frames that belong together (a publish has three). Names come from small sets,
so that phrases of different inputs meet the same queues and exchanges.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

from pair import frame, header, method

from warren.wire.tables import LongBytes, Timestamp

QUEUES = [f"q{i}" for i in range(8)]
EXCHANGES = ["", "amq.topic", "amq.fanout", "amq.match", "amq.direct", "x0", "x1", "x2", "x3", "x4"]
KEYS = [*QUEUES, "a", "a.b", "a.#", "*.b", "", "1", "k" * 255, "naïve"]
TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message"]
TAGS = ["", "c0", "c1", "c2"]
REPLY_TO = "amq.rabbitmq.reply-to"
#: Frames of a phrase; most phrases are one frame.
Phrase = list[bytes]


def value(dice: Random, depth: int = 0) -> Any:
    """Any value a field table can hold."""
    kind = dice.randrange(12 if depth < 4 else 10)
    if kind < 10:
        return (
            dice.randrange(-(2**63), 2**63),
            dice.randrange(-100, 100),
            dice.choice(KEYS),
            dice.random() < 0.5,
            None,
            dice.random() * 1e9,
            Timestamp(dice.randrange(2**64)),
            Decimal(dice.randrange(-1000, 1000)).scaleb(-dice.randrange(5)),
            dice.randbytes(dice.randrange(20)),
            LongBytes(b"\xff" + dice.randbytes(5)),
        )[kind]
    if kind == 10:
        return [value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice(KEYS): value(dice, depth + 1) for _ in range(dice.randrange(4))}


QUEUE_ARGUMENTS: dict[str, Callable[[Random], Any]] = {
    "x-message-ttl": lambda dice: dice.choice([0, 1, 50, 10**6, -1, "x"]),
    "x-expires": lambda dice: dice.choice([1, 100, 10**9, 0]),
    "x-max-length": lambda dice: dice.randrange(-1, 5),
    "x-max-length-bytes": lambda dice: dice.choice([0, 10, 5000, 2**62]),
    "x-overflow": lambda dice: dice.choice(["drop-head", "reject-publish", "reject-publish-dlx"]),
    "x-dead-letter-exchange": lambda dice: dice.choice(EXCHANGES),
    "x-dead-letter-routing-key": lambda dice: dice.choice([*KEYS, "l" * 300]),
    "x-max-priority": lambda dice: dice.choice([0, 1, 5, 255, 256]),
    "x-single-active-consumer": lambda dice: dice.random() < 0.5,
    "x-delivery-limit": lambda dice: dice.randrange(4),
    "x-queue-type": lambda dice: dice.choice(["classic", "quorum", "stream", "odd"]),
    "x-odd": value,
}


def arguments(dice: Random) -> dict[str, Any]:
    """Arguments for queue.declare, mostly few."""
    names = dice.sample(list(QUEUE_ARGUMENTS), dice.choice([0, 0, 0, 1, 1, 2, 3]))
    return {name: QUEUE_ARGUMENTS[name](dice) for name in names}


def headers(dice: Random) -> dict[str, Any]:
    """A message's headers, some of which the broker looks at."""
    table = {dice.choice(KEYS): value(dice) for _ in range(dice.randrange(3))}
    special: dict[str, Callable[[], Any]] = {
        "CC": lambda: [dice.choice(KEYS) for _ in range(dice.randrange(4))],
        "BCC": lambda: [dice.choice(KEYS), value(dice)],
        "x-delay": lambda: dice.choice([1, 100, -5, 2**62, "7", "--7", "²", "9" * 5000, None]),
        "x-death": lambda: [
            {
                "queue": dice.choice(QUEUES),
                "reason": dice.choice(["expired", "rejected", "maxlen", value(dice)]),
                "count": dice.choice([1, 2**63 - 1, "many", value(dice)]),
            },
            value(dice),
        ],
        "x-match": lambda: dice.choice(["all", "any", "all-with-x", "odd"]),
    }
    for name in dice.sample(list(special), dice.choice([0, 0, 1, 2])):
        table[name] = special[name]()
    return table


def properties(dice: Random) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if dice.random() < 0.4:
        chosen["headers"] = headers(dice)
    if dice.random() < 0.2:
        chosen["expiration"] = dice.choice(["0", "5", "1000", "9" * 13, "", "x", "-1", "9" * 14])
    if dice.random() < 0.2:
        chosen["priority"] = dice.randrange(256)
    if dice.random() < 0.1:
        chosen["reply_to"] = dice.choice([REPLY_TO, "q1"])
    if dice.random() < 0.1:
        chosen["user_id"] = dice.choice(["guest", "other"])
    if dice.random() < 0.3:
        chosen |= {"delivery_mode": dice.randrange(4), "content_type": "text/plain"}
    if dice.random() < 0.1:
        chosen |= {"message_id": "m", "timestamp": dice.randrange(2**64), "correlation_id": "c"}
    return chosen


def publish(dice: Random, channel: int) -> Phrase:
    exchange = dice.choice(["", "", *EXCHANGES])
    key = f"{REPLY_TO}.t{dice.randrange(50)}" if dice.random() < 0.02 else dice.choice(KEYS)
    size = dice.choice([0, 1, 5, 100, 5000])
    frames = [
        method(channel, "basic.publish", 0, exchange, key, dice.random() < 0.2),
        header(channel, size, **properties(dice)),
    ]
    body = bytes(size)
    step = dice.choice([size, size // 2 + 1]) or 1
    return frames + [frame(3, channel, body[at : at + step]) for at in range(0, size, step)]


def queue_phrase(dice: Random, channel: int) -> Phrase:
    queue = dice.choice(["", *QUEUES])
    exchange, key = dice.choice(EXCHANGES), dice.choice(KEYS)
    bits = [dice.random() < 0.2 for _ in range(5)]
    table = {"x-match": "any", "k": value(dice)} if dice.random() < 0.3 else {}
    return [
        dice.choice(
            [
                lambda: method(channel, "queue.declare", 0, queue, *bits, arguments(dice)),
                lambda: method(channel, "queue.declare", 0, queue, False, False, False, False),
                lambda: method(channel, "queue.bind", 0, queue, exchange, key, bits[0], table),
                lambda: method(channel, "queue.unbind", 0, queue, exchange, key, table),
                lambda: method(channel, "queue.purge", 0, queue, bits[0]),
                lambda: method(channel, "queue.delete", 0, queue, *bits[:3]),
            ]
        )()
    ]


def exchange_phrase(dice: Random, channel: int) -> Phrase:
    name, other = dice.choice(EXCHANGES), dice.choice(EXCHANGES)
    bits = [dice.random() < 0.2 for _ in range(5)]
    table = {"alternate-exchange": other} if dice.random() < 0.2 else {}
    kind = dice.choice(TYPES)
    if kind == "x-delayed-message":
        table["x-delayed-type"] = dice.choice(TYPES)
    key = dice.choice(KEYS)
    return [
        dice.choice(
            [
                lambda: method(channel, "exchange.declare", 0, name, kind, *bits, table),
                lambda: method(channel, "exchange.delete", 0, name, *bits[:2]),
                lambda: method(channel, "exchange.bind", 0, name, other, key, bits[0]),
                lambda: method(channel, "exchange.unbind", 0, name, other, key, bits[0]),
            ]
        )()
    ]


def consume_phrase(dice: Random, channel: int) -> Phrase:
    queue, tag = dice.choice(QUEUES), dice.choice(TAGS)
    bits = [dice.random() < 0.3 for _ in range(3)]
    number = dice.choice([0, 1, 1, 2, 3, 10])
    table = {"x-priority": dice.choice([0, 5, -5, 2**40, "x"])} if bits[2] else {}
    return [
        dice.choice(
            [
                lambda: method(channel, "basic.consume", 0, queue, tag, False, *bits, table),
                lambda: method(channel, "basic.consume", 0, REPLY_TO, tag, False, True),
                lambda: method(channel, "basic.cancel", tag, bits[0]),
                lambda: method(channel, "basic.get", 0, queue, bits[0]),
                lambda: method(channel, "basic.ack", number, bits[0]),
                lambda: method(channel, "basic.nack", number, *bits[:2]),
                lambda: method(channel, "basic.reject", number, bits[0]),
                lambda: method(channel, "basic.qos", 0, number, bits[0]),
                lambda: method(channel, "basic.recover", True),
                lambda: method(channel, "basic.recover-async", True),
            ]
        )()
    ]


def mode_phrase(dice: Random, channel: int) -> Phrase:
    names = ["tx.select", "tx.commit", "tx.rollback", "confirm.select", "channel.open"]
    names += ["channel.close", "channel.close-ok", "channel.flow-ok"]
    if dice.random() < 0.1:
        return [frame(8, 0, b"")]
    return [method(channel, dice.choice(names))]


def work(dice: Random, channel: int) -> Phrase:
    """A little of what clients do all day: publish, take, settle."""
    queue = dice.choice(QUEUES[:6])
    deliver = dice.choice(
        [
            method(channel, "basic.get", 0, queue),
            method(channel, "basic.consume", 0, queue, dice.choice(TAGS)),
        ]
    )
    settle = dice.choice(
        [
            method(channel, "basic.ack", 0, True),
            method(channel, "basic.nack", 0, True, dice.random() < 0.5),
            method(channel, "basic.recover", True),
            method(channel, "basic.cancel", "c0"),
            method(channel, "queue.delete", 0, queue),
        ]
    )
    start = method(channel, "basic.publish", 0, "", queue)
    message = [start, header(channel, 3, **properties(dice)), frame(3, channel, b"abc")]
    return [*message, *message[: dice.choice([0, 3])], deliver, settle]


KINDS = [
    work,
    work,
    work,
    work,
    publish,
    publish,
    publish,
    queue_phrase,
    queue_phrase,
    exchange_phrase,
]
KINDS += [consume_phrase, consume_phrase, consume_phrase, mode_phrase]


def phrase(dice: Random) -> Phrase:
    """One phrase, on channel 1 or 2."""
    return dice.choice(KINDS)(dice, dice.choice([1, 1, 1, 2]))
