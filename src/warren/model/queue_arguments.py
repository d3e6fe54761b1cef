"""Judges the arguments of `queue.declare`: each by itself, and against an existing queue.

Arguments arrive as decoded from the wire. Unknown ones are accepted and ignored, as clients expect.
Refusals are worded as RabbitMQ words them: client test suites match on those texts.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from warren.base.text import erlang_term
from warren.model.errors import PreconditionFailed, ResourceLocked
from warren.model.policy_keys import (
    OVERFLOW_VALUES,
    QUEUE_MASTER_LOCATORS,
    QUEUE_MODES,
    QUEUE_VERSIONS,
)

Arguments = Mapping[str, object]

#: Ten years: the longest time to live or expiry that is accepted.
EXPIRY_MS_MAX = 10 * 365 * 24 * 60 * 60 * 1000
PRIORITY_MAX = 255
#: A routing key travels as a short string.
ROUTING_KEY_BYTES_MAX = 255
QUEUE_TYPES = ("classic", "quorum")
#: Arguments that belong to other queue types and are refused on a classic queue.
_NOT_CLASSIC = frozenset(
    {
        "x-dead-letter-strategy",
        "x-initial-cluster-size",
        "x-max-age",
        "x-max-in-memory-bytes",
        "x-max-in-memory-length",
        "x-quorum-initial-group-size",
        "x-stream-filter-size-bytes",
        "x-stream-max-segment-size-bytes",
    }
)
#: Arguments a second declaration has to repeat, in the order they are compared.
_COMPARED = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-queue-master-locator",
    "x-queue-leader-locator",
    "x-delivery-limit",
)


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """What a `queue.declare` asks for, or what a queue was once declared with."""

    durable: bool = False
    auto_delete: bool = False
    exclusive: bool = False
    arguments: Arguments = field(default_factory=dict)


def queue_text(name: str, vhost: str) -> str:
    """How error texts name a queue."""
    return f"queue '{name}' in vhost '{vhost}'"


def check_queue_arguments(arguments: Arguments, name: str, vhost: str) -> None:
    """Raise PreconditionFailed at the first argument that cannot be used."""
    queue = queue_text(name, vhost)
    for key, check in _CHECKS.items():
        if key in arguments:
            reason = check(arguments[key], arguments)
            if reason is not None:
                raise PreconditionFailed(f"invalid arg '{key}' for {queue}: {reason}")
        if key == "x-message-ttl":
            _check_name_argument("x-dead-letter-exchange", arguments, queue)
    if arguments.get("x-queue-type", "classic") == "classic":
        for key in arguments:
            if key in _NOT_CLASSIC:
                raise PreconditionFailed(
                    f"invalid arg '{key}' for {queue} of queue type rabbit_classic_queue"
                )


def check_equivalent_queue(
    name: str, vhost: str, current: QueueDeclaration, received: QueueDeclaration
) -> None:
    """Raise unless a second declaration asks for the queue that exists.

    Whether the connection owns an exclusive queue is the caller's to check, before this.
    """
    queue = queue_text(name, vhost)
    if received.exclusive != current.exclusive:
        raise ResourceLocked(locked_queue_text(name, vhost))
    check_equivalent_value(queue, "durable", received.durable, current.durable)
    check_equivalent_value(queue, "auto_delete", received.auto_delete, current.auto_delete)
    check_equivalent_queue_type(queue, current.arguments, received.arguments)
    check_equivalent_arguments(queue, received.arguments, current.arguments, _COMPARED)


def locked_queue_text(name: str, vhost: str) -> str:
    """The explanation given to a connection that may not use an exclusive queue."""
    return (
        f"cannot obtain exclusive access to locked {queue_text(name, vhost)}. It could be "
        "originally declared on another connection or the exclusive property value does not match "
        "that of the original declaration."
    )


def check_equivalent_value(entity: str, key: str, received: object, current: object) -> None:
    """Raise PreconditionFailed when a property differs; `entity` is `queue 'q' in vhost '/'`."""
    if received != current:
        raise PreconditionFailed(
            f"inequivalent arg '{key}' for {entity}: "
            f"received '{_shown(received)}' but current is '{_shown(current)}'"
        )


def check_equivalent_arguments(
    entity: str, received: Arguments, current: Arguments, keys: Iterable[str]
) -> None:
    """Raise PreconditionFailed at the first of `keys` that the two declarations disagree on."""
    for key in keys:
        if key in received and key in current:
            check_equivalent_value(entity, key, received[key], current[key])
        elif key in received or key in current:
            raise PreconditionFailed(
                f"inequivalent arg '{key}' for {entity}: "
                f"received {_shown_with_type(received, key)} "
                f"but current is {_shown_with_type(current, key)}"
            )


def check_equivalent_queue_type(entity: str, current: Arguments, received: Arguments) -> None:
    """Raise PreconditionFailed when the queue types differ; no type given means classic."""
    if received.get("x-queue-type", "classic") != current.get("x-queue-type", "classic"):
        check_equivalent_arguments(entity, received, current, ("x-queue-type",))


def amqp_type_name(value: object) -> str:
    """The name of a decoded field value's type, as RabbitMQ's texts give it.

    The wire's integer widths are gone after decoding: what fits 32 bits is `signedint`, as nearly
    every client sends it, and the rest is `long`.
    """
    kept_apart = _WIRE_TYPE_NAMES.get(type(value).__name__)
    if kept_apart is not None:
        return kept_apart
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return "void" if value is None else type(value).__name__.lower()


#: Subclasses by which the table codec keeps types apart that Python would merge. Known by name,
#: since the codec stands above this module.
_WIRE_TYPE_NAMES: Mapping[str, str] = {"Timestamp": "timestamp", "LongBytes": "longstr"}

_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (str, "longstr"),
    (bytes, "binary"),
    (bytearray, "binary"),
    (float, "double"),
    (decimal.Decimal, "decimal"),
    (datetime.datetime, "timestamp"),
    (list, "array"),
    (tuple, "array"),
    (dict, "table"),
)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else erlang_term(value)


def _shown_with_type(arguments: Arguments, key: str) -> str:
    if key not in arguments:
        return "none"
    value = arguments[key]
    return f"the value '{_shown(value)}' of type '{amqp_type_name(value)}'"


def _check_name_argument(key: str, arguments: Arguments, queue: str) -> None:
    if key in arguments and not isinstance(arguments[key], str):
        kind = amqp_type_name(arguments[key])
        raise PreconditionFailed(f"invalid type '{kind}' for arg '{key}' in {queue}")


_INTEGER_TYPES = ("signedint", "long")

#: Judges one value, given all arguments: what is wrong with it, or None.
Check = Callable[[object, Arguments], str | None]


def _not_an_integer(value: object) -> str:
    return f'"expected integer, got {amqp_type_name(value)}"'


def _integer(minimum: int, maximum: int | None = None, above: str = "value_too_large") -> Check:
    def check(value: object, _arguments: Arguments) -> str | None:
        if not isinstance(value, int) or amqp_type_name(value) not in _INTEGER_TYPES:
            return _not_an_integer(value)
        if value < 0:
            return f"{{value_negative,{value}}}"
        if value < minimum:
            return f"{{value_zero,{value}}}"
        if maximum is not None and value > maximum:
            return f"{{{above},{value}}}"
        return None

    return check


def _text_of(allowed: tuple[str, ...], reason: str) -> Check:
    def check(value: object, _arguments: Arguments) -> str | None:
        if not isinstance(value, str):
            return f"{{unacceptable_type,{amqp_type_name(value)}}}"
        return None if value in allowed else reason.format(value)

    return check


def _boolean(value: object, _arguments: Arguments) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{amqp_type_name(value)}}}"


def _dead_letter_routing_key(value: object, arguments: Arguments) -> str | None:
    if not isinstance(value, str):
        return f"{{unacceptable_type,{amqp_type_name(value)}}}"
    if len(value.encode("utf-8", "surrogateescape")) > ROUTING_KEY_BYTES_MAX:
        return f"routing key is longer than {ROUTING_KEY_BYTES_MAX} bytes"
    return None if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"


def _queue_version(value: object, _arguments: Arguments) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return _not_an_integer(value)
    return None if value in QUEUE_VERSIONS else f"\"unsupported queue version '{value}'\""


_LOCATOR = _text_of(QUEUE_MASTER_LOCATORS, "\"unsupported queue master locator '{}'\"")

_CHECKS: Mapping[str, Check] = {
    "x-queue-type": _text_of(QUEUE_TYPES, "\"unsupported queue type '{}'\""),
    "x-expires": _integer(1, EXPIRY_MS_MAX),
    "x-message-ttl": _integer(0, EXPIRY_MS_MAX),
    "x-dead-letter-routing-key": _dead_letter_routing_key,
    "x-max-length": _integer(0),
    "x-max-length-bytes": _integer(0),
    "x-max-priority": _integer(0, PRIORITY_MAX, above="max_value_exceeded"),
    "x-overflow": _text_of(OVERFLOW_VALUES, "invalid_overflow"),
    "x-queue-mode": _text_of(QUEUE_MODES, "\"unsupported queue mode '{}'\""),
    "x-queue-version": _queue_version,
    "x-single-active-consumer": _boolean,
    "x-queue-master-locator": _LOCATOR,
    "x-queue-leader-locator": _LOCATOR,
    "x-delivery-limit": _integer(0),
    "x-consumer-timeout": _integer(0, EXPIRY_MS_MAX),
}
