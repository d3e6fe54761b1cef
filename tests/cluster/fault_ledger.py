"""What clients of a run under faults sent, what was confirmed, what came; and what must not be."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

Id = tuple[str, int]

#: Without a confirm for so long, nobody was served.
UNAVAILABLE_S = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run in numbers; docs/faults.md has a row of them."""

    confirmed: int
    #: Deliveries, repeated ones included.
    delivered: int
    lost: int
    unexpected: int
    #: Deliveries of a message that had come before, and said so.
    flagged: int
    unflagged: int
    disordered: int
    #: For how long nobody got a confirm, in all and at most at a time.
    unavailable_s: float
    longest_s: float


@dataclass
class Ledger:
    """What was sent, what was confirmed, and what came."""

    sent: set[Id] = field(default_factory=set)
    confirmed: set[Id] = field(default_factory=set)
    #: Sent more than once, since it was refused or its answer never came.
    repeated: set[Id] = field(default_factory=set)
    #: By queue, in the order of arrival: (id, whether it was flagged as redelivered).
    arrived: dict[str, list[tuple[Id, bool]]] = field(default_factory=lambda: defaultdict(list))
    seen: set[Id] = field(default_factory=set)
    events: Counter[str] = field(default_factory=Counter)
    #: Queues where a message may come twice without a word.
    twice: set[str] = field(default_factory=set)
    #: What a workload has found by itself.
    other_faults: list[str] = field(default_factory=list)
    #: While it is true, publishers want to be served: gaps between confirms count.
    is_measured: bool = False
    gaps_s: list[float] = field(default_factory=list)
    _last_confirm_s: float = 0.0

    def confirm(self, *messages: Id) -> None:
        """The broker has taken them."""
        self.confirmed.update(messages)
        self._note_gap()

    def _note_gap(self) -> None:
        now_s = time.monotonic()
        if self.is_measured and now_s - self._last_confirm_s > UNAVAILABLE_S:
            self.gaps_s.append(now_s - self._last_confirm_s)
        self._last_confirm_s = now_s

    def measure(self, is_measured: bool) -> None:
        """From now on, or no longer: the publishers begin or end."""
        if is_measured:
            self._last_confirm_s = time.monotonic()
        else:
            self._note_gap()
        self.is_measured = is_measured

    def arrive(self, queue: str, message: Id, redelivered: bool) -> None:
        """A consumer has it."""
        self.seen.add(message)
        self.arrived[queue].append((message, redelivered))

    def faults(self, ordered: set[str]) -> list[str]:
        """Everything that must not have happened."""
        found = list(self.other_faults)
        lost = self.confirmed - self.seen
        if lost:
            found.append(f"{len(lost)} confirmed messages are lost, as {sorted(lost)[:5]}")
        phantoms = self.seen - self.sent
        if phantoms:
            found.append(f"{len(phantoms)} messages were never sent, as {sorted(phantoms)[:5]}")
        for queue in self.arrived:
            found += [f"{queue}: {text}" for text in self._unflagged(queue)]
            if queue in ordered:
                found += [f"{queue}: {text}" for text in self._disordered(queue)]
        return found

    def _unflagged(self, queue: str) -> list[str]:
        if queue in self.twice:
            return []
        # One delivery is the first; that is not always the one that is read first.
        plain = Counter(message for message, redelivered in self.arrived[queue] if not redelivered)
        return [
            f"{message} came {times} times without a word"
            for message, times in plain.items()
            if times > 1 and message not in self.repeated
        ]

    def _disordered(self, queue: str) -> list[str]:
        found = []
        had: set[Id] = set()
        newest: dict[str, int] = {}
        for message, _ in self.arrived[queue]:
            if message in had:
                continue
            had.add(message)
            producer, number = message
            if message in self.repeated:
                continue
            if number < newest.get(producer, -1):
                found.append(f"{message} came after {newest[producer]}")
            newest[producer] = max(number, newest.get(producer, -1))
        return found

    def outcome(self, ordered: set[str]) -> Outcome:
        """The run in numbers."""
        deliveries = [one for arrived in self.arrived.values() for one in arrived]
        return Outcome(
            confirmed=len(self.confirmed),
            delivered=len(deliveries),
            lost=len(self.confirmed - self.seen),
            unexpected=len(self.seen - self.sent),
            flagged=sum(redelivered for _, redelivered in deliveries),
            unflagged=sum(len(self._unflagged(queue)) for queue in self.arrived),
            disordered=sum(
                len(self._disordered(queue)) for queue in self.arrived if queue in ordered
            ),
            unavailable_s=sum(self.gaps_s),
            longest_s=max(self.gaps_s, default=0.0),
        )


def id_of(body: bytes) -> Id:
    """The producer of a message, and its number there."""
    producer, _, number = body.decode().rstrip().rpartition(" ")
    return producer, int(number)
