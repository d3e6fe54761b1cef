"""Exchanges, bindings, policies, parameters and virtual hosts as the API shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from warren.management.context import Context
from warren.management.encode import table
from warren.management.sampler import EXCHANGE_COLUMNS, TOTAL_COLUMNS, exchange_row
from warren.management.show_queues import NO_SPANS, Spans
from warren.model.policy import Policy, match

if TYPE_CHECKING:
    from warren.engine.vhost import VHost
    from warren.routing.binding import Binding
    from warren.routing.exchange import Exchange

Shown = dict[str, Any]

#: What a virtual host counts of messages, and how many wait in it.
_VHOST_STATS = (
    "ack",
    "confirm",
    "deliver",
    "deliver_get",
    "deliver_no_ack",
    "drop_unroutable",
    "get",
    "get_empty",
    "get_no_ack",
    "publish",
    "redeliver",
    "return_unroutable",
)
_LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
_OCTETS = ("recv_oct", "send_oct")


def show_exchange(
    context: Context, vhost: VHost, exchange: Exchange, spans: Spans = NO_SPANS
) -> Shown:
    """An exchange in a list."""
    gauge = context.sampler.gauge(exchange, spans.messages)
    stats: Shown = {}
    for column, (name, value) in enumerate(
        zip(EXCHANGE_COLUMNS, exchange_row(exchange), strict=True)
    ):
        stats[name] = value
        stats[f"{name}_details"] = gauge.details(column)
    shown: Shown = {
        "arguments": table(exchange.arguments),
        "auto_delete": exchange.auto_delete,
        "durable": exchange.durable,
        "internal": exchange.internal,
        "message_stats": stats,
        "name": exchange.name,
        "type": exchange.type,
        "user_who_performed_action": exchange.made_by,
        "vhost": vhost.name,
    }
    policy = match(vhost.policies.values(), "exchange", exchange.name)
    if policy is not None:
        shown["policy"] = policy.name
    return shown


def show_binding(vhost: VHost, binding: Binding) -> Shown:
    return {
        "source": binding.source,
        "vhost": vhost.name,
        "destination": binding.destination,
        "destination_type": binding.destination_kind,
        "routing_key": binding.routing_key.decode("utf-8", "replace"),
        "arguments": table(binding.arguments),
        "properties_key": binding.properties_key,
    }


def show_default_binding(vhost: VHost, queue: str) -> Shown:
    """Every queue is bound to the default exchange by its name, without a binding of its own."""
    return {
        "source": "",
        "vhost": vhost.name,
        "destination": queue,
        "destination_type": "queue",
        "routing_key": queue,
        "arguments": {},
        "properties_key": queue,
    }


def queue_bindings(vhost: VHost, queue: str, sources: set[str]) -> list[Shown]:
    """All bindings that lead to a queue."""
    shown = [show_default_binding(vhost, queue)]
    for source in sorted(sources):
        exchange = vhost.exchanges.get(source)
        if exchange is not None:
            shown += [show_binding(vhost, found) for found in exchange.bindings_to("queue", queue)]
    return shown


def exchange_bindings_to(vhost: VHost, exchange: Exchange) -> list[Shown]:
    """All bindings that lead to an exchange."""
    shown: list[Shown] = []
    for name in sorted(exchange.sources):
        source = vhost.exchanges.get(name)
        if source is not None:
            found = source.bindings_to("exchange", exchange.name)
            shown += [show_binding(vhost, binding) for binding in found]
    return shown


def all_bindings(vhost: VHost) -> Iterator[tuple[VHost, Binding | str]]:
    """Every binding of a virtual host; a queue's name stands for its default one."""
    for queue in sorted(vhost.queues):
        yield vhost, queue
    for name in sorted(vhost.exchanges):
        for binding in vhost.exchanges[name].bindings():
            yield vhost, binding


def show_any_binding(item: tuple[VHost, Binding | str]) -> Shown:
    vhost, binding = item
    if isinstance(binding, str):
        return show_default_binding(vhost, binding)
    return show_binding(vhost, binding)


def show_policy(policy: Policy) -> Shown:
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def show_vhost(
    context: Context, vhost: VHost, counts: Counter[str], spans: Spans = NO_SPANS
) -> Shown:
    """A virtual host with its counts, which the caller has added up."""
    sampler = context.sampler

    def numbers(names: tuple[str, ...], gauge: Any) -> Shown:
        filled: Shown = {}
        for name in names:
            filled[name] = counts[name]
            filled[f"{name}_details"] = gauge.details(TOTAL_COLUMNS.index(name))
        return filled

    return {
        "cluster_state": {context.node_name: "running"},
        "default_queue_type": "classic",
        "description": vhost.description,
        "message_stats": numbers(_VHOST_STATS, sampler.totals_gauge([vhost.name], spans.messages)),
        **numbers(_LENGTHS, sampler.totals_gauge([vhost.name], spans.lengths)),
        "metadata": {"description": vhost.description, "tags": list(vhost.tags)},
        "name": vhost.name,
        **numbers(_OCTETS, sampler.totals_gauge([vhost.name], spans.data)),
        "tags": list(vhost.tags),
        "tracing": vhost.tracing,
    }


def parameters(context: Context, vhost: str | None = None) -> list[Shown]:
    """All runtime parameters: limits and operator policies are shown as such, too."""
    engine = context.engine
    shown = [
        {"vhost": of_vhost, "component": component, "name": name, "value": value}
        for (of_vhost, component, name), value in sorted(engine.parameters.items())
        if vhost in {None, of_vhost}
    ]
    for name in sorted(engine.vhosts):
        if vhost not in {None, name}:
            continue
        limits = engine.directory.vhost_limits(name)
        if limits:
            shown.append(
                {"vhost": name, "component": "vhost-limits", "name": "limits", "value": limits}
            )
        for policy in engine.vhosts[name].operator_policies.values():
            value = show_policy(policy)
            del value["vhost"], value["name"]
            shown.append(
                {
                    "vhost": name,
                    "component": "operator_policy",
                    "name": policy.name,
                    "value": value,
                }
            )
    return shown


def global_parameters(context: Context) -> list[Shown]:
    """The settings of the whole cluster."""
    named: Shown = {"cluster_name": context.engine.cluster_name}
    named.update(context.engine.global_parameters)
    return [{"name": name, "value": value} for name, value in sorted(named.items())]
