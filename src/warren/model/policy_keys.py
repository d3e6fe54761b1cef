"""The keys a policy may hold and what each of them takes.

`VALIDATORS` is the table; `check_mirroring` holds the rules that join several `ha-*` keys. Refusals
are `PolicyError`, worded as RabbitMQ words them because operators and tools match on those texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from warren.base.text import erlang_term
from warren.model.day_window import DayWindow

HA_MODES = ("all", "exactly", "nodes")
#: Beyond these names nothing begins with `ha-`.
HA_KEYS = frozenset(
    {
        "ha-mode",
        "ha-params",
        "ha-sync-mode",
        "ha-sync-batch-size",
        "ha-sync-strategy",
        "ha-promote-on-shutdown",
        "ha-promote-on-failure",
        "ha-min-in-sync",
        "ha-max-lag",
        "ha-max-lag-messages",
        "ha-max-lag-ms",
        "ha-replicate",
        "ha-replication",
        "ha-replication-window",
        "ha-deliver",
    }
)
QUEUE_MASTER_LOCATORS = ("client-local", "min-masters", "random", "balanced")
OVERFLOW_VALUES = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_MODES = ("default", "lazy")
QUEUE_VERSIONS = (1, 2)
#: A slip of the pen is not to make queues without end: none of them is deleted again.
SHARDS_MAX = 1024

#: An operator policy protects the broker, so it may set limits and mirroring, never routing.
OPERATOR_KEYS = frozenset(
    {
        "expires",
        "message-ttl",
        "max-length",
        "max-length-bytes",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "delivery-limit",
        "overflow",
        "queue-version",
        "ha-mode",
        "ha-params",
        "ha-sync-mode",
        "ha-replicate",
    }
)
#: They mean something where another policy, or none, says who has copies.
_WITHOUT_HA_MODE = frozenset({"ha-replicate"})


class PolicyError(ValueError):
    """A policy that cannot be used; `str()` is the whole text, `detail` the sentence inside it."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"Validation failed\n\n{detail}\n")
        self.detail = detail


def is_integer(value: object) -> bool:
    """Whether it is a whole number (True and False are not)."""
    return isinstance(value, int) and not isinstance(value, bool)


Validator = Callable[[str, object], None]


def _integer_from(minimum: int, what: str) -> Validator:
    def check(_key: str, value: object) -> None:
        if not (isinstance(value, int) and is_integer(value) and value >= minimum):
            raise PolicyError(f"{erlang_term(value)} is not a valid {what}")

    return check


def _text(what: str) -> Validator:
    def check(_key: str, value: object) -> None:
        if not isinstance(value, str) or len(value.encode("utf-8", "surrogateescape")) > 255:
            raise PolicyError(f"{erlang_term(value)} is not a valid {what}")

    return check


def _one_of(allowed: tuple[object, ...], wording: str) -> Validator:
    def check(_key: str, value: object) -> None:
        if isinstance(value, bool) or value not in allowed:
            raise PolicyError(wording.format(erlang_term(value)))

    return check


def _promote(key: str, value: object) -> None:
    if value not in ("always", "when-synced"):
        raise PolicyError(f'{key} must be "always" or "when-synced", got {erlang_term(value)}')


def _sync_mode(key: str, value: object) -> None:
    if value not in ("manual", "automatic"):
        raise PolicyError(f'{key} must be "manual" or "automatic", got {erlang_term(value)}')


def _sync_strategy(key: str, value: object) -> None:
    if value not in ("full", "incremental", "event"):
        raise PolicyError(
            f'{key} must be "full", "incremental" or "event", got {erlang_term(value)}'
        )


def _deliver(key: str, value: object) -> None:
    if value not in ("committed", "eager"):
        raise PolicyError(f'{key} must be "committed" or "eager", got {erlang_term(value)}')


def _replication(key: str, value: object) -> None:
    if value not in ("sync", "async"):
        raise PolicyError(f'{key} must be "sync" or "async", got {erlang_term(value)}')


def _flag(key: str, value: object) -> None:
    if not isinstance(value, bool):
        raise PolicyError(f"{key} must be true or false, got {erlang_term(value)}")


def _window(key: str, value: object) -> None:
    try:
        DayWindow.parse(value if isinstance(value, str) else "")
    except ValueError:
        raise PolicyError(
            f'{key} takes two times of the day, as in "22:00-06:00", {erlang_term(value)} given'
        ) from None


