"""What every kind of exchange offers: bindings in, destinations out.

A matcher knows nothing of names, durability or other exchanges. Destinations are any hashable
objects and are told apart by equality (queues and exchanges: by identity). Several bindings may
join the same destination to the same pattern; each `bind` needs its own `unbind`. `match` gives
each destination once, ordered by when it was first bound to a pattern that matched.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

Table = Mapping[str, Any]


class Matcher(Protocol):
    """The rule of one exchange type and the bindings it applies to."""

    @property
    def caches_by_key(self) -> bool:
        """Whether the routing key alone decides, so that its result may be remembered."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing is bound."""
        ...

    def validate(self, routing_key: bytes, arguments: Table) -> None:
        """Refuse a binding that makes no sense here. Raises: PreconditionFailed."""
        ...

    def bind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:
        """Add a valid binding."""
        ...

    def unbind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:
        """Take back one `bind` of the same arguments. Raises: KeyError if there was none."""
        ...

    def match(
        self, routing_key: bytes, headers: Table | None, properties: Table | None = None
    ) -> list[Any]:
        """The destinations of one message, in a list that the caller may keep."""
        ...
