"""What a promotion is told to be: who was master, why another is, how long it took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from warren.engine.promotions import Succession, why_deposed
from warren.engine.ring_changes import UNWANTED


def view(
    epoch: int,
    master: str | None,
    in_sync: tuple[str, ...],
    unclean: int = 0,
    wanted: tuple[str, ...] = (),
) -> Any:
    return SimpleNamespace(
        epoch=epoch, master=master, in_sync=in_sync, unclean=unclean, wanted=wanted
    )


def test_a_master_that_died() -> None:
    mirror = Succession("n2")
    mirror.view_changed(view(1, "n1", ("n1", "n2", "n3")), 0)
    mirror.peer_down("n3", 50)
    mirror.peer_down("n1", 100)
    mirror.view_changed(view(2, "n2", ("n2", "n3")), 400)
    assert mirror.served(512, 37) == {
        "node": "n2",
        "from": "n1",
        "cause": "failure",
        "took_ms": 412,
        "dropped": 0,
        "redelivered": 37,
    }


def test_a_master_that_no_policy_wants() -> None:
    mirror = Succession("n2")
    mirror.view_changed(view(1, "n1", ("n1", "n2"), wanted=("n1", "n2")), 0)
    mirror.view_changed(view(2, "n2", ("n2",), wanted=("n2",)), 10)
    mirror.view_changed(view(3, "n2", ("n2", "n3"), wanted=("n2", "n3")), 12)
    assert mirror.served(20, 3)["cause"] == "policy"
    assert why_deposed(view(2, "n2", ("n2",), wanted=("n2",)), "n1")["cause"] == UNWANTED
    # One that died is replaced by another: that is no policy's doing.
    mirror = Succession("n2")
    mirror.view_changed(view(1, "n1", ("n1", "n2"), wanted=("n1", "n2")), 0)
    mirror.view_changed(view(2, "n2", ("n2",), wanted=("n1", "n2")), 10)
    mirror.view_changed(view(3, "n2", ("n2", "n3"), wanted=("n2", "n3")), 12)
    assert mirror.served(20, 3)["cause"] == "failure"


def test_a_master_that_had_confirmed_early() -> None:
    """Nobody knows how much of that the mirrors do not have."""
    mirror = Succession("n2")
    mirror.view_changed(view(1, "n1", ("n1", "n2")), 0)
    mirror.view_changed(view(2, "n2", ("n2",)), 10)
    assert mirror.served(20, 0, was_early=True)["dropped"] is None
    # One that hands over waits until they have everything.
    mirror.view_changed(view(3, "n1", ("n1", "n2")), 30)
    mirror.view_changed(view(4, "n2", ("n2", "n1")), 40)
    assert mirror.served(50, 0, was_early=True)["dropped"] == 0


def test_a_link_that_came_back_is_not_when_it_was_noticed() -> None:
    mirror = Succession("n2")
    mirror.view_changed(view(1, "n1", ("n1", "n2")), 0)
    mirror.peer_down("n1", 100)
    mirror.peer_up("n1")
    # Without a lost link it begins with the view: the master was silent, or gave it away.
    mirror.view_changed(view(2, "n2", ("n2",)), 5000)
    assert mirror.served(5020, 0)["took_ms"] == 20


def test_no_master_for_a_while() -> None:
    mirror = Succession("n2")
    mirror.view_changed(view(1, "n1", ("n1",)), 0)
    mirror.peer_down("n1", 100)
    mirror.view_changed(view(2, None, ("n1",)), 200)
    mirror.view_changed(view(3, "n2", ("n2",), unclean=3), 3200)
    # One more view before it serves: what it lacks is missing all the same.
    mirror.view_changed(view(4, "n2", ("n2", "n3"), unclean=3), 3250)
    told = mirror.served(3300, 4)
    assert (told["from"], told["cause"], told["took_ms"]) == ("n1", "unclean", 3200)
    assert (told["dropped"], told["redelivered"]) == (None, 4)


def test_a_handover_and_the_way_back() -> None:
    mirror = Succession("n2")
    mirror.view_changed(view(1, "n1", ("n1", "n2")), 0)
    mirror.view_changed(view(2, "n2", ("n2", "n1")), 1000)
    told = mirror.served(1030, 9)
    assert (told["from"], told["cause"], told["took_ms"]) == ("n1", "handover", 30)
    assert told["redelivered"] is None
    mirror.view_changed(view(3, "n3", ("n3", "n2")), 2000)
    mirror.view_changed(view(4, "n2", ("n2",)), 3000)
    assert mirror.served(3001, 0)["from"] == "n3"


def test_a_replica_that_is_back_after_all_were_down() -> None:
    mirror = Succession("n2")
    mirror.view_changed(view(7, None, ("n2",)), 10)
    mirror.view_changed(view(8, "n2", ("n2",)), 20)
    told = mirror.served(25, 3)
    assert (told["from"], told["cause"], told["redelivered"]) == (None, "return", 3)


def test_why_a_master_is_one_no_more() -> None:
    assert why_deposed(view(2, "n2", ("n2", "n1")), "n1") == {"master": "n2", "cause": "handover"}
    told = why_deposed(view(2, "n2", ("n2",)), "n1")
    assert told == {"master": "n2", "cause": "the others have gone on without this node"}
    assert why_deposed(None, "n1")["master"] is None
