"""Policies: what an operator wants of queues and exchanges whose name matches a pattern.

At most one user policy applies to an entity, and at most one operator policy beside it. `match`
picks each of them, `merge` makes the one effective definition, `effective_queue_arguments` joins
that with what the client asked for at declaration. Texts of refusals are the ones
RabbitMQ's users know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from warren.base.text import PatternError, compile_pattern, erlang_term
from warren.model.policy_keys import (
    HA_KEYS,
    OPERATOR_KEYS,
    VALIDATORS,
    PolicyError,
    check_mirroring,
    is_integer,
)

__all__ = [
    "APPLY_TO",
    "Definition",
    "EffectiveArguments",
    "EntityKind",
    "Policy",
    "PolicyError",
    "effective_queue_arguments",
    "match",
    "merge",
    "validate_definition",
    "validate_policy",
]

Definition = Mapping[str, object]
EntityKind = Literal["queue", "exchange"]

#: What a policy may apply to, each with the entities it covers: (kind, queue type or None for any).
APPLY_TO: Mapping[str, tuple[tuple[EntityKind, str | None], ...]] = {
    "all": (("queue", None), ("exchange", None)),
    "queues": (("queue", None),),
    "classic_queues": (("queue", "classic"),),
    "quorum_queues": (("queue", "quorum"),),
    "streams": (("queue", "stream"),),
    "exchanges": (("exchange", None),),
}

#: On the same key the smaller value holds: between user and operator policy, and between a queue's
#: argument and the effective policy.
MINIMUM_KEYS = frozenset(
    {
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "delivery-limit",
    }
)
#: `ha-mode` values from the weakest to the strongest; the stronger one holds.
HA_MODE_STRENGTH = ("nodes", "exactly", "all")


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy, user's or operator's; they differ in the table they are kept in."""

    vhost: str
    name: str
    pattern: str
    definition: Definition
    priority: int = 0
    apply_to: str = "all"

    def applies(self, kind: EntityKind, name: str, queue_type: str = "classic") -> bool:
        """Whether the entity is covered: by kind, and by an unanchored search of the pattern."""
        covered = any(
            kind == covered_kind and (kind == "exchange" or covered_type in {None, queue_type})
            for covered_kind, covered_type in APPLY_TO[self.apply_to]
        )
        return covered and compile_pattern(self.pattern).search(name) is not None


def validate_policy(policy: Policy, operator: bool = False) -> None:
    """Raise PolicyError unless every attribute of the policy can be used."""
    if not policy.name:
        raise PolicyError("policy name must not be empty")
    if not isinstance(policy.pattern, str):
        raise PolicyError(f"pattern should be a binary but was {erlang_term(policy.pattern)}")
    try:
        compile_pattern(policy.pattern)
    except PatternError as error:
        text = f"pattern should be regular expression but is invalid: {error}"
        raise PolicyError(text) from error
    if not is_integer(policy.priority):
        given = erlang_term(policy.priority)
        raise PolicyError(f"priority should be a number, actually was {given}")
    if policy.apply_to not in APPLY_TO:
        raise PolicyError(
            f"apply-to '{policy.apply_to}' unrecognised; should be one of: 'queues', "
            "'classic_queues', 'quorum_queues', 'streams', 'exchanges', or 'all'"
        )
    validate_definition(policy.definition, operator)


def validate_definition(definition: Definition, operator: bool = False) -> None:
    """Raise PolicyError unless every key is known and every value fits its key.

    Values are judged before unknown keys are reported, as RabbitMQ does.
    """
    if not isinstance(definition, Mapping):
        raise PolicyError(f"definition should be an object, actually was {erlang_term(definition)}")
    if not definition:
        raise PolicyError("no policy provided")
    unknown: list[str] = []
    for key, value in definition.items():
        if key not in VALIDATORS or (operator and key not in OPERATOR_KEYS):
            unknown.append(f"{{{erlang_term(key)},{erlang_term(value)}}}")
            continue
        VALIDATORS[key](key, value)
    if not operator or OPERATOR_KEYS.issuperset(definition):
        check_mirroring(definition)
    if unknown:
        raise PolicyError(f"[{','.join(unknown)}] are not recognised policy settings")


def match(
    policies: Iterable[Policy], kind: EntityKind, name: str, queue_type: str = "classic"
) -> Policy | None:
    """The one policy that applies: highest priority, among equals the first by name."""
    best: Policy | None = None
    for policy in policies:
        if not policy.applies(kind, name, queue_type):
            continue
        if best is None or (-policy.priority, policy.name) < (-best.priority, best.name):
            best = policy
    return best


def merge(policy: Policy | None, operator_policy: Policy | None) -> dict[str, object]:
    """The effective definition: both policies' keys, with a rule for each key they share."""
    user: Definition = policy.definition if policy is not None else {}
    operator: Definition = operator_policy.definition if operator_policy is not None else {}
    effective: dict[str, object] = {**user, **operator}
    for key in user.keys() & operator.keys():
        effective[key] = _merge_value(key, user[key], operator[key])
    if effective.get("ha-mode") == "all":
        # The stronger mode may come from the policy that has no parameters; `all` takes none.
        effective.pop("ha-params", None)
    return effective


