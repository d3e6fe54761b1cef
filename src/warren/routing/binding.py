"""A binding: the rule that leads from an exchange to a queue or to another exchange.

Two bindings are the same if source, destination, routing key and arguments are, arguments compared
by value and class. Declaring the same binding again changes nothing; that rests on `identity`.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal
from urllib.parse import quote_plus

from warren.routing.field_value import canonical_table

DestinationKind = Literal["queue", "exchange"]

#: Long enough that two bindings of one pair never share a properties key by accident.
_ARGUMENTS_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding by names; `arguments` must not be changed once it is given here."""

    source: str = field(compare=False)
    destination_kind: DestinationKind = field(compare=False)
    destination: str = field(compare=False)
    routing_key: bytes = field(compare=False)
    arguments: dict[str, Any] = field(compare=False, default_factory=dict)
    #: What equality and hash rest on.
    identity: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        identity = (
            self.source,
            self.destination_kind,
            self.destination,
            self.routing_key,
            canonical_table(self.arguments),
        )
        object.__setattr__(self, "identity", identity)

    @property
    def properties_key(self) -> str:
        """What tells this binding from others of its pair in the management API's addresses."""
        if not self.arguments:
            return _quote(self.routing_key) or "~"
        form = repr(canonical_table(self.arguments)).encode("utf-8", "surrogatepass")
        digest = blake2b(form, digest_size=_ARGUMENTS_HASH_BYTES).digest()
        return f"{_quote(self.routing_key)}~{urlsafe_b64encode(digest).decode().rstrip('=')}"


def _quote(routing_key: bytes) -> str:
    # A tilde separates key and hash, so one inside the key is quoted too.
    return quote_plus(routing_key).replace("~", "%7E")
