"""What operators are told of a ring: rows of queues, the ring itself, and what would follow."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from warren.cluster.metadata import View
from warren.management.forks import explain_forks
from warren.management.mirrors import (
    Position,
    explain,
    is_sync_critical,
    mirror_fields,
    position_of,
    show_ring,
)
from warren.model.policy import EffectiveArguments
from warren.model.queue_arguments import QueueDeclaration


class Mirrors:
    def __init__(self, told: dict[str, Any] | None) -> None:
        self.told = told
        self.forks: Any = SimpleNamespace(describe=list, told={})

    def describe(self, _queue: Any) -> dict[str, Any] | None:
        return self.told


def queue(**effective: Any) -> Any:
    return SimpleNamespace(
        name="q",
        number=7,
        home="a",
        absence=None,
        declaration=QueueDeclaration(durable=True),
        vhost=SimpleNamespace(name="/", mirror_links={}),
        effective=EffectiveArguments(**{"ha_mode": "all", **effective}),
    )


def engine(
    view: View | None,
    told: dict[str, Any] | None = None,
    alive: str = "abc",
    linked: str | None = None,
) -> Any:
    return SimpleNamespace(
        views={} if view is None else {7: view},
        mirrors=Mirrors(told),
        cluster=SimpleNamespace(
            living_nodes=lambda: list(alive), linked_nodes=lambda: list(linked or alive)
        ),
        settings=SimpleNamespace(node_name="a"),
        clock=SimpleNamespace(now_ms=lambda: 10_000),
    )


def view(master: str | None, in_sync: str, learners: str = "", wanted: str = "abc") -> View:
    return View(5, master, tuple(in_sync), tuple(learners), tuple(wanted))


TOLD = {
    "epoch": 5,
    "commit": 120,
    "last": 130,
    "positions": {"a": 130, "b": 120, "c": 30},
    "lags": {"a": (0, 0), "b": (2048, 1_500), "c": (None, None)},
    "since": {"a": None, "b": 4_000},
    "held": 0,
    "lacks": {"c": 30},
    "syncs": {"c": {"done": 10, "total": 40, "bytes_done": 1000, "since_ms": 8_000}},
}
SYNC = {
    "done": 10,
    "total": 40,
    "bytes_done": 1000,
    "messages_per_second": 5.0,
    "bytes_per_second": 500.0,
    "eta_seconds": 6.0,
}


def test_the_row_of_a_queue_names_its_mirrors() -> None:
    fields = mirror_fields(engine(view("a", "ab", "c"), TOLD), queue())
    assert fields == {
        "slave_nodes": ["b", "c"],
        "synchronised_slave_nodes": ["b"],
        "mirror_nodes": ["b", "c"],
        "synchronised_mirror_nodes": ["b"],
        "recoverable_slaves": ["b", "c"],
        "explicit_mirror_nodes": [],
        "sync_messages": 10,
    }
    down = mirror_fields(engine(view(None, "b", "c"), None), queue())
    assert down["slave_nodes"] == ["c"]
    assert down["synchronised_slave_nodes"] == []
    assert down["recoverable_slaves"] == ["b", "a", "c"]
    assert mirror_fields(engine(None), queue()) == {"recoverable_slaves": None}


def test_the_ring_with_figures() -> None:
    shown = show_ring(engine(view("a", "ab", "c"), TOLD), queue(ha_min_in_sync=2))
    rows = shown.pop("replicas")
    shown.pop("explain")
    assert shown == {
        "name": "q",
        "vhost": "/",
        "epoch": 5,
        "state": "running",
        "master": "a",
        "wanted": ["a", "b", "c"],
        "replication": "sync",
        "replication_window": None,
        "unreplicated_confirms": 0,
        "unreplicated_confirms_max": 0,
        "min_in_sync": 2,
        "commit": 120,
        "last": 130,
    }
    assert [(row["node"], row["role"], row["synchronised"], row["online"]) for row in rows] == [
        ("a", "master", True, True),
        ("b", "mirror", True, True),
        ("c", "learner", False, True),
    ]
    assert [(row["position"], row["lag_messages"], row["lag_bytes"]) for row in rows] == [
        (130, 0, 0),
        (120, 10, 2048),
        (30, 100, None),
    ]
    assert [row["lacks_messages"] for row in rows] == [0, 0, 30]
    assert [(row["applied"], row["lag_seconds"]) for row in rows] == [
        (120, 0),
        (120, 1.5),
        (30, None),
    ]
    assert (rows[0]["since"], rows[2]["since"]) == (None, None)
    # It has been a mirror for six of the ten seconds that the clock has run.
    assert abs(rows[1]["since"] - (time.time() * 1000 - 6_000)) < 60_000
    assert [row["sync"] for row in rows] == [None, None, SYNC]


@pytest.mark.parametrize("told", [None, {}, {"last": 7}])
def test_the_ring_without_figures(told: dict[str, Any] | None) -> None:
    shown = show_ring(engine(view("b", "bc", "", "abc"), told, alive="bc"), queue())
    assert [(row["node"], row["role"], row["online"]) for row in shown["replicas"]] == [
        ("b", "master", True),
        ("c", "mirror", True),
        ("a", "learner", False),
    ]
    assert shown["replicas"][1]["lag_messages"] is None
    assert shown["commit"] is None


def test_states() -> None:
    for now, state in (
        (view("a", "a"), "running"),
        (view(None, "a"), "down"),
        (view(None, "a", "b"), "no master"),
    ):
        assert show_ring(engine(now), queue())["state"] == state


EXPLAINED = [
    (
        view("a", "abc"),
        {},
        [
            "if a dies now: b becomes master, nothing is lost",
            "if b dies now: a goes on, c still has everything",
            "if c dies now: a goes on, b still has everything",
        ],
    ),
    (
        view("a", "ab", "", "ab"),
        {},
        [
            "if a dies now: b becomes master, nothing is lost",
            "if b dies now: a goes on, no other node has everything then",
        ],
    ),
    (
        view("a", "a", "b", "abc"),
        {"ha_min_in_sync": 2},
        [
            "1 synchronised where ha-min-in-sync wants 2: nothing is confirmed until there "
            "are more",
            "if a dies now: it is down until a is back; no other has everything",
            "b lacks messages: it cannot take over before it has them: warrenctl sync_queue q",
            "c is wanted, and down or cut off: start it, mend the network, or, if it is lost for "
            "good, warrenctl forget_cluster_node c",
        ],
    ),
    (
        view("a", "a", "bc"),
        {"ha_promote_on_failure": "always", "ha_sync_mode": "automatic"},
        [
            "if a dies now: one of b, c becomes master after a while, and what it lacks is lost "
            "(ha-promote-on-failure is always)",
            "b lacks messages: it cannot take over yet: it is given them by itself",
            "c lacks messages: it cannot take over yet: it is given them by itself",
        ],
    ),
    (
        view("a", "a", "b", "b"),
        {},
        [
            "if a dies now: it is down until a is back; no other has everything",
            "b lacks messages: it cannot take over before it has them: warrenctl sync_queue q",
            "a goes as soon as a wanted replica is synchronised",
        ],
    ),
    (
        view("a", "a", "b", "ab"),
        {"ha_params": ("b", "unknown"), "ha_mode": "nodes"},
        [
            "if a dies now: it is down until a is back; no other has everything",
            "b lacks messages: it cannot take over before it has them: warrenctl sync_queue q",
            "a goes as soon as a wanted replica is synchronised",
        ],
    ),
    (
        view("a", "a", "", "a"),
        {"ha_params": ("unknown",), "ha_mode": "nodes"},
        ["if a dies now: it is down until a is back; no other has everything"],
    ),
    (
        view(None, "a", "b"),
        {},
        [
            "it is down until one of these is back: a; start it",
            "b may lack messages",
            "if none of those comes back, to go on without what they alone have: "
            "ha-promote-on-failure always, in the policy (warrenctl set_policy)",
        ],
    ),
    (view(None, "a"), {}, ["it is down until one of these is back: a; start it"]),
    (view(None, "ab"), {}, ["it is down until one of these is back: a, b; start any of them"]),
]


@pytest.mark.parametrize(("now", "effective", "said"), EXPLAINED)
def test_what_would_follow(now: View, effective: dict[str, Any], said: list[str]) -> None:
    assert explain(now, queue(**effective)) == said


def test_nothing_is_promised_by_a_copy_that_there_will_not_be() -> None:
    """`sync_queue` is refused with this strategy, and nothing comes by itself."""
    for how in ("manual", "automatic"):
        said = explain(view("a", "a", "b", "ab"), queue(ha_sync_strategy="event", ha_sync_mode=how))
        assert said[1:] == [
            "b lacks messages: it cannot take over before those are consumed, or another "
            "ha-sync-strategy than event is in the policy (warrenctl set_policy)"
        ]


def test_what_a_learner_lacks_is_counted() -> None:
    now, quiet = view("a", "a", "b", "ab"), {"lacks": {"b": 18_583}}
    assert explain(now, queue(), quiet)[1] == (
        "b lacks 18,583 messages: it cannot take over before it has them: warrenctl sync_queue q"
    )
    assert explain(now, queue(), {"lacks": {"b": 1}})[1].startswith("b lacks 1 message: ")
    assert explain(now, queue(), {"lacks": {"b": 0}})[1].startswith("b lacks messages: ")


def test_commands_are_given_so_that_they_can_be_typed() -> None:
    elsewhere = queue()
    elsewhere.name, elsewhere.vhost = "my orders", SimpleNamespace(name="a b", mirror_links={})
    assert explain(view("a", "a", "b", "ab"), elsewhere)[1].endswith(
        "before it has them: warrenctl -p 'a b' sync_queue 'my orders'"
    )
    linked = queue()
    linked.vhost.mirror_links["q"] = ("b",)
    assert explain(view("a", "ab", "", "ab"), linked)[-1] == (
        "b has a replica because an operator wants it, whatever the policy is; to end that: "
        "warrenctl remove_queue_mirror_link q b"
    )


@pytest.mark.parametrize(
    ("declaration", "end"),
    [
        ({"durable": True}, "it is down until a is back"),
        ({}, "it is gone, since it is not durable"),
        ({"durable": True, "exclusive": True}, "it is gone, as every exclusive queue"),
    ],
)
def test_a_queue_without_mirrors(declaration: dict[str, bool], end: str) -> None:
    alone = queue()
    alone.declaration = QueueDeclaration(**declaration)
    shown = show_ring(engine(None), alone)
    assert shown["explain"] == [f"it has no mirrors: if a dies now, {end}"]


def test_a_transient_queue_goes_with_the_last_that_has_everything() -> None:
    transient = queue(ha_promote_on_failure="always")
    transient.declaration = QueueDeclaration()
    assert explain(view("a", "a", "b", "ab"), transient)[0] == (
        "if a dies now: it is gone, since it is not durable and no other has everything"
    )


def test_what_would_follow_in_numbers() -> None:
    told = {**TOLD, "held": 1_204}
    first = explain(view("a", "ab", "c"), queue(), told)[0]
    assert first == (
        "if a dies now: b becomes master, nothing is lost; 1,204 messages that consumers hold "
        "come again, redelivered"
    )
    one = explain(view("a", "ab", "c"), queue(), {**TOLD, "held": 1})[0]
    assert one.endswith("; 1 message that a consumer holds comes again, redelivered")
    last = explain(view("a", "a", "c"), queue(ha_promote_on_failure="always"), told)[0]
    # 100 operations behind, and 30 of the copy are yet to come.
    assert last.endswith("; c lacks the least, 130 operations and messages of its copy")


def test_the_last_good_copy_is_critical() -> None:
    for now, is_critical in (
        (None, False),
        (view("a", "ab"), False),
        (view("a", "a"), True),
        (view("a", "a", "bc"), True),
        (view("a", "a", "", "a"), False),
        (view("b", "b"), False),
    ):
        assert is_sync_critical(engine(now), queue()) is is_critical


def test_a_copy_that_cannot_be_reached_is_none() -> None:
    """The others may be dead: without a majority nobody can agree on it."""
    for now in (view("a", "ab"), view("b", "ba")):
        assert is_sync_critical(engine(now, linked="ac"), queue())
    assert not is_sync_critical(engine(view("a", "abc"), linked="ac"), queue())
    assert not is_sync_critical(engine(view("b", "b"), linked="a"), queue())


def test_without_a_majority_nothing_is_promised() -> None:
    shown = show_ring(engine(view("b", "ba"), linked="ac"), queue(), is_outvoted=True)
    assert shown["explain"] == [
        "a has no part in a majority: nothing is confirmed and nobody is promoted; start the other "
        "nodes, or mend the network (warrenctl cluster_status)",
        "when that was agreed on last, b was master, and b, a had everything; b cannot be reached",
    ]
    assert [row["online"] for row in shown["replicas"]] == [False, True, True]
    on_this_side = show_ring(engine(view("a", "ac"), linked="ac"), queue(), is_outvoted=True)
    assert "its master goes on" in on_this_side["explain"][0]


@pytest.mark.parametrize(
    ("told", "position"),
    [
        (None, Position(-1, -1)),
        ({"epoch": 4}, Position(4, -1)),
        ({"epoch": 4, "last": 9, "last_epoch": 3}, Position(3, 9)),
        ({"epoch": None, "last": None}, Position(-1, -1)),
    ],
)
def test_how_far_a_replica_is(told: dict[str, Any] | None, position: Position) -> None:
    assert position_of(engine(view("b", "b", "a"), told), queue()) == position


def test_what_a_failover_may_take_back_is_told() -> None:
    early = queue(ha_replication="async", ha_max_lag_messages=7)
    shown = show_ring(engine(view("a", "ab"), {**TOLD, "promised": 3}), early)
    assert shown["replication"] == "async"
    assert (shown["unreplicated_confirms"], shown["unreplicated_confirms_max"]) == (3, 7)
    assert shown["explain"][0] == (
        "if a dies now: b becomes master, and up to 7 of the last messages that were confirmed "
        "(3 at this moment) are missing until a is back, which publishes them again "
        "(ha-replication is async)"
    )


def test_hours_of_copies_are_told() -> None:
    hours = queue(ha_replication_window="22:00-06:00")
    assert show_ring(engine(view("a", "a", "b"), TOLD), hours)["explain"][-1] == (
        "it is not protected: it is copied from 22:00 to 06:00 only (ha-replication-window)"
    )
    assert show_ring(engine(view("a", "ab"), TOLD), hours)["explain"][-1] == (
        "it is copied from 22:00 to 06:00 only (ha-replication-window)"
    )


def test_a_fork_is_told_of() -> None:
    told = Mirrors(None)
    row = {"vhost": "/", "queue": "q", "fork": "a/1", "state": "open", "messages": 1200}
    told.forks.describe = lambda: [row, {**row, "queue": "another"}]
    told.forks.told = {7: (900, "")}
    engine_: Any = SimpleNamespace(
        mirrors=told,
        settings=SimpleNamespace(node_name="a"),
        clock=SimpleNamespace(now_ms=lambda: 1000),
    )
    queue_: Any = SimpleNamespace(name="q", number=7, vhost=SimpleNamespace(name="/"))
    said = explain_forks(engine_, queue_)
    assert said[0].startswith("a serves a fork of it, a/1, with 1,200 messages")
    assert said[1:] == ["a fork that another node has had is being merged into it"]
    told.forks.told[7] = (900, "the queue is full")
    assert explain_forks(engine_, queue_)[1].endswith("into it: waits, the queue is full")
    row |= {"state": "merging", "acknowledgements": 3, "waits_for": "full", "unreadable": 0}
    assert "3 acknowledgements are left: waits, full" in explain_forks(engine_, queue_)[0]
    row["unreadable"] = 2
    assert "2 messages that were published to fork" in explain_forks(engine_, queue_)[1]
