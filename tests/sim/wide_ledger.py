"""What may be missing, and why: every message that is gone has been asked for, or has a rule."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sim.broker_ledger import Ledger, Publish, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.wide_plan import QueuePlan
    from sim.world import World

#: A get and its answer in peace: clocks of nodes are whole milliseconds, links take some.
SLACK_US = 150_000


class WideLedger(Ledger):
    """As the other, with queues that drop, expire, order by priority, or have lost their head."""

    def __init__(self, world: World, plans: dict[str, QueuePlan]) -> None:
        super().__init__(world)
        self.plans = plans
        #: queue -> promotions of replicas that may have lacked something
        self.unclean: Counter[str] = Counter()
        #: (queue, name) of what nodes have put aside
        self.salvaged: set[tuple[str, bytes]] = set()
        #: queue -> all that was ever sent to it
        self._of_queue: dict[str, list[Publish]] = {}
        #: On how many disks a message is when it is confirmed, and who can tell.
        self.floor = 1
        self.disks_with: Callable[[bytes], int] = lambda _name: 1 << 30

    # -- at every moment

    def sent(self, body: bytes, queue: str, persistent: bool) -> Publish:
        publish = super().sent(body, queue, persistent)
        self._of_queue.setdefault(queue, []).append(publish)
        return publish

    def answered(self, publish: Publish, state: str) -> None:
        was_sent = publish.state == "sent"
        super().answered(publish, state)
        if state == "confirmed" and was_sent and self.floor > 1 and not self.may_be_gone(publish):
            count = self.disks_with(publish.name)
            if count < self.floor:
                self.fail(f"{publish.name!r} is confirmed and on {count} disks, not {self.floor}")
            self.counts["confirmed with a floor"] += 1

    def delivered(
        self, consumer: str, queue: str, body: bytes, redelivered: bool, in_order: bool = False
    ) -> Publish:
        publish = self.published.get(name_of(body))
        if publish is not None and publish.state == "rolled back":
            self.fail(f"{publish.name!r} came to {consumer}, and was rolled back")
        if publish is not None and self.unclean[queue] and not redelivered:
            # Whoever was promoted may lack that it was delivered, or published before, as it may
            # lack messages: it may come unflagged once more for each such promotion, out of order.
            in_order = False
            if publish.unflagged <= self.unclean[queue]:
                publish.unflagged = 0
        return super().delivered(consumer, queue, body, redelivered, in_order)

    def check_order(self, consumer: str, name: bytes) -> None:
        """Those of one channel and one priority come in the order they were published in."""
        publish = self.published[name]
        plan = self.plans.get(publish.queue)
        level = min(publish.priority, plan.priority_max) if plan is not None else 0
        if not self.unclean[publish.queue]:
            super().check_order(f"{consumer} {level}", name)

    def promoted_unclean(self, queue: str) -> None:
        self.counts["unclean"] += 1
        self.unclean[queue] += 1

    # -- in the end

    def check_lost(self, left: dict[str, set[bytes]]) -> None:
        lost = []
        for queue, names in left.items():
            missing = [
                it
                for it in self.published.values()
                if it.queue == queue and it.name not in names
                if it.state == "confirmed" and it.persistent and not it.is_settled
            ]
            lost += [it for it in missing if not self._excuse(it)]
            self._check_limit(queue, names)
        if lost:
            told = ", ".join(f"{it.name!r} in {it.queue}" for it in lost[:5])
            self.fail(f"{len(lost)} confirmed messages are lost: {told}")

    def _excuse(self, it: Publish) -> bool:
        """Whether a rule has taken it out."""
        if self.may_be_gone(it):
            return True
        if (it.queue, it.name) in self.salvaged and self.unclean[it.queue]:
            self.counts["salvaged"] += 1
            return True
        return False

    def may_be_gone(self, it: Publish) -> bool:
        """By its own time to live or by a rule of its queue, and not before that."""
        if self.has_expired(it):
            self.counts["expired"] += 1
            return True
        plan = self.plans[it.queue]
        if plan.limit_least is None or plan.overflow != "drop-head":
            return it.is_settled
        if self._count_behind(it) >= plan.limit_least:
            self.counts["dropped"] += 1
            return True
        return it.is_settled

    def has_expired(self, it: Publish) -> bool:
        """Its time began when the queue took it, which was not before it was sent."""
        given = (it.ttl_ms, self.plans[it.queue].ttl_least_ms)
        ttl_ms = min((ms for ms in given if ms is not None), default=None)
        return ttl_ms is not None and it.sent_us + ttl_ms * 1000 <= self.world.now_us + 1000

    def _count_behind(self, it: Publish) -> int:
        """How many others may have stood behind it in its queue: only the head is dropped.

        Behind it is what was answered, if ever, after it was sent; with priorities, any. That a
        publisher is gone is no answer: its node has what it sent, and brings it to the queue later.
        """
        is_ordered = not self.plans[it.queue].priority_max
        since_us = it.sent_us if is_ordered else 0
        return sum(
            1
            for other in self._of_queue[it.queue]
            if other.state == "unknown" or not 0 < other.answered_us < since_us
            if other is not it and other.state != "returned"
        )

    def _check_limit(self, queue: str, left: set[bytes]) -> None:
        plan = self.plans[queue]
        if plan.limit is not None and plan.overflow == "drop-head" and len(left) > plan.limit:
            self.fail(f"{queue} has {len(left)} messages, {plan.limit} at most")

    def drained(self, queue: str, bodies: list[bytes]) -> None:
        """What was left, in order: the higher priorities first, and nothing whose time is over."""
        plan = self.plans[queue]
        before = plan.priority_max
        for body in bodies:
            it = self.published[name_of(body)]
            level = min(it.priority, plan.priority_max)
            if level > before:
                self.fail(f"{it.name!r} of priority {level} is behind one of {before}")
            before = level

    def check_overdue(self, it: Publish) -> None:
        """A queue that was asked just now has given it, so its time cannot be over."""
        given = (it.ttl_ms, self.plans[it.queue].ttl_ms)
        ttl_ms = min((ms for ms in given if ms is not None), default=None)
        if ttl_ms is None or it.state != "confirmed":
            return
        if it.answered_us + ttl_ms * 1000 + SLACK_US < self.world.now_us:
            self.fail(f"{it.name!r} came {self.world.now_us - it.answered_us} us after its confirm")
