"""Validation of policies: each text is the one RabbitMQ gives for the same definition."""

from __future__ import annotations

import pytest

from warren.base.text import erlang_term, nearest
from warren.model.policy import Policy, PolicyError, validate_definition, validate_policy

HA_MODE_MISSING = (
    "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
)

REFUSED = [
    ({}, "no policy provided"),
    ({"foo": 1}, '[{<<"foo">>,1}] are not recognised policy settings'),
    (
        {"foo": 1, "bar": "b"},
        '[{<<"foo">>,1},{<<"bar">>,<<"b">>}] are not recognised policy settings',
    ),
    ({"foo": 1, "expires": 0}, "0 is not a valid queue expiry"),
    ({"message-ttl": -1}, "-1 is not a valid message TTL"),
    ({"message-ttl": "a"}, '<<"a">> is not a valid message TTL'),
    ({"message-ttl": 1.5}, "1.5 is not a valid message TTL"),
    ({"message-ttl": True}, "true is not a valid message TTL"),
    ({"expires": 0}, "0 is not a valid queue expiry"),
    ({"max-length": -1}, "-1 is not a valid maximum length"),
    ({"max-length-bytes": -1}, "-1 is not a valid maximum length in bytes"),
    ({"overflow": "bad"}, '<<"bad">> is not a valid overflow value'),
    ({"overflow": 5}, "5 is not a valid overflow value"),
    ({"dead-letter-exchange": 5}, "5 is not a valid dead letter exchange name"),
    ({"dead-letter-routing-key": 5}, "5 is not a valid dead letter routing key"),
    ({"alternate-exchange": 5}, "5 is not a valid alternate exchange name"),
    ({"queue-mode": "bad"}, '<<"bad">> is not a valid queue-mode value'),
    ({"queue-version": 3}, "3 is not a valid queue-version value"),
    ({"queue-version": True}, "true is not a valid queue-version value"),
    ({"queue-master-locator": "bad"}, '<<"bad">> invalid queue-master-locator value'),
    ({"delivery-limit": -1}, "-1 is not a valid delivery limit"),
    ({"consumer-timeout": -1}, "-1 is not a valid consumer timeout"),
    ({"ha-mode": "x"}, '<<"x">> is not a valid ha-mode value'),
    ({"ha-mode": ["all"]}, '[<<"all">>] is not a valid ha-mode value'),
    ({"ha-params": 1}, HA_MODE_MISSING),
    ({"ha-sync-mode": "manual"}, HA_MODE_MISSING),
    ({"ha-mode": "all", "ha-params": 1}, 'ha-mode="all" does not take parameters'),
    ({"ha-mode": "exactly"}, 'ha-mode="exactly" takes an integer, none given'),
    ({"ha-mode": "exactly", "ha-params": 0}, 'ha-mode="exactly" takes an integer, 0 given'),
    (
        {"ha-mode": "exactly", "ha-params": "a"},
        'ha-mode="exactly" takes an integer, <<"a">> given',
    ),
    ({"ha-mode": "nodes"}, 'ha-mode="nodes" takes a list, none given'),
    ({"ha-mode": "nodes", "ha-params": 3}, 'ha-mode="nodes" takes a list, 3 given'),
    ({"ha-mode": "nodes", "ha-params": []}, 'ha-mode="nodes" list must be non-empty'),
    (
        {"ha-mode": "nodes", "ha-params": ["a", 1]},
        'ha-mode="nodes" takes a list of strings, [1] was not a string',
    ),
    (
        {"ha-mode": "all", "ha-sync-mode": "x"},
        'ha-sync-mode must be "manual" or "automatic", got <<"x">>',
    ),
    (
        {"ha-mode": "all", "ha-sync-batch-size": 0},
        "ha-sync-batch-size takes an integer greater than 0, 0 given",
    ),
    (
        {"ha-mode": "all", "ha-sync-strategy": "some"},
        'ha-sync-strategy must be "full", "incremental" or "event", got <<"some">>',
    ),
    (
        {"ha-mode": "all", "ha-min-in-sync": 0},
        "ha-min-in-sync takes an integer greater than 0, 0 given",
    ),
    (
        {"ha-mode": "all", "ha-max-lag": True},
        "ha-max-lag takes an integer greater than 0, true given",
    ),
    (
        {"ha-mode": "all", "ha-replication": "soon"},
        'ha-replication must be "sync" or "async", got <<"soon">>',
    ),
    (
        {"ha-mode": "all", "ha-max-lag-messages": 0},
        "ha-max-lag-messages takes an integer greater than 0, 0 given",
    ),
    (
        {"ha-mode": "all", "ha-max-lag-ms": "long"},
        'ha-max-lag-ms takes an integer greater than 0, <<"long">> given',
    ),
    ({"ha-replicate": "no"}, 'ha-replicate must be true or false, got <<"no">>'),
    *(
        (
            {"ha-mode": "all", "ha-replication-window": hours},
            'ha-replication-window takes two times of the day, as in "22:00-06:00", '
            f'<<"{hours}">> given',
        )
        for hours in ("22:00", "24:00-06:00", "22:60-06:00", "06:00-06:00", "22-6", "")
    ),
    (
        {"ha-mode": "all", "ha-deliver": "soon"},
        'ha-deliver must be "committed" or "eager", got <<"soon">>',
    ),
    ({"ha-min-in-sync": 2}, HA_MODE_MISSING),
    (
        {"ha-mode": "all", "ha-promote-on-shutdown": []},
        'ha-promote-on-shutdown must be "always" or "when-synced", got []',
    ),
    (
        {"ha-mode": "all", "ha-promote-on-failure": "x"},
        'ha-promote-on-failure must be "always" or "when-synced", got <<"x">>',
    ),
]