def _positive(key: str, value: object) -> None:
    if not (isinstance(value, int) and is_integer(value) and value > 0):
        given = erlang_term(value)
        raise PolicyError(f"{key} takes an integer greater than 0, {given} given")


def _shards(key: str, value: object) -> None:
    if not (isinstance(value, int) and is_integer(value) and 0 < value <= SHARDS_MAX):
        bound = f"greater than 0, and {SHARDS_MAX} at most"
        raise PolicyError(f"{key} should be {bound}, actually was {erlang_term(value)}")


def _routing_key(key: str, value: object) -> None:
    if not isinstance(value, str) or len(value.encode("utf-8", "surrogateescape")) > 255:
        raise PolicyError(f"{key} should be binary, actually was {erlang_term(value)}")


def _judged_with_ha_mode(_key: str, _value: object) -> None:
    """`ha-mode` and `ha-params` only make sense together: see `check_mirroring`."""


_LOCATOR = _one_of(QUEUE_MASTER_LOCATORS, "{} invalid queue-master-locator value")

VALIDATORS: Mapping[str, Validator] = {
    "alternate-exchange": _text("alternate exchange name"),
    "consumer-timeout": _integer_from(0, "consumer timeout"),
    "dead-letter-exchange": _text("dead letter exchange name"),
    "dead-letter-routing-key": _text("dead letter routing key"),
    "delivery-limit": _integer_from(0, "delivery limit"),
    "expires": _integer_from(1, "queue expiry"),
    "federation-upstream": _text("federation upstream name"),
    "federation-upstream-set": _text("federation upstream set name"),
    "ha-deliver": _deliver,
    "ha-max-lag": _positive,
    "ha-max-lag-messages": _positive,
    "ha-max-lag-ms": _positive,
    "ha-min-in-sync": _positive,
    "ha-mode": _judged_with_ha_mode,
    "ha-params": _judged_with_ha_mode,
    "ha-promote-on-failure": _promote,
    "ha-promote-on-shutdown": _promote,
    "ha-replicate": _flag,
    "ha-replication": _replication,
    "ha-replication-window": _window,
    "ha-sync-batch-size": _positive,
    "ha-sync-mode": _sync_mode,
    "ha-sync-strategy": _sync_strategy,
    "max-in-memory-bytes": _integer_from(0, "maximum memory in bytes"),
    "max-in-memory-length": _integer_from(0, "maximum memory in bytes"),
    "max-length": _integer_from(0, "maximum length"),
    "max-length-bytes": _integer_from(0, "maximum length in bytes"),
    "message-ttl": _integer_from(0, "message TTL"),
    "overflow": _one_of(OVERFLOW_VALUES, "{} is not a valid overflow value"),
    "queue-leader-locator": _LOCATOR,
    "queue-master-locator": _LOCATOR,
    "queue-mode": _one_of(QUEUE_MODES, "{} is not a valid queue-mode value"),
    "queue-version": _one_of(QUEUE_VERSIONS, "{} is not a valid queue-version value"),
    "routing-key": _routing_key,
    "shards-per-node": _shards,
}


def check_mirroring(definition: Mapping[str, object]) -> None:
    """Raise PolicyError unless the `ha-*` keys of a definition fit each other."""
    given_keys = {key for key in definition if key in VALIDATORS and key.startswith("ha-")}
    if not given_keys - _WITHOUT_HA_MODE and "ha-mode" not in definition:
        return
    if "ha-mode" not in definition:
        raise PolicyError(
            "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
        )
    mode = definition["ha-mode"]
    if mode not in HA_MODES:
        raise PolicyError(f"{erlang_term(mode)} is not a valid ha-mode value")
    given = "ha-params" in definition
    params = definition.get("ha-params")
    shown = erlang_term(params) if given else "none"
    if mode == "all":
        if given:
            raise PolicyError('ha-mode="all" does not take parameters')
    elif mode == "exactly":
        if not (isinstance(params, int) and is_integer(params) and params > 0):
            raise PolicyError(f'ha-mode="exactly" takes an integer, {shown} given')
    else:
        _check_ha_nodes(params, shown)


def _check_ha_nodes(params: object, shown: str) -> None:
    if not isinstance(params, list):
        raise PolicyError(f'ha-mode="nodes" takes a list, {shown} given')
    if not params:
        raise PolicyError('ha-mode="nodes" list must be non-empty')
    others = [node for node in params if not isinstance(node, str)]
    if others:
        wrong = erlang_term(others)
        raise PolicyError(f'ha-mode="nodes" takes a list of strings, {wrong} was not a string')
