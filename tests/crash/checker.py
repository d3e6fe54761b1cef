"""Whether a history is one that a broker with a store may produce.

Pure functions: a history goes in, problems come out. What the broker promises, and so what is
checked: a confirmed persistent message stays until it is settled; nothing comes that was not sent;
first deliveries keep the publisher's order; any delivery after the first is flagged. An
acknowledgement is not answered and so not promised to be on disk: after a kill its message may come
again, flagged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from history import ACK, REJECT, Delivery, History, Message, Sight

#: Deliveries of one message in one queue, with their place among all deliveries.
Deliveries = list[tuple[int, Delivery]]
Places = dict[tuple[str, str], Deliveries]


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken promise."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass
class Verdict:
    """What a history shows."""

    problems: list[Problem] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)


def check(history: History) -> Verdict:
    """All problems of a history, and its numbers."""
    places = by_place(history)
    rules: tuple[Callable[[History, Places], Iterator[Problem]], ...] = (
        losses,
        lost_dead_letters,
        phantoms,
        unflagged_duplicates,
        needless_flags,
        returns_after_settlement,
        disorder_of_first_deliveries,
        disorder_after_restart,
        changes_of_topology,
        left_overs,
    )
    problems = [problem for rule in rules for problem in rule(history, places)]
    return Verdict(problems, numbers(history, places))


def by_place(history: History) -> Places:
    """The deliveries of each message in each queue, in order."""
    places: Places = defaultdict(list)
    for at, delivery in enumerate(history.deliveries):
        places[delivery.queue, delivery.name].append((at, delivery))
    return dict(places)


def _shown(message: Message, queue: str) -> str:
    kind = "persistent" if message.persistent else "transient"
    state = "confirmed" if message.confirmed else "unconfirmed"
    return f"{message.name} in {queue} ({kind}, {state}, published in life {message.life})"


def _story(deliveries: Deliveries) -> str:
    return "; ".join(
        f"life {found.life} by {found.session}{' flagged' if found.flagged else ''},"
        f" {found.settled or 'not settled'}"
        for _, found in deliveries
    )


# -- nothing is lost -------------------------------------------------------------------------------


def _must_stay(history: History, message: Message, seen: Deliveries) -> bool:
    """Whether the message is promised to be in its queues until it is settled."""
    last_seen = seen[-1][1].life if seen else 0
    if last_seen == history.life:
        return True  # It was there after the last restart, and the drain takes everything.
    if not message.persistent:
        return message.confirmed and message.life == history.life
    # What came back after a restart is on disk, confirmed or not.
    return message.confirmed or last_seen > message.life


def _settled(seen: Deliveries) -> bool:
    """Whether a reader settled it for good in the last life that it was seen in.

    Of two readers' sockets either may be read first: a delivery that seems to come behind the
    settlement can be the one before it.
    """
    last = seen[-1][1].life
    return any(found.life == last and found.settled in {ACK, REJECT} for _, found in seen)


def losses(history: History, places: Places) -> Iterator[Problem]:
    """Messages that are gone without a settlement."""
    for message in history.messages.values():
        if message.returned:
            yield Problem("unroutable", f"{message.name} for {', '.join(message.queues)}")
            continue
        for queue in message.queues:
            seen = places.get((queue, message.name), [])
            if message.held or not _must_stay(history, message, seen):
                continue
            if not seen:
                yield Problem("lost", f"{_shown(message, queue)}, never delivered")
            elif not _settled(seen):
                yield Problem("lost", f"{_shown(message, queue)}, gone after: {_story(seen)}")


def lost_dead_letters(history: History, places: Places) -> Iterator[Problem]:
    """A rejected message is in the one queue or in the other."""
    for source, target in history.dead_letters.items():
        for message in history.messages.values():
            seen = places.get((source, message.name))
            if not seen or seen[-1][1].settled != REJECT:
                continue
            there = places.get((target, message.name), [])
            rejected_in = seen[-1][1].life
            certain = message.persistent and (message.confirmed or rejected_in > message.life)
            if not certain and rejected_in != history.life and not there:
                continue
            if not there:
                yield Problem("lost", f"{_shown(message, source)}, rejected, not in {target}")
            elif not _settled(there) and (certain or there[-1][1].life == history.life):
                yield Problem("lost", f"{_shown(message, target)}, gone after: {_story(there)}")


# -- nothing comes that was not sent ---------------------------------------------------------------


def _rejects(history: History, places: Places, target: str, name: str) -> list[int]:
    """When the message was rejected on its way to this queue of dead letters."""
    return [
        at
        for source, into in history.dead_letters.items()
        if into == target
        for at, delivery in places.get((source, name), [])
        if delivery.settled == REJECT
    ]


def phantoms(history: History, places: Places) -> Iterator[Problem]:
    """Messages nobody sent, or not there, or not like this."""
    targets = set(history.dead_letters.values())
    for delivery in history.deliveries:
        message = history.messages.get(delivery.name)
        where = f"{delivery.name!r} in {delivery.queue}, life {delivery.life}"
        if message is None:
            yield Problem("phantom", f"{where}: never published")
        elif message.held:
            yield Problem("phantom", f"{where}: its transaction was not committed")
        elif delivery.queue not in message.queues and not (
            delivery.queue in targets and _rejects(history, places, delivery.queue, delivery.name)
        ):
            yield Problem("phantom", f"{where}: not routed there")
        elif delivery.fingerprint != message.fingerprint:
            yield Problem("damaged", f"{where}: body or properties differ")


def unflagged_duplicates(history: History, places: Places) -> Iterator[Problem]:
    """Every delivery after the first says `redelivered`.

    Of two sockets of one life either may be read first, so there only the number counts.
    """
    targets = set(history.dead_letters.values())
    for (queue, name), seen in places.items():
        plain = [delivery for _, delivery in seen if not delivery.flagged]
        if queue in targets:
            # Each reject may have made a copy of its own, and each copy has a first delivery.
            firsts = max(1, len(_rejects(history, places, queue, name)))
            wrong = len(plain) > firsts
        else:
            wrong = len(plain) > 1 or (bool(plain) and plain[0].life > seen[0][1].life)
        if wrong:
            yield Problem("unflagged duplicate", f"{name} in {queue}: {_story(seen)}")


def _never_plain(seen: Deliveries) -> bool:
    """Flagged, though no reader had it before."""
    return all(delivery.flagged for _, delivery in seen)


def needless_flags(history: History, places: Places) -> Iterator[Problem]:
    """After an orderly stop the broker knows what it had delivered."""
    if history.orderly:
        for (queue, name), seen in places.items():
            if _never_plain(seen):
                yield Problem("needless flag", f"{name} in {queue}: {_story(seen)}")


def returns_after_settlement(history: History, places: Places) -> Iterator[Problem]:
    """Within one life, what the broker has surely settled does not come again."""
    for (queue, name), seen in places.items():
        sure_at: dict[int, int] = {}
        for at, delivery in seen:
            if at >= sure_at.get(delivery.life, at + 1):
                yield Problem("settled but delivered again", f"{name} in {queue}: {_story(seen)}")
                break
            if delivery.sure_at is not None:
                sure_at[delivery.life] = delivery.sure_at


# -- order -----------------------------------------------------------------------------------------


def disorder_of_first_deliveries(history: History, _: Places) -> Iterator[Problem]:
    """Unflagged deliveries of a publisher's messages come in the publisher's order.

    Each reader is looked at alone: what two sockets show at the same time has no order. Over a
    restart all readers count: what is behind a delivered message had its first delivery.
    """
    targets = set(history.dead_letters.values())
    last: dict[tuple[str, str, str, int], int] = {}
    before: dict[tuple[str, str, int], int] = {}
    during: dict[tuple[str, str, int], int] = {}
    life = 0
    for delivery in history.deliveries:
        message = history.messages.get(delivery.name)
        if message is None or delivery.queue in targets:
            continue
        if delivery.life != life:
            life = delivery.life
            for key, number in during.items():
                before[key] = max(number, before.get(key, number))
            during.clear()
        line = (delivery.queue, message.session, message.priority)
        if not delivery.flagged:
            place = (delivery.session, *line)
            where = f"{message.name} in {delivery.queue}, life {life}, by {delivery.session}"
            if message.number < last.get(place, -1):
                yield Problem("disorder", f"{where}: first delivered after number {last[place]}")
            elif message.number < before.get(line, -1):
                yield Problem(
                    "disorder",
                    f"{where}: first delivered after number {before[line]}, of an earlier life",
                )
            last[place] = max(message.number, last.get(place, -1))
        during[line] = max(message.number, during.get(line, -1))


def disorder_after_restart(history: History, _: Places) -> Iterator[Problem]:
    """A queue comes back in order: its one reader starts each life at the front, flagged or not.

    A message counts when it is first delivered in that life; after that it was requeued.
    """
    last: dict[tuple[str, int, str, int], int] = {}
    met: set[tuple[str, str, int]] = set()
    for delivery in history.deliveries:
        message = history.messages.get(delivery.name)
        met_as = (delivery.queue, delivery.name, delivery.life)
        if message is None or delivery.queue not in history.single_reader or met_as in met:
            continue
        met.add(met_as)
        line = (delivery.queue, delivery.life, message.session, message.priority)
        if message.number < last.get(line, -1):
            yield Problem(
                "disorder",
                f"{message.name} in {delivery.queue}: after number {last[line]} in life"
                f" {delivery.life}",
            )
        last[line] = max(message.number, last.get(line, -1))


# -- queues, exchanges, bindings -------------------------------------------------------------------


@dataclass
class Possible:
    """What a thing can be by all that is known."""

    present: bool = False
    absent: bool = True
    low: int = 0
    high: int = 0

    def step(self, sight: Sight) -> str | None:
        """Take one step; what is wrong with it, if something is."""
        wrong = None
        match sight.step:
            case "create":
                self.low = 0 if self.absent else self.low
                self.present = True
            case "put":
                self.high += sight.count
            case "stored":
                self.low += sight.count
            case "delete":
                self.absent = True
            case "created" | "seen":
                if not self.present:
                    wrong = "is there, but was deleted"
                elif not self.low <= sight.count <= self.high:
                    wrong = f"has {sight.count} messages, not {self.low} to {self.high}"
                self.present, self.absent = True, False
                self.low = self.high = sight.count
            case "missing":
                if not self.absent:
                    wrong = "is gone, but was declared"
                self._gone()
            case "deleted" | "restart":
                self._gone()
            case unknown:
                raise ValueError(unknown)
        return wrong

    def _gone(self) -> None:
        self.present, self.absent = False, True
        self.low = self.high = 0


def changes_of_topology(history: History, _: Places) -> Iterator[Problem]:
    """What was declared is there, what was deleted is gone, with no message more or less."""
    things: dict[str, Possible] = defaultdict(Possible)
    for sight in history.sights:
        wrong = things[sight.thing].step(sight)
        if wrong is not None:
            yield Problem("topology", f"{sight.thing} in life {sight.life} {wrong}")


def left_overs(history: History, _: Places) -> Iterator[Problem]:
    """The drain leaves nothing, and no client met what it should not."""
    for queue, count in history.left_over.items():
        if count:
            yield Problem("left over", f"{count} messages in {queue}")
    for surprise in history.surprises:
        yield Problem("surprise", surprise)


# -- numbers ---------------------------------------------------------------------------------------


def numbers(history: History, places: Places) -> dict[str, int]:
    """How much was seen; among it what is no error but must stay small."""
    messages = history.messages.values()
    carried = [
        seen[0][1]
        for (_, name), seen in places.items()
        if name in history.messages and seen[0][1].life > history.messages[name].life
    ]
    copies = len(places)
    return {
        "lives": history.life,
        "published": len(messages),
        "confirmed": sum(message.confirmed for message in messages),
        "confirmed persistent": sum(m.confirmed and m.persistent for m in messages),
        "deliveries": len(history.deliveries),
        "delivered again, flagged": len(history.deliveries) - copies,
        "first seen after a restart": len(carried),
        "flagged but never seen before": sum(map(_never_plain, places.values())),
        "unconfirmed but delivered": sum(
            not history.messages[name].confirmed for _, name in places if name in history.messages
        ),
        "transient, gone with a restart": sum(
            (queue, message.name) not in places
            for message in messages
            if message.confirmed and not message.persistent
            for queue in message.queues
        ),
        "transient, seen after a restart": sum(
            not history.messages[delivery.name].persistent for delivery in carried
        ),
        "steps of topology": len(history.sights),
        "largest backlog": history.backlog_max,
    }
