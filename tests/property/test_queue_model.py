"""The queue against a model that is too simple to be wrong: a sorted list and a dictionary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from warren.engine.effects import REASONS, Effects
from warren.model.message import Address, Message
from warren.queue.queue import Queue
from warren.wire.content import make_message
from warren.wire.properties import encode_properties

ADDRESS = Address(b"", b"key")
OVERFLOWS = ["drop-head", "reject-publish", "reject-publish-dlx"]


@dataclass(eq=False)
class Entry:
    """What the model knows of a message."""

    message: Message
    level: int
    position: int
    size: int
    expires_ms: int
    returns: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Highest priority first, then in order of publishing."""
        return -self.level, self.position


def make(size: int, priority: int | None, ttl_ms: int | None) -> Message:
    properties: dict[str, Any] = {}
    if priority is not None:
        properties["priority"] = priority
    if ttl_ms is not None:
        properties["expiration"] = str(ttl_ms)
    return make_message(ADDRESS, encode_properties(properties, size), bytes(size))


class QueueMachine(RuleBasedStateMachine):
    """Every operation on both, then everything compared."""

    slots = Bundle("slots")

    @initialize(max_priority=st.sampled_from([-1, 0, 3, 255]))
    def start(self, max_priority: int) -> None:
        self.effects = Effects()
        self.queue = Queue("q", self.effects, max_priority)
        self.max_priority = max_priority
        self.ready: list[Entry] = []
        self.out: dict[int, Entry] = {}
        self.dead: list[tuple[Message, str]] = []
        self.limits: dict[str, Any] = {"dead_letters": False, "overflow": "drop-head"}
        self.now_ms = 1000
        self.count = 0
        self.armed_ms: int | None = None

    # -- the model ---------------------------------------------------------------------------------

    def limit(self, name: str) -> int:
        value: int = self.limits.get(name, -1)
        return value

    def is_over(self, more: int = 0, more_bytes: int = 0) -> bool:
        length, size = self.limit("max_length"), self.limit("max_bytes")
        count = len(self.ready) + more
        total = sum(entry.size for entry in self.ready) + more_bytes
        return (0 <= length < count) or (0 <= size < total)

    def die(self, message: Message, reason: str) -> None:
        if self.limits["dead_letters"]:
            self.dead.append((message, reason))

    def enforce(self) -> None:
        if self.limits["overflow"] == "drop-head":
            while self.ready and self.is_over():
                self.die(self.ready.pop(0).message, "maxlen")

    def expire(self) -> None:
        while self.ready and 0 < self.ready[0].expires_ms <= self.now_ms:
            self.die(self.ready.pop(0).message, "expired")

    def insert(self, entry: Entry) -> None:
        self.ready.append(entry)
        self.ready.sort(key=lambda e: e.rank)

    # -- operations --------------------------------------------------------------------------------

    @rule(
        size=st.integers(0, 20),
        priority=st.none() | st.integers(0, 5),
        ttl_ms=st.none() | st.integers(0, 30),
    )
    def publish(self, size: int, priority: int | None, ttl_ms: int | None) -> None:
        message = make(size, priority, ttl_ms)
        accepted = self.queue.offer(message, self.now_ms)
        if self.limits["overflow"] != "drop-head" and self.is_over(1, size):
            assert not accepted
            if self.limits["overflow"] == "reject-publish-dlx":
                self.die(message, "maxlen")
            return
        assert accepted
        ttls = [ttl for ttl in (ttl_ms, self.limit("ttl_ms")) if ttl is not None and ttl >= 0]
        expires_ms = self.now_ms + min(ttls) if ttls else 0
        if 0 < expires_ms <= self.now_ms:
            self.die(message, "expired")
            return
        level = min(priority or 0, self.max_priority) if self.max_priority >= 0 else 0
        self.count += 1
        self.insert(Entry(message, level, self.count, size, expires_ms))
        self.enforce()

    @rule(target=slots, no_ack=st.booleans())
    def get(self, no_ack: bool) -> Any:
        found = self.queue.get(no_ack, self.now_ms)
        self.expire()
        if not self.ready:
            assert found is None
            return None
        entry = self.ready.pop(0)
        assert found is not None
        message, slot, redelivered = found
        assert message is entry.message
        assert redelivered == (entry.returns > 0)
        if no_ack:
            return None
        assert slot not in self.out
        self.out[slot] = entry
        return slot

    @rule(slot=consumes(slots), how=st.sampled_from(["ack", "reject", "requeue", "requeue"]))
    def settle(self, slot: int | None, how: str) -> None:
        if slot is None:
            return
        entry = self.out.pop(slot)
        self.queue.settle(how, slot)
        if how == "reject":
            self.die(entry.message, "rejected")
        elif how == "requeue":
            entry.returns += 1
            if 0 <= self.limit("delivery_limit") < entry.returns:
                self.die(entry.message, "delivery_limit")
            else:
                self.insert(entry)
                self.enforce()

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self.ready.clear()

    @rule(
        ttl_ms=st.none() | st.integers(0, 20),
        max_length=st.none() | st.integers(0, 5),
        max_bytes=st.none() | st.integers(0, 50),
        delivery_limit=st.none() | st.integers(0, 2),
        overflow=st.sampled_from(OVERFLOWS),
        dead_letters=st.booleans(),
    )
    def configure(self, **limits: Any) -> None:
        self.limits = {name: value for name, value in limits.items() if value is not None}
        self.queue.configure(now_ms=self.now_ms, **self.limits)
        self.enforce()
        self.expire()

    @rule(ms=st.integers(1, 20))
    def wait(self, ms: int) -> None:
        """Time goes by, and the timer that the queue asked for rings."""
        self.now_ms += ms
        if self.armed_ms is not None and self.armed_ms <= self.now_ms:
            self.armed_ms = None
            self.queue.expire(self.now_ms)
            self.expire()

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def same_content(self) -> None:
        self.queue.check()
        self.same_dead_letters()
        self.queue.check()
        assert self.queue.buried == 0
        assert self.queue.ready == len(self.ready)
        assert self.queue.unacked == len(self.out)
        assert self.queue.ready_bytes == sum(entry.size for entry in self.ready)
        out_bytes = sum(entry.size for entry in self.out.values())
        assert self.queue.total_bytes == self.queue.ready_bytes + out_bytes

    def same_dead_letters(self) -> None:
        """They stay until somebody says that they are safe."""
        taken = self.effects.take_dead_letters()
        assert [(message, REASONS[reason]) for _, message, reason, _ in taken] == self.dead
        buried = [(slot, reason) for _, _, reason, slot in taken if slot >= 0]
        assert self.queue.buried == len(buried)
        for slot, reason in buried:
            assert self.queue.dead_message(slot) is not None
            self.queue.end_burial(slot, reason, 0)
        self.dead = []

    @invariant()
    def a_message_that_can_expire_has_a_timer(self) -> None:
        for _, at_ms in self.effects.take_expiries():
            self.armed_ms = at_ms if self.armed_ms is None else min(self.armed_ms, at_ms)
        if self.ready and self.ready[0].expires_ms:
            assert self.armed_ms is not None
            assert self.armed_ms <= self.ready[0].expires_ms


TestQueueModel = QueueMachine.TestCase
TestQueueModel.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
