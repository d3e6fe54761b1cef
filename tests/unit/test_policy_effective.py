"""Which policy applies, how two of them merge, and what a queue's arguments change."""

from __future__ import annotations

import pytest

from warren.model.policy import (
    EffectiveArguments,
    Policy,
    effective_queue_arguments,
    match,
    merge,
)


def policy(name: str, pattern: str = "", priority: int = 0, apply_to: str = "all") -> Policy:
    return Policy("/", name, pattern, {"max-length": 1}, priority, apply_to)


def defined(**definition: object) -> Policy:
    return Policy("/", "p", "", {key.replace("_", "-"): value for key, value in definition.items()})


def test_pattern_is_searched_not_anchored() -> None:
    loose, anchored = policy("loose", "two"), policy("anchored", "^two")
    assert match([loose], "queue", "one.two") is loose
    assert match([anchored], "queue", "one.two") is None
    assert match([anchored], "queue", "two.one") is anchored


def test_highest_priority_then_first_name() -> None:
    low, b, a = policy("0", priority=1), policy("b", priority=2), policy("a", priority=2)
    assert match([low, b, a], "queue", "q") is a
    assert match([a, b, low], "queue", "q") is a
    assert match([], "queue", "q") is None


@pytest.mark.parametrize(
    ("apply_to", "covers"),
    [
        ("all", {"classic", "quorum", "exchange"}),
        ("queues", {"classic", "quorum"}),
        ("classic_queues", {"classic"}),
        ("quorum_queues", {"quorum"}),
        ("streams", set()),
        ("exchanges", {"exchange"}),
    ],
)
def test_apply_to(apply_to: str, covers: set[str]) -> None:
    one = policy("p", apply_to=apply_to)
    assert one.applies("queue", "q", "classic") == ("classic" in covers)
    assert one.applies("queue", "q", "quorum") == ("quorum" in covers)
    assert one.applies("exchange", "q") == ("exchange" in covers)


@pytest.mark.parametrize(
    ("user", "operator", "effective"),
    [
        (None, None, {}),
        (defined(expires=5), None, {"expires": 5}),
        (None, defined(expires=5), {"expires": 5}),
        (
            defined(message_ttl=5, expires=5),
            defined(message_ttl=3, max_length=3),
            {"message-ttl": 3, "expires": 5, "max-length": 3},
        ),
        (defined(message_ttl=5), defined(message_ttl=7), {"message-ttl": 5}),
        (
            defined(overflow="drop-head", queue_version=1),
            defined(overflow="reject-publish", queue_version=2),
            {"overflow": "reject-publish", "queue-version": 2},
        ),
        (
            defined(ha_mode="nodes", ha_params=["a", "b", "c"]),
            defined(ha_mode="exactly", ha_params=2),
            {"ha-mode": "exactly", "ha-params": 2},
        ),
        (
            defined(ha_mode="exactly", ha_params=3),
            defined(ha_mode="exactly", ha_params=2),
            {"ha-mode": "exactly", "ha-params": 3},
        ),
        (
            defined(ha_mode="nodes", ha_params=["a", "b"]),
            defined(ha_mode="nodes", ha_params=["c"]),
            {"ha-mode": "nodes", "ha-params": ["a", "b"]},
        ),
        (
            defined(ha_mode="exactly", ha_params=3),
            defined(ha_mode="all", ha_sync_mode="automatic"),
            {"ha-mode": "all", "ha-sync-mode": "automatic"},
        ),
    ],
)
def test_merge(user: Policy | None, operator: Policy | None, effective: dict[str, object]) -> None:
    assert merge(user, operator) == effective


def test_no_arguments_and_no_policy() -> None:
    assert effective_queue_arguments({}, {}) == EffectiveArguments()


def test_limits_take_the_minimum() -> None:
    arguments = {"x-message-ttl": 10, "x-expires": 50, "x-max-length": 7, "x-consumer-timeout": 9}
    policies = {
        "message-ttl": 20,
        "expires": 40,
        "max-length-bytes": 5,
        "consumer-timeout": 0,
        "delivery-limit": 3,
    }
    found = effective_queue_arguments(arguments, policies)
    assert (found.message_ttl_ms, found.expires_ms) == (10, 40)
    assert (found.max_length, found.max_length_bytes) == (7, 5)
    assert (found.consumer_timeout_ms, found.delivery_limit) == (9, 3)


def test_the_argument_wins_for_the_rest() -> None:
    arguments = {
        "x-dead-letter-exchange": "",
        "x-overflow": "reject-publish",
        "x-max-priority": 5,
        "x-single-active-consumer": True,
        "x-queue-type": "classic",
    }
    policies = {
        "dead-letter-exchange": "policy",
        "dead-letter-routing-key": "key",
        "overflow": "drop-head",
        "queue-mode": "lazy",
        "queue-master-locator": "random",
        "ha-mode": "all",
    }
    found = effective_queue_arguments(arguments, policies)
    assert (found.dead_letter_exchange, found.dead_letter_routing_key) == ("", "key")
    assert found.overflow == "reject-publish"
    assert (found.max_priority, found.single_active_consumer) == (5, True)
    assert (found.queue_mode, found.queue_master_locator) == ("lazy", "random")
    assert found.mirroring == {"ha-mode": "all"}


def test_arguments_only_settings_are_not_taken_from_a_policy() -> None:
    found = effective_queue_arguments({"x-max-priority": 0}, {"max-priority": 5})
    assert found.max_priority is None


def test_what_governs_mirrors() -> None:
    plain = effective_queue_arguments({}, {})
    assert plain.ha_mode is None
    given = {
        "ha-mode": "nodes",
        "ha-params": ["a", "b", "a"],
        "ha-sync-mode": "automatic",
        "ha-sync-batch-size": 10,
        "ha-sync-strategy": "full",
        "ha-promote-on-shutdown": "always",
        "ha-promote-on-failure": "always",
        "ha-min-in-sync": 2,
        "ha-max-lag": 700,
        "ha-deliver": "eager",
        "ha-replicate": True,
        "ha-replication": "async",
        "ha-max-lag-messages": 5,
        "ha-max-lag-ms": 10,
        "ha-replication-window": "22:00-06:00",
    }
    effective = effective_queue_arguments({"x-ha-mode": "all"}, given)
    assert effective.mirroring == given
    for key, value in {**given, "ha-params": ("a", "b")}.items():
        assert getattr(effective, key.replace("-", "_")) == value


def test_copies_can_be_forbidden() -> None:
    given = {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-replicate": False}
    effective = effective_queue_arguments({}, given)
    assert effective.ha_mode is None
    assert not effective.ha_replicate
    assert effective.mirroring == given


def test_a_sole_operator_key_mirrors_nothing() -> None:
    effective = effective_queue_arguments({}, {"ha-sync-mode": "automatic"})
    assert effective.ha_mode is None
    assert effective.ha_sync_mode == "manual"
