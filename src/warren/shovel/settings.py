"""What a shovel is to do: the value of a parameter of component `shovel`, with RabbitMQ's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warren.base.text import nearest
from warren.client.address import BadAddress, BrokerAddress, parse_address
from warren.wire.properties import PROPERTY_NAMES

ACK_MODES = ("on-confirm", "on-publish", "no-ack")
PREFETCH = 1000
RECONNECT_S = 5
#: The key that says that a shovel rests.
PAUSED = "paused"
#: Older spellings of keys, as RabbitMQ still takes them.
_OLD = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}
_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "src-protocol": str,
    "src-uri": (str, list),
    "src-queue": str,
    "src-queue-args": dict,
    "src-exchange": str,
    "src-exchange-key": str,
    "src-delete-after": (str, int),
    "src-prefetch-count": int,
    "src-consumer-args": dict,
    "dest-protocol": str,
    "dest-uri": (str, list),
    "dest-queue": str,
    "dest-queue-args": dict,
    "dest-exchange": str,
    "dest-exchange-key": str,
    "dest-add-forward-headers": bool,
    "dest-add-timestamp-header": bool,
    "dest-publish-properties": dict,
    "ack-mode": str,
    "reconnect-delay": int,
    # Of our own: nothing is moved while it is there; {"by": who, "at": when, in milliseconds}.
    "paused": (bool, dict),
}


class BadShovel(ValueError):
    """The value cannot be used; the text says why, and holds no password."""


@dataclass(frozen=True, slots=True)
class ShovelSettings:
    """See the module's text."""

    src: tuple[BrokerAddress, ...]
    dest: tuple[BrokerAddress, ...]
    src_queue: str | None
    src_queue_args: dict[str, Any]
    src_consumer_args: dict[str, Any]
    src_exchange: str | None
    src_exchange_key: str
    #: None: never; -1: as many as there are at the start; else that many.
    delete_after: int | None
    prefetch: int
    #: None and no exchange either: messages keep the exchange they were published to.
    dest_queue: str | None
    dest_queue_args: dict[str, Any]
    dest_exchange: str | None
    #: None: messages keep their routing key.
    dest_key: str | None
    forward_headers: bool
    timestamp_header: bool
    publish_properties: dict[str, Any] = field(default_factory=dict)
    ack_mode: str = "on-confirm"
    reconnect_s: int = RECONNECT_S


def is_paused(value: Any) -> bool:
    """Whether the definition of a shovel says that it rests."""
    return isinstance(value, dict) and value.get(PAUSED, False) is not False


def without_pause(value: Any) -> Any:
    """The definition as it is when the shovel works."""
    if not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if key != PAUSED}


def parse_shovel(value: Any) -> ShovelSettings:
    """Raises BadShovel."""
    if not isinstance(value, dict):
        raise BadShovel("the definition of a shovel is an object")
    given = _checked(value)
    ack_mode = given.get("ack-mode", "on-confirm")
    if ack_mode not in ACK_MODES:
        raise BadShovel(f'"{ack_mode}" is not one of {", ".join(ACK_MODES)}')
    if ("src-queue" in given) == ("src-exchange" in given):
        raise BadShovel("Must specify 'src-exchange' or 'src-queue', and not both")
    if "dest-queue" in given and "dest-exchange" in given:
        raise BadShovel("Cannot specify 'dest-exchange' and 'dest-queue'")
    for side in ("src", "dest"):
        if given.get(f"{side}-protocol", "amqp091") != "amqp091":
            raise BadShovel(f"{side}-protocol must be amqp091")
    delete_after = _delete_after(given.get("src-delete-after", "never"))
    if delete_after is not None and ack_mode == "no-ack":
        raise BadShovel("Cannot specify 'no-ack' and numerical 'delete-after'")
    prefetch = given.get("src-prefetch-count", PREFETCH)
    delay = given.get("reconnect-delay", RECONNECT_S)
    if not 0 <= prefetch <= 65535 or not 0 <= delay <= 86400:
        raise BadShovel("src-prefetch-count and reconnect-delay must not be below 0")
    queue = given.get("dest-queue")
    return ShovelSettings(
        src=_addresses(given, "src-uri"),
        dest=_addresses(given, "dest-uri"),
        src_queue=given.get("src-queue"),
        src_queue_args=given.get("src-queue-args", {}),
        src_consumer_args=given.get("src-consumer-args", {}),
        src_exchange=given.get("src-exchange"),
        src_exchange_key=given.get("src-exchange-key", ""),
        delete_after=delete_after,
        prefetch=prefetch,
        dest_queue=queue,
        dest_queue_args=given.get("dest-queue-args", {}),
        dest_exchange="" if queue is not None else given.get("dest-exchange"),
        dest_key=queue if queue is not None else given.get("dest-exchange-key"),
        forward_headers=given.get("dest-add-forward-headers", False),
        timestamp_header=given.get("dest-add-timestamp-header", False),
        publish_properties=_properties(given.get("dest-publish-properties", {})),
        ack_mode=ack_mode,
        reconnect_s=delay,
    )


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    """Keys in their newest spelling, each with a value of the right type. Raises BadShovel."""
    given: dict[str, Any] = {}
    for name, written in value.items():
        key = _OLD.get(name, name)
        if key not in _KEYS:
            guess = nearest(key, _KEYS)
            hint = f", did you mean '{guess}'?" if guess is not None else ""
            raise BadShovel(f"Unrecognised key '{name}'{hint}")
        kind = _KEYS[key]
        # To RabbitMQ's clients an empty list is an empty object as well.
        item = {} if kind is dict and written == [] else written
        wrong_bool = isinstance(item, bool) and kind is not bool and key != PAUSED
        if not isinstance(item, kind) or wrong_bool:
            raise BadShovel(f"'{name}' is of the wrong type")
        given[key] = item
    for key in ("src-uri", "dest-uri"):
        if key not in given:
            raise BadShovel(f"Key '{key}' not found")
    return given


def _addresses(given: Mapping[str, Any], key: str) -> tuple[BrokerAddress, ...]:
    listed = given[key] if isinstance(given[key], list) else [given[key]]
    if not listed or not all(isinstance(text, str) for text in listed):
        raise BadShovel(f"'{key}' must be an address or a list of them")
    try:
        return tuple(parse_address(text) for text in listed)
    except BadAddress as error:
        raise BadShovel(f"{key}: {error}") from None


def _delete_after(given: str | int) -> int | None:
    if given == "never":
        return None
    if given == "queue-length":
        return -1
    if isinstance(given, int) and given >= 0:
        return given
    raise BadShovel("src-delete-after must be a number, 'never' or 'queue-length'")


def _properties(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {name.replace("-", "_"): value for name, value in given.items()}
    for name in found:
        if name not in PROPERTY_NAMES:
            raise BadShovel(f"there is no property '{name}'")
    return found