def _merge_value(key: str, user: object, operator: object) -> object:
    if key in MINIMUM_KEYS and isinstance(user, int) and isinstance(operator, int):
        return min(user, operator)
    if key == "ha-mode":
        return max(user, operator, key=lambda mode: HA_MODE_STRENGTH.index(str(mode)))
    if key == "ha-params":
        return _stronger_ha_params(user, operator)
    return operator


def _stronger_ha_params(user: object, operator: object) -> object:
    if isinstance(user, int) and isinstance(operator, int):
        return max(user, operator)
    if isinstance(user, int):
        return user
    if isinstance(operator, int):
        return operator
    if isinstance(user, list) and isinstance(operator, list) and len(user) > len(operator):
        return user
    return operator


@dataclass(frozen=True, slots=True)
class EffectiveArguments:
    """What governs a queue, from its arguments and the effective policy; None means no limit."""

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    consumer_timeout_ms: int | None = None
    delivery_limit: int | None = None
    queue_type: str = "classic"
    queue_mode: str = "default"
    queue_version: int = 1
    queue_master_locator: str | None = None
    #: The mirroring part of the effective policy (`ha-*`), untouched; arguments cannot set it.
    mirroring: Mapping[str, object] = field(default_factory=dict)
    #: None: no mirrors. With `exactly` the number of replicas, with `nodes` their names.
    ha_mode: str | None = None
    ha_params: int | tuple[str, ...] | None = None
    ha_sync_mode: str = "manual"
    #: Messages in one piece of a copy.
    ha_sync_batch_size: int = 4096
    ha_sync_strategy: str = "incremental"
    ha_promote_on_shutdown: str = "when-synced"
    ha_promote_on_failure: str = "when-synced"
    ha_min_in_sync: int = 1
    #: Milliseconds without progress after which a mirror counts as out of sync.
    ha_max_lag: int = 5_000
    ha_deliver: str = "committed"
    #: False: no copies, whatever else is wanted.
    ha_replicate: bool = True
    #: `async`: publishers need not wait for the mirrors, within the two bounds.
    ha_replication: str = "sync"
    ha_max_lag_messages: int = 10_000
    ha_max_lag_ms: int = 1_000
    #: Mirrors are given something in these hours only.
    ha_replication_window: str | None = None


def effective_queue_arguments(arguments: Definition, effective: Definition) -> EffectiveArguments:
    """Join a queue's checked arguments with the effective definition of its policies."""
    resolve = _Resolver(arguments, effective)
    return EffectiveArguments(
        message_ttl_ms=resolve.least("message-ttl"),
        expires_ms=resolve.least("expires"),
        max_length=resolve.least("max-length"),
        max_length_bytes=resolve.least("max-length-bytes"),
        overflow=resolve.text("overflow") or "drop-head",
        dead_letter_exchange=resolve.text("dead-letter-exchange"),
        dead_letter_routing_key=resolve.text("dead-letter-routing-key"),
        # Zero priorities above the lowest is an ordinary queue.
        max_priority=_integer(arguments.get("x-max-priority")) or None,
        single_active_consumer=arguments.get("x-single-active-consumer") is True,
        consumer_timeout_ms=resolve.least("consumer-timeout", zero_is_off=True),
        delivery_limit=resolve.least("delivery-limit"),
        queue_type=_text(arguments.get("x-queue-type")) or "classic",
        queue_mode=resolve.text("queue-mode") or "default",
        queue_version=resolve.integer("queue-version") or 1,
        queue_master_locator=resolve.text("queue-master-locator")
        or resolve.text("queue-leader-locator"),
        **_mirroring(effective),
    )


def _mirroring(effective: Definition) -> dict[str, Any]:
    """The fields about mirrors. A sole `ha-` key of an operator policy mirrors nothing."""
    given = {key: value for key, value in effective.items() if key.startswith("ha-")}
    if "ha-mode" not in given:
        return {"mirroring": given}
    if given.get("ha-replicate") is False:
        return {"mirroring": given, "ha_replicate": False}
    fields = {key.replace("-", "_"): value for key, value in given.items() if key in HA_KEYS}
    params = given.get("ha-params")
    if isinstance(params, list):
        fields["ha_params"] = tuple(dict.fromkeys(params))
    return {"mirroring": given, **fields}


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Looks one key up in the arguments (`x-` before its name) and in the effective policy."""

    arguments: Definition
    effective: Definition

    def least(self, key: str, zero_is_off: bool = False) -> int | None:
        given = (_integer(self.arguments.get(f"x-{key}")), _integer(self.effective.get(key)))
        limits = [value for value in given if value is not None and (value or not zero_is_off)]
        return min(limits, default=None)

    def text(self, key: str) -> str | None:
        argument = _text(self.arguments.get(f"x-{key}"))
        return argument if argument is not None else _text(self.effective.get(key))

    def integer(self, key: str) -> int | None:
        argument = _integer(self.arguments.get(f"x-{key}"))
        return argument if argument is not None else _integer(self.effective.get(key))


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
