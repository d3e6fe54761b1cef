"""The checker catches what it must: a sound history passes, each of its mutants does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from checker import check
from history import ACK, REJECT, REQUEUE, Delivery, History, Message, Sight

MESSAGES = 20


def message(number: int, life: int = 1, queues: tuple[str, ...] = ("q",)) -> Message:
    name = f"p.{life}.{number}"
    return Message(name, f"p.{life}", number, queues, True, 0, 1000 + number, life, confirmed=True)


def deliver(history: History, name: str, queue: str = "q", *, flagged: bool = False) -> Delivery:
    reader = f"{queue}#0.{history.life}"
    return history.deliver(queue, name, flagged, history.messages[name].fingerprint, reader)


def read(history: History, name: str, queue: str = "q", *, flagged: bool = False) -> Delivery:
    found = deliver(history, name, queue, flagged=flagged)
    history.settle(found, ACK)
    return found


def sound() -> History:
    """Two lives: 1 to 20 in each, numbers 6 to 10 of the first delivered in both."""
    history = History(single_reader=frozenset(("q",)), dead_letters={"w": "d"}, life=1)
    for number in range(1, MESSAGES + 1):
        history.publish(message(number))
    for number in range(1, 6):
        read(history, f"p.1.{number}")
    for number in range(6, 11):
        deliver(history, f"p.1.{number}")
    history.life = 2
    for number in range(1, MESSAGES + 1):
        history.publish(message(number, life=2))
    for number in range(6, MESSAGES + 1):
        read(history, f"p.1.{number}", flagged=number <= 10)
    for number in range(1, MESSAGES + 1):
        read(history, f"p.2.{number}")
    history.left_over = {"q": 0}
    return history


def kinds(history: History) -> set[str]:
    return {problem.kind for problem in check(history).problems}


def only(history: History, name: str) -> list[Delivery]:
    return [delivery for delivery in history.deliveries if delivery.name == name]


def test_a_sound_history_passes() -> None:
    found = check(sound())
    assert found.problems == []
    assert found.numbers["published"] == 2 * MESSAGES
    assert found.numbers["delivered again, flagged"] == 5
    assert found.numbers["first seen after a restart"] == 10
    assert found.numbers["flagged but never seen before"] == 0


def lose(history: History) -> None:
    history.deliveries.remove(only(history, "p.1.15")[0])


def lose_after_delivery(history: History) -> None:
    history.deliveries.remove(only(history, "p.1.7")[1])


def lose_after_requeue(history: History) -> None:
    only(history, "p.2.20")[0].settled = REQUEUE


def lose_transient_without_restart(history: History) -> None:
    history.messages["p.2.5"].persistent = False
    history.deliveries.remove(only(history, "p.2.5")[0])


def invent(history: History) -> None:
    history.deliver("q", "nobody's", False, 0, "q#0.2")


def misroute(history: History) -> None:
    read(history, "p.2.20", "other")


def hold(history: History) -> None:
    history.messages["p.2.3"].held = True


def damage(history: History) -> None:
    only(history, "p.2.3")[0].fingerprint += 1


def swap(history: History) -> None:
    rows = history.deliveries
    rows[-1], rows[-2] = rows[-2], rows[-1]


def swap_flagged(history: History) -> None:
    rows = history.deliveries
    first = rows.index(only(history, "p.1.6")[1])
    rows[first], rows[first + 1] = rows[first + 1], rows[first]


def overtake_over_restart(history: History) -> None:
    """Number 3 is first delivered in the second life, though number 10 was before."""
    found = only(history, "p.1.3")[0]
    history.deliveries.remove(found)
    found.life, found.session = 2, "q#1.2"
    history.deliveries.append(found)


def unflag(history: History) -> None:
    only(history, "p.1.8")[1].flagged = False


def unflag_in_one_life(history: History) -> None:
    read(history, "p.2.20")


def revive(history: History) -> None:
    history.make_sure(only(history, "p.2.1"))
    read(history, "p.2.1", flagged=True)


def leave(history: History) -> None:
    history.left_over["q"] = 1


def surprise(history: History) -> None:
    history.surprises.append("exit code 1")


def come_back(history: History) -> None:
    history.messages["p.1.1"].returned = True


@pytest.mark.parametrize(
    ("mutate", "kind"),
    [
        (lose, "lost"),
        (lose_after_delivery, "lost"),
        (lose_after_requeue, "lost"),
        (lose_transient_without_restart, "lost"),
        (invent, "phantom"),
        (misroute, "phantom"),
        (hold, "phantom"),
        (damage, "damaged"),
        (swap, "disorder"),
        (swap_flagged, "disorder"),
        (overtake_over_restart, "disorder"),
        (unflag, "unflagged duplicate"),
        (unflag_in_one_life, "unflagged duplicate"),
        (revive, "settled but delivered again"),
        (leave, "left over"),
        (surprise, "surprise"),
        (come_back, "unroutable"),
    ],
)
def test_a_mutant_is_caught(mutate: Callable[[History], None], kind: str) -> None:
    history = sound()
    mutate(history)
    assert kind in kinds(history)


def test_any_single_lost_delivery_is_caught() -> None:
    for at in range(len(sound().deliveries)):
        history = sound()
        gone = history.deliveries.pop(at)
        if gone.settled:
            assert kinds(history) == {"lost"}, gone


def test_any_swap_of_neighbours_is_caught() -> None:
    history = sound()
    for at in range(len(history.deliveries) - 1):
        history = sound()
        rows = history.deliveries
        one, other = (history.messages[row.name] for row in rows[at : at + 2])
        if one.session == other.session and rows[at].life == rows[at + 1].life:
            rows[at], rows[at + 1] = rows[at + 1], rows[at]
            assert "disorder" in kinds(history), at


def test_what_a_broker_may_do() -> None:
    history = sound()
    # An acknowledgement that did not reach the disk: again, flagged, in its old place.
    again = read(history, "p.1.5", flagged=True)
    history.deliveries.remove(again)
    history.deliveries.insert(history.deliveries.index(only(history, "p.1.6")[1]), again)
    # Unconfirmed, and gone with its life.
    history.publish(message(90)).confirmed = False
    # Transient, and gone with its life, delivered or not.
    history.publish(message(91)).persistent = False
    # Held in a transaction, and never seen.
    history.publish(message(92)).held = True
    # Flagged though nobody saw it: the broker may not know.
    only(history, "p.1.11")[0].flagged = True
    assert kinds(history) == set()
    history.orderly = True
    assert kinds(history) == {"needless flag"}


def test_unconfirmed_but_recovered_must_stay() -> None:
    history = sound()
    history.publish(message(93)).confirmed = False
    found = deliver(history, "p.1.93", flagged=True)
    history.life = 3
    assert kinds(history) == {"lost"}
    history.settle(found, ACK)
    assert kinds(history) == set()


def rejected() -> History:
    history = sound()
    history.publish(message(21, life=2, queues=("w",)))
    history.settle(deliver(history, "p.2.21", "w"), REJECT)
    return history


def test_dead_letters() -> None:
    history = rejected()
    read(history, "p.2.21", "d")
    assert kinds(history) == set()
    assert kinds(rejected()) == {"lost"}, "rejected, and nowhere"
    history = rejected()
    deliver(history, "p.2.21", "d")
    assert kinds(history) == {"lost"}, "dead-lettered, then gone"
    history = rejected()
    read(history, "p.2.21", "d")
    read(history, "p.2.21", "d")
    assert kinds(history) == {"unflagged duplicate"}, "two copies of one reject"
    history = sound()
    history.publish(message(21, life=2, queues=("w",)))
    read(history, "p.2.21", "w")
    read(history, "p.2.21", "d")
    assert kinds(history) == {"phantom"}, "dead-lettered, but not rejected"


def test_two_readers_of_one_life_have_no_order() -> None:
    """A channel closes with a delivery unsettled; the other reader's socket is read first."""
    for queue in ("w", "d"):
        history = sound()
        history.publish(message(21, life=2, queues=("w",)))
        if queue == "d":
            history.settle(deliver(history, "p.2.21", "w"), REJECT)
        read(history, "p.2.21", queue, flagged=True)
        history.deliver(queue, "p.2.21", False, 1021, f"{queue}#1.2")
        assert kinds(history) == set(), queue


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        ("missing create created:0 seen:0", False),
        ("create created:0 missing", True),
        ("create missing", False),
        ("create seen:0 delete deleted missing", False),
        ("create created:0 delete deleted seen:0", True),
        ("create created:0 delete seen:0 delete missing", False),
        ("create created:0 put:3 stored:3 seen:3", False),
        ("create created:0 put:3 stored:3 seen:2", True),
        ("create created:0 put:3 seen:2 seen:2", False),
        ("create created:0 put:3 seen:2 seen:3", True),
        ("create created:0 put:3 stored:3 delete deleted create created:3", True),
        ("create created:0 restart seen:0", True),
        ("create created:0 restart missing", False),
    ],
)
def test_topology(steps: str, wrong: bool) -> None:
    history = sound()
    for step in steps.split():
        name, _, count = step.partition(":")
        history.sights.append(Sight(name, "queue t", 1, int(count or 0)))
    assert kinds(history) == ({"topology"} if wrong else set())


def test_a_history_is_saved_and_loaded(tmp_path: Path) -> None:
    history = rejected()
    history.sight("missing", "queue t")
    history.save(tmp_path / "history.jsonl")
    loaded = History.load(tmp_path / "history.jsonl")
    assert loaded.messages == history.messages
    assert loaded.deliveries == history.deliveries
    assert check(loaded).problems == check(history).problems