@pytest.mark.parametrize(("definition", "detail"), REFUSED)
def test_refused_definitions(definition: dict[str, object], detail: str) -> None:
    with pytest.raises(PolicyError) as caught:
        validate_definition(definition)
    assert caught.value.detail == detail
    assert str(caught.value) == f"Validation failed\n\n{detail}\n"


@pytest.mark.parametrize(
    "definition",
    [
        {"message-ttl": 0, "expires": 1, "max-length": 0, "max-length-bytes": 10},
        {"dead-letter-routing-key": "k"},
        {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-sync-batch-size": 50},
        {"ha-mode": "exactly", "ha-params": 2, "ha-promote-on-failure": "when-synced"},
        {"ha-mode": "nodes", "ha-params": ["rabbit@a"], "ha-promote-on-shutdown": "always"},
        {"queue-mode": "lazy", "queue-version": 2, "queue-master-locator": "min-masters"},
        {"consumer-timeout": 0, "delivery-limit": 20, "federation-upstream-set": "all"},
        {"alternate-exchange": "ae", "overflow": "reject-publish-dlx"},
        {"shards-per-node": 2, "routing-key": "1234"},
    ],
)
def test_accepted_definitions(definition: dict[str, object]) -> None:
    validate_definition(definition)


def test_operator_policies_take_limits_and_mirroring_only() -> None:
    validate_definition({"message-ttl": 5, "ha-mode": "exactly", "ha-params": 2}, operator=True)
    for key, value in (("dead-letter-exchange", "a"), ("ha-sync-batch-size", 5)):
        with pytest.raises(PolicyError, match="are not recognised policy settings"):
            validate_definition({key: value}, operator=True)
    with pytest.raises(PolicyError, match="is not a valid ha-mode value"):
        validate_definition({"ha-mode": "x"}, operator=True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pattern": "("}, "pattern should be regular expression but is invalid: {"),
        ({"pattern": 5}, "pattern should be a binary but was 5"),
        ({"priority": "x"}, 'priority should be a number, actually was <<"x">>'),
        ({"apply_to": "bad"}, "apply-to 'bad' unrecognised; should be one of: 'queues', "),
        ({"name": ""}, "policy name must not be empty"),
        ({"definition": {}}, "no policy provided"),
    ],
)
def test_refused_attributes(change: dict[str, object], text: str) -> None:
    attributes: dict[str, object] = {
        "vhost": "/",
        "name": "p",
        "pattern": "^a",
        "definition": {"max-length": 1},
        **change,
    }
    with pytest.raises(PolicyError) as caught:
        validate_policy(Policy(**attributes))  # type: ignore[arg-type]
    assert caught.value.detail.startswith(text)


def test_values_are_shown_as_erlang_terms() -> None:
    assert erlang_term('a"b') == '<<"a\\"b">>'
    assert erlang_term([1, "a", None, False]) == '[1,<<"a">>,null,false]'
    assert erlang_term({"a": b"\x01\x02"}) == '#{<<"a">> => <<1,2>>}'


def test_nearest_word() -> None:
    assert nearest("heartbeet", ["heartbeat", "frame_max"]) == "heartbeat"
    assert nearest("zzz", ["heartbeat", "frame_max"]) is None
