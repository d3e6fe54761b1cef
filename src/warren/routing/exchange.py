"""An exchange: how it was declared, its bindings, and the matcher of its type.

The exchange holds bindings by identity, so declaring one twice changes nothing, and hands each new
one to its matcher. Everything about other exchanges (alternates, chains) is in `resolve`; delaying
the messages of an `x-delayed-message` exchange is the engine's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Final

from warren.model.errors import CommandInvalid, PreconditionFailed
from warren.model.ports import PublishCounts
from warren.routing.binding import Binding, DestinationKind
from warren.routing.consistent_hash import ConsistentHashMatcher
from warren.routing.direct import DirectMatcher
from warren.routing.fanout import FanoutMatcher
from warren.routing.field_value import text_of
from warren.routing.headers import HeadersMatcher
from warren.routing.matcher import Matcher, Table
from warren.routing.modulus_hash import ModulusHashMatcher
from warren.routing.topic import TopicMatcher

DELAYED_TYPE: Final = "x-delayed-message"
MODULUS_TYPE: Final = "x-modulus-hash"


def _make_delayed(arguments: Table) -> Matcher:
    inner = text_of(arguments.get("x-delayed-type"))
    if inner is None or inner == DELAYED_TYPE or inner not in EXCHANGE_TYPES:
        raise PreconditionFailed(
            "Invalid argument, 'x-delayed-type' must be an existing exchange type"
        )
    return EXCHANGE_TYPES[inner](arguments)


#: What makes the matcher of each type from the exchange's arguments.
EXCHANGE_TYPES: Final[dict[str, Callable[[Table], Matcher]]] = {
    "direct": lambda _: DirectMatcher(),
    "fanout": lambda _: FanoutMatcher(),
    "topic": lambda _: TopicMatcher(),
    "headers": lambda _: HeadersMatcher(),
    "x-consistent-hash": ConsistentHashMatcher,
    MODULUS_TYPE: lambda _: ModulusHashMatcher(),
    DELAYED_TYPE: _make_delayed,
}


class Exchange:
    """One declared exchange; see the module's text."""

    #: Tells exchanges from queues among destinations, in the words of `Binding`.
    destination_kind: ClassVar[DestinationKind] = "exchange"

    __slots__ = (
        "_bindings",
        "_by_destination",
        "_matcher",
        "alternate",
        "arguments",
        "auto_delete",
        "counts",
        "durable",
        "had_bindings",
        "internal",
        "made_by",
        "name",
        "sources",
        "type",
    )

    def __init__(
        self,
        name: str,
        exchange_type: str,
        matcher: Matcher,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Any],
    ) -> None:
        self.name = name
        self.type = exchange_type
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        #: Where messages go that match nothing here; from an argument or a policy, by the engine.
        self.alternate: str | None = None
        #: Whether it ever was a source: an auto-delete exchange does not go before that.
        self.had_bindings = False
        #: The user who declared it; what every virtual host is born with was made by nobody.
        self.made_by = "rmq-internal"
        #: Names of the exchanges that have a binding to it; kept by the engine.
        self.sources: set[str] = set()
        #: What was published to it, and how many queues that went to.
        self.counts = PublishCounts()
        self._matcher = matcher
        #: identity -> the binding and the object it leads to
        self._bindings: dict[Hashable, tuple[Binding, Hashable]] = {}
        self._by_destination: dict[tuple[DestinationKind, str], dict[Hashable, Binding]] = {}

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.type} {len(self._bindings)} bindings>"

    @property
    def is_delayed(self) -> bool:
        """Whether messages with an `x-delay` header wait before they are routed."""
        return self.type == DELAYED_TYPE

    @property
    def is_unused(self) -> bool:
        """Whether it is the source of no binding."""
        return not self._bindings

    @property
    def caches_by_key(self) -> bool:
        """Whether the routing key alone decides where a message goes from here."""
        return self._matcher.caches_by_key

    def validate(self, binding: Binding) -> None:
        """Refuse a binding this type can not have. Raises: PreconditionFailed."""
        self._matcher.validate(binding.routing_key, binding.arguments)

    def bind(self, binding: Binding, destination: Hashable) -> bool:
        """Add a binding to a queue or Exchange object; False if it was there already.

        Raises: PreconditionFailed.
        """
        self.validate(binding)
        if binding.identity in self._bindings:
            return False
        self._matcher.bind(binding.routing_key, binding.arguments, destination)
        self._bindings[binding.identity] = (binding, destination)
        place = (binding.destination_kind, binding.destination)
        self._by_destination.setdefault(place, {})[binding.identity] = binding
        self.had_bindings = True
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; False if there is none such."""
        held = self._bindings.pop(binding.identity, None)
        if held is None:
            return False
        known, destination = held
        self._matcher.unbind(known.routing_key, known.arguments, destination)
        place = (known.destination_kind, known.destination)
        siblings = self._by_destination[place]
        del siblings[known.identity]
        if not siblings:
            del self._by_destination[place]
        return True

    def unbind_destination(self, kind: DestinationKind, name: str) -> list[Binding]:
        """Remove all bindings to one queue or exchange, as when it is deleted; gives them back."""
        gone = self.bindings_to(kind, name)
        for binding in gone:
            self.unbind(binding)
        return gone

    def redirect(self, kind: DestinationKind, name: str, destination: Hashable) -> bool:
        """Have all bindings to one name lead to another object; whether there are any."""
        bindings = self.bindings_to(kind, name)
        for binding in bindings:
            _, before = self._bindings[binding.identity]
            self._matcher.unbind(binding.routing_key, binding.arguments, before)
            self._matcher.bind(binding.routing_key, binding.arguments, destination)
            self._bindings[binding.identity] = (binding, destination)
        return bool(bindings)

    def clear(self) -> list[tuple[Binding, Hashable]]:
        """Remove all bindings, as when it is deleted; gives them back with their destinations."""
        gone = list(self._bindings.values())
        self._bindings.clear()
        self._by_destination.clear()
        self._matcher = EXCHANGE_TYPES[self.type](self.arguments)
        return gone

    def holds(self, binding: Binding) -> bool:
        """Whether it has this very binding."""
        return binding.identity in self._bindings

    def leads_to(self, kind: DestinationKind, name: str) -> bool:
        """Whether it has a binding to one queue or exchange."""
        return (kind, name) in self._by_destination

    def bindings(self) -> list[Binding]:
        """All bindings from here, oldest first."""
        return [binding for binding, _ in self._bindings.values()]

    def bindings_to(self, kind: DestinationKind, name: str) -> list[Binding]:
        """The bindings from here to one queue or exchange, oldest first."""
        return list(self._by_destination.get((kind, name), {}).values())

    def match(
        self, routing_key: bytes, headers: Table | None, properties: Table | None = None
    ) -> list[Any]:
        """The queue and Exchange objects that one message goes to from here, each once."""
        return self._matcher.match(routing_key, headers, properties)


def check_exchange_type(exchange_type: str) -> None:
    """Raises: CommandInvalid."""
    if exchange_type not in EXCHANGE_TYPES:
        raise CommandInvalid(f"unknown exchange type '{exchange_type}'")


def make_exchange(
    name: str,
    exchange_type: str,
    *,
    durable: bool = False,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: dict[str, Any] | None = None,
) -> Exchange:
    """Make an exchange of a known type. Raises: CommandInvalid, PreconditionFailed."""
    check_exchange_type(exchange_type)
    make_matcher = EXCHANGE_TYPES[exchange_type]
    arguments = arguments if arguments is not None else {}
    return Exchange(
        name,
        exchange_type,
        make_matcher(arguments),
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
    )
