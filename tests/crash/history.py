"""What the clients of a crash test saw: every publish, confirm, delivery and settlement, in order.

All clients live in one event loop, so the order of the entries is the order of the observations. A
*life* is the time between a start of the broker and its end; lives are numbered from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ACK, REJECT, REQUEUE = "ack", "reject", "requeue"


@dataclass(slots=True)
class Message:
    """One publish."""

    name: str
    #: The publisher's channel; its order is promised within one.
    session: str
    number: int
    #: The queues it is routed to.
    queues: tuple[str, ...]
    persistent: bool
    priority: int
    fingerprint: int
    life: int
    #: In a transaction whose commit was not sent: it must never be seen.
    held: bool = False
    confirmed: bool = False
    #: Came back as unroutable.
    returned: bool = False


@dataclass(slots=True)
class Delivery:
    """One delivery, by push or by basic.get."""

    queue: str
    name: str
    flagged: bool
    fingerprint: int
    life: int
    #: The consumer's channel.
    session: str
    #: What the client sent about it last; nothing yet when empty.
    settled: str = ""
    #: How many deliveries had been seen when the broker had surely acted on the settlement.
    sure_at: int | None = None


@dataclass(slots=True)
class Sight:
    """One step of a queue, exchange or binding that comes and goes.

    Asked and answered: `create` and `created`, `delete` and `deleted`, `put` and `stored`. Found:
    `seen`, `missing`. `restart` stands for what the broker's end does to what is not durable.
    """

    step: str
    thing: str
    life: int
    #: Messages: put, stored, or found in the queue.
    count: int = 0


@dataclass
class History:
    """The record of a run."""

    #: Queues with one reader that never leaves during a life.
    single_reader: frozenset[str] = frozenset()
    #: Where each queue's rejected messages go.
    dead_letters: dict[str, str] = field(default_factory=dict)
    #: Every life ended in an orderly way, so the broker has no reason to guess.
    orderly: bool = False
    messages: dict[str, Message] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)
    #: What is left in the queues after the drain, and again after one more restart.
    left_over: dict[str, int] = field(default_factory=dict)
    #: What no client should meet: refusals, wrong exit codes.
    surprises: list[str] = field(default_factory=list)
    life: int = 0
    #: Copies routed but not yet settled, roughly; the publishers wait when there are many.
    backlog: int = 0
    backlog_max: int = 0

    def publish(self, message: Message) -> Message:
        self.messages[message.name] = message
        self.backlog += len(message.queues)
        self.backlog_max = max(self.backlog_max, self.backlog)
        return message

    def deliver(
        self, queue: str, name: str, flagged: bool, fingerprint: int, session: str
    ) -> Delivery:
        found = Delivery(queue, name, flagged, fingerprint, self.life, session)
        self.deliveries.append(found)
        return found

    def settle(self, delivery: Delivery, how: str) -> None:
        delivery.settled = how
        if how == ACK or (how == REJECT and delivery.queue not in self.dead_letters):
            self.backlog -= 1

    def make_sure(self, deliveries: Iterable[Delivery]) -> None:
        """The broker answered a later method on the channel of these settlements."""
        for delivery in deliveries:
            if delivery.settled in {ACK, REJECT}:
                delivery.sure_at = len(self.deliveries)

    def sight(self, step: str, thing: str, count: int = 0) -> None:
        self.sights.append(Sight(step, thing, self.life, count))

    # -- for a second look at a failed run ---------------------------------------------------------

    def save(self, path: Path) -> None:
        with path.open("w") as file:
            head = {
                "single_reader": sorted(self.single_reader),
                "dead_letters": self.dead_letters,
                "orderly": self.orderly,
                "left_over": self.left_over,
                "surprises": self.surprises,
                "life": self.life,
            }
            file.write(json.dumps(head) + "\n")
            for kind, entries in (
                ("message", self.messages.values()),
                ("delivery", self.deliveries),
                ("sight", self.sights),
            ):
                for entry in entries:
                    file.write(json.dumps([kind, asdict(entry)]) + "\n")

    @staticmethod
    def load(path: Path) -> History:
        with path.open() as file:
            head = json.loads(file.readline())
            head["single_reader"] = frozenset(head["single_reader"])
            history = History(**head)
            for line in file:
                kind, entry = json.loads(line)
                if kind == "message":
                    entry["queues"] = tuple(entry["queues"])
                    history.messages[entry["name"]] = Message(**entry)
                elif kind == "delivery":
                    history.deliveries.append(Delivery(**entry))
                else:
                    history.sights.append(Sight(**entry))
        return history
