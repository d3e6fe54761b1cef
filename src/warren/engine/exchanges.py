"""Exchanges and bindings: declare, delete, bind, unbind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.engine.errands import take_errand
from warren.model.errors import AccessRefused, PreconditionFailed
from warren.model.queue_arguments import (
    amqp_type_name,
    check_equivalent_arguments,
    check_equivalent_value,
)
from warren.routing.binding import Binding, DestinationKind
from warren.routing.exchange import Exchange, check_exchange_type, make_exchange

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.session.connection import Connection

RESERVED_PREFIX = "amq."


def exchange_text(name: str, vhost: VHost) -> str:
    """How error texts name an exchange."""
    return f"exchange '{name}' in vhost '{vhost.name}'"


def find_exchange(_engine: Engine, vhost: VHost, name: str) -> Exchange:
    """For passive declares. Raises NotFound, or AccessRefused for the default exchange."""
    _refuse_default(name)
    return vhost.exchange(name)


def declare_exchange(
    engine: Engine,
    connection: Connection,
    name: str,
    exchange_type: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, Any],
) -> Exchange:
    """Make the exchange, or check that the existing one is the same."""
    take_errand(connection)
    vhost: VHost = connection.vhost
    _refuse_default(name)
    engine.check_access(connection, "exchange", name, "configure")
    check_exchange_type(exchange_type)
    existing = vhost.exchanges.get(name)
    if existing is not None:
        _check_equivalent(vhost, existing, exchange_type, durable, auto_delete, internal, arguments)
        return existing
    exchange = make_exchange(
        name,
        exchange_type,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
    )
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
    _check_alternate(engine, connection, name, arguments)
    exchange.made_by = connection.user
    return add_exchange(engine, vhost, exchange)


def add_exchange(engine: Engine, vhost: VHost, exchange: Exchange) -> Exchange:
    """Put a new exchange in place."""
    engine.metadata.exchange_added(vhost, exchange)
    vhost.exchanges[exchange.name] = exchange
    engine.govern_exchange(vhost, exchange)
    vhost.forget_routes(exchange.name)
    engine.emit("exchange.created", vhost=vhost.name, name=exchange.name, type=exchange.type)
    return exchange


def _refuse_default(name: str) -> None:
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def _check_equivalent(
    vhost: VHost,
    existing: Exchange,
    exchange_type: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, Any],
) -> None:
    entity = exchange_text(existing.name, vhost)
    check_equivalent_value(entity, "type", exchange_type, existing.type)
    check_equivalent_value(entity, "durable", durable, existing.durable)
    check_equivalent_value(entity, "auto_delete", auto_delete, existing.auto_delete)
    check_equivalent_value(entity, "internal", internal, existing.internal)
    compared = ["alternate-exchange"]
    if existing.is_delayed:
        compared.append("x-delayed-type")
    check_equivalent_arguments(entity, arguments, existing.arguments, compared)


def _check_alternate(
    engine: Engine, connection: Connection, name: str, arguments: dict[str, Any]
) -> None:
    alternate = arguments.get("alternate-exchange")
    if alternate is None:
        return
    if not isinstance(alternate, str):
        raise PreconditionFailed(
            f"invalid type '{amqp_type_name(alternate)}' for arg 'alternate-exchange' "
            f"in {exchange_text(name, connection.vhost)}"
        )
    engine.check_access(connection, "exchange", name, "read")
    engine.check_access(connection, "exchange", alternate, "write")


def delete_exchange(engine: Engine, connection: Connection, name: str, if_unused: bool) -> None:
    take_errand(connection)
    vhost: VHost = connection.vhost
    _refuse_default(name)
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"deletion of system {exchange_text(name, vhost)} not allowed")
    engine.check_access(connection, "exchange", name, "configure")
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        return
    if if_unused and not exchange.is_unused:
        raise PreconditionFailed(f"{exchange_text(name, vhost)} in use")
    remove_exchange(engine, vhost, exchange)


def remove_exchange(engine: Engine, vhost: VHost, exchange: Exchange) -> None:
    """Take an exchange away with all bindings from and to it, and what it keeps for later.

    Auto-delete exchanges that led to nothing else go too, and so on: chains may be long.
    """
    waiting = [exchange]
    with engine.metadata.together():
        for current in waiting:
            if vhost.exchanges.get(current.name) is current:
                waiting += _take_away(engine, vhost, current)


def _take_away(engine: Engine, vhost: VHost, exchange: Exchange) -> list[Exchange]:
    """Removes one exchange; those that were bound to it and have to follow."""
    engine.metadata.exchange_removed(vhost, exchange)
    vhost.forget_routes(exchange.name)
    vhost.routes.drop(exchange.name)
    if exchange.alternate is not None:
        vhost.chained -= 1
    del vhost.exchanges[exchange.name]
    engine.drop_delayed(exchange)
    for binding, destination in exchange.clear():
        vhost.chained -= binding.destination_kind == "exchange"
        _sources(destination).discard(exchange.name)
    abandoned = []
    for name in sorted(exchange.sources):
        source = vhost.exchanges[name]
        vhost.chained -= len(source.unbind_destination("exchange", exchange.name))
        if _is_abandoned(engine, vhost, source):
            abandoned.append(source)
    engine.emit("exchange.deleted", vhost=vhost.name, name=exchange.name)
    return abandoned


def _sources(destination: Any) -> set[str]:
    """The names of the exchanges that have a binding to a queue or an exchange."""
    sources: set[str] = destination.sources
    return sources


def _is_abandoned(engine: Engine, vhost: VHost, exchange: Exchange) -> bool:
    """An auto-delete exchange goes with its last binding."""
    return (
        exchange.auto_delete
        and not engine.restoring
        and exchange.had_bindings
        and exchange.is_unused
        and vhost.exchanges.get(exchange.name) is exchange
    )


def delete_if_abandoned(engine: Engine, vhost: VHost, exchange: Exchange) -> None:
    """To be called when an exchange has lost a binding."""
    if _is_abandoned(engine, vhost, exchange):
        remove_exchange(engine, vhost, exchange)


def bind(
    engine: Engine,
    connection: Connection,
    kind: DestinationKind,
    destination: str,
    source: str,
    routing_key: str,
    arguments: dict[str, Any],
) -> None:
    take_errand(connection)
    vhost: VHost = connection.vhost
    _check_bind_access(engine, connection, kind, destination, source)
    exchange = vhost.exchange(source)
    target = vhost.exchange(destination) if kind == "exchange" else vhost.queue(destination)
    if kind == "queue":
        engine.check_owner(connection, vhost.queue(destination))
    if exchange.type == "topic":
        engine.directory.check_topic_access(
            connection.user, vhost.name, source, routing_key, "read"
        )
    binding = _binding(source, kind, destination, routing_key, arguments)
    add_binding(engine, vhost, exchange, binding, target)


def add_binding(
    engine: Engine, vhost: VHost, exchange: Exchange, binding: Binding, target: Any
) -> None:
    """Put a new binding in place; nothing happens if it is there already."""
    exchange.validate(binding)
    if exchange.holds(binding):
        return
    engine.metadata.binding_added(vhost, exchange, binding, target)
    exchange.bind(binding, target)
    _sources(target).add(exchange.name)
    if binding.destination_kind == "exchange":
        vhost.chained += 1
    vhost.forget_routes(exchange.name)
    engine.emit(
        "binding.created", vhost=vhost.name, source=exchange.name, destination=binding.destination
    )


def unbind(
    engine: Engine,
    connection: Connection,
    kind: DestinationKind,
    destination: str,
    source: str,
    routing_key: str,
    arguments: dict[str, Any],
) -> None:
    """Unbinding what is not bound, or does not exist, is no error."""
    take_errand(connection)
    vhost: VHost = connection.vhost
    _check_bind_access(engine, connection, kind, destination, source)
    exchange = vhost.exchanges.get(source)
    if exchange is None:
        return
    if kind == "queue" and destination in vhost.queues:
        engine.check_owner(connection, vhost.queues[destination])
    binding = _binding(source, kind, destination, routing_key, arguments)
    remove_binding(engine, vhost, exchange, binding)


def remove_binding(engine: Engine, vhost: VHost, exchange: Exchange, binding: Binding) -> bool:
    """Take a binding away; False if there is none such."""
    if not exchange.holds(binding):
        return False
    source, kind, destination = exchange.name, binding.destination_kind, binding.destination
    with engine.metadata.together():
        engine.metadata.binding_removed(vhost, binding)
        exchange.unbind(binding)
        if not exchange.leads_to(kind, destination):
            found = vhost.exchanges if kind == "exchange" else vhost.queues
            _sources(found[destination]).discard(source)
        vhost.forget_routes(source)
        if kind == "exchange":
            vhost.chained -= 1
        engine.emit("binding.deleted", vhost=vhost.name, source=source, destination=destination)
        delete_if_abandoned(engine, vhost, exchange)
    return True


def _check_bind_access(
    engine: Engine, connection: Connection, kind: DestinationKind, destination: str, source: str
) -> None:
    _refuse_default(source)
    if kind == "exchange":
        _refuse_default(destination)
    engine.check_access(connection, kind, destination, "write")
    engine.check_access(connection, "exchange", source, "read")


def _binding(
    source: str,
    kind: DestinationKind,
    destination: str,
    routing_key: str,
    arguments: dict[str, Any],
) -> Binding:
    key = routing_key.encode("utf-8", "surrogateescape")
    return Binding(source, kind, destination, key, arguments)
