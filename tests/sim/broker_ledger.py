"""What clients of simulated brokers have seen, and what they may not see."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sim.world import Violation, World


@dataclass(eq=False)
class Publish:
    """One message; its body is its name: publisher, life of its channel, number."""

    body: bytes
    queue: str
    persistent: bool
    sent_us: int
    #: sent, confirmed, nacked, returned, or unknown: its connection is gone.
    state: str = "sent"
    unflagged: int = 0
    #: Some client has said that it may go.
    is_settled: bool = False
    #: When a consumer said so first; 0: none has.
    settled_us: int = 0
    #: When it was confirmed, or refused; 0: not yet.
    answered_us: int = 0
    #: What it was published with; None: no time to live of its own.
    priority: int = 0
    ttl_ms: int | None = None

    @property
    def name(self) -> bytes:
        return name_of(self.body)

    def settle(self, now_us: int) -> None:
        """A consumer says that it may go."""
        self.is_settled = True
        self.settled_us = self.settled_us or now_us


@dataclass
class Ledger:
    """All messages by their bodies."""

    world: World
    published: dict[bytes, Publish] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    #: (consumer, publisher and life) -> the newest that came without a flag
    _newest: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def fail(self, what: str) -> None:
        raise Violation(f"{self.world.now_us} {what}")

    def sent(self, body: bytes, queue: str, persistent: bool) -> Publish:
        publish = Publish(body, queue, persistent, self.world.now_us)
        self.world.note(f"{queue} is sent {publish.name!r}")
        self.published[name_of(body)] = publish
        self.counts["published"] += 1
        return publish

    def answered(self, publish: Publish, state: str) -> None:
        if publish.state not in {"sent", "returned"}:
            self.fail(f"{name_of(publish.body)!r} was {publish.state} and is {state} now")
        if publish.state == "sent":
            self.world.note(f"{publish.name!r} is {state}")
            publish.state = state
            publish.answered_us = self.world.now_us
            self.counts[state] += 1

    def delivered(
        self, consumer: str, queue: str, body: bytes, redelivered: bool, in_order: bool = False
    ) -> Publish:
        """A client has got it. `in_order`: nobody else had any, so none can be given back late."""
        name = name_of(body)
        publish = self.published.get(name)
        if publish is None or publish.body != body or publish.queue != queue:
            self.fail(f"nobody has published {name!r} to {queue}")
            raise AssertionError
        self.counts["redelivered" if redelivered else "delivered"] += 1
        self.world.note(f"{consumer} gets {name!r}{' again' if redelivered else ''}")
        if redelivered:
            return publish
        publish.unflagged += 1
        if publish.unflagged > 1:
            self.fail(f"{name!r} came to {consumer} once more, and is not flagged")
        if in_order:
            self.check_order(consumer, name)
        return publish

    def check_order(self, consumer: str, name: bytes) -> None:
        """Those of one channel come in the order they were published in."""
        whose, _, number = name.rpartition(b"/")
        key = (consumer, whose)
        if self._newest.get(key, -1) >= int(number):
            self.fail(f"{name!r} came to {consumer} after {self._newest[key]}")
        self._newest[key] = int(number)

    def unanswered(self) -> list[Publish]:
        return [it for it in self.published.values() if it.state == "sent"]

    def check_lost(self, left: dict[str, set[bytes]]) -> None:
        """`left`: queue -> the names of what was still in it when all was over."""
        lost = [
            it
            for name, it in self.published.items()
            if it.state == "confirmed"
            and it.persistent
            and not it.is_settled
            and name not in left[it.queue]
        ]
        if lost:
            names = ", ".join(f"{name_of(it.body)!r} in {it.queue}" for it in lost[:5])
            self.fail(f"{len(lost)} confirmed messages are lost: {names}")


def name_of(body: bytes) -> bytes:
    """Behind it there is only ballast."""
    return body.partition(b" ")[0]
