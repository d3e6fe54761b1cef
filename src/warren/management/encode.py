"""JSON out and in. Values come from clients too: field tables hold what JSON has no word for."""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Mapping
from typing import Any

import msgspec

from warren.management.errors import bad_request


def _hook(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return as_text(bytes(value))
    if isinstance(value, datetime.datetime):
        return int(value.timestamp())
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, int):
        return int(value)
    return str(value)


_encoder = msgspec.json.Encoder(enc_hook=_hook)


def to_json(value: object) -> bytes:
    """The value as JSON; texts that are not UTF-8 are shown as well as they can be."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_clean(value))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def as_text(octets: bytes) -> str:
    """Octets as text where they are text, else as base64."""
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(octets).decode("ascii")


def table(value: Any) -> Any:
    """A field table, or a value in one, without what JSON cannot say."""
    if isinstance(value, Mapping):
        return {str(key): table(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [table(item) for item in value]
    if value is None or isinstance(value, str | bool | float):
        return value
    return _hook(value)


def read_object(body: bytes) -> dict[str, Any]:
    """The body of a PUT or POST; none at all is an empty object. Raises 400."""
    if not body.strip():
        return {}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise bad_request("not_json") from None
    if not isinstance(value, dict):
        raise bad_request("not_json")
    return value
