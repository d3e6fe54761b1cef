"""Exports definitions: everything that was declared and set, as RabbitMQ writes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from warren.management.encode import table
from warren.management.pace import Pace
from warren.management.show_access import show_permission, show_topic_permission, show_user
from warren.management.show_queues import is_exclusive
from warren.management.show_topology import show_binding, show_policy

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost

Rows = list[dict[str, Any]]


async def export_definitions(engine: Engine, vhost: VHost | None = None) -> dict[str, Any]:
    """The whole broker, or one virtual host: then without users, and rows do not name it."""
    version = engine.settings.version
    vhosts = [vhost] if vhost is not None else list(engine.vhosts.values())
    head: dict[str, Any] = {"rabbit_version": version}
    if vhost is None:
        head |= _of_the_broker(engine, version)
    tail: dict[str, Any] = {
        "parameters": _parameters(engine, vhosts),
        "policies": [show_policy(p) for place in vhosts for p in place.policies.values()],
    }
    if vhost is None:
        tail = {
            "parameters": tail["parameters"],
            "global_parameters": _global_parameters(engine),
            "policies": tail["policies"],
        }
    pace = Pace()
    queues: Rows = []
    exchanges: Rows = []
    bindings: Rows = []
    for place in vhosts:
        queues += await _queues(place, pace)
        exchanges += _exchanges(place)
        bindings += await _bindings(place, pace)
    if vhost is not None:
        for row in (*queues, *exchanges, *bindings):
            del row["vhost"]
    return {**head, **tail, "queues": queues, "exchanges": exchanges, "bindings": bindings}


def _of_the_broker(engine: Engine, version: str) -> dict[str, Any]:
    directory = engine.directory
    return {
        "rabbitmq_version": version,
        "product_name": engine.settings.product,
        "product_version": version,
        "users": [show_user(user) for user in directory.list_users()],
        "vhosts": [_vhost(place) for place in engine.vhosts.values()],
        "permissions": [show_permission(row) for row in directory.list_permissions()],
        "topic_permissions": [
            show_topic_permission(row) for row in directory.list_topic_permissions()
        ],
    }


def _vhost(vhost: VHost) -> dict[str, Any]:
    row: dict[str, Any] = {"name": vhost.name}
    if vhost.description or vhost.tags:
        row |= {
            "description": vhost.description,
            "tags": list(vhost.tags),
            "metadata": {"description": vhost.description, "tags": list(vhost.tags)},
        }
    return row


def _parameters(engine: Engine, vhosts: Iterable[VHost]) -> Rows:
    rows: Rows = []
    for vhost in vhosts:
        limits = engine.directory.vhost_limits(vhost.name)
        if limits:
            rows.append(
                {
                    "value": limits,
                    "vhost": vhost.name,
                    "component": "vhost-limits",
                    "name": "limits",
                }
            )
        for policy in vhost.operator_policies.values():
            value = show_policy(policy)
            del value["vhost"], value["name"]
            rows.append(
                {
                    "value": value,
                    "vhost": vhost.name,
                    "component": "operator_policy",
                    "name": policy.name,
                }
            )
        rows += [
            {"value": value, "vhost": of_vhost, "component": component, "name": name}
            for (of_vhost, component, name), value in engine.parameters.items()
            if of_vhost == vhost.name
        ]
    return rows


def _global_parameters(engine: Engine) -> Rows:
    named = {"cluster_name": engine.cluster_name, **engine.global_parameters}
    return [{"name": name, "value": value} for name, value in named.items()]


async def _queues(vhost: VHost, pace: Pace) -> Rows:
    rows: Rows = []
    for queue in list(vhost.queues.values()):
        # An exclusive queue goes with its connection: it is nobody's to bring back.
        if not is_exclusive(queue):
            rows.append(
                {
                    "name": queue.name,
                    "vhost": vhost.name,
                    "durable": queue.declaration.durable,
                    "auto_delete": queue.declaration.auto_delete,
                    "arguments": table(queue.declaration.arguments),
                }
            )
        await pace.rest()
    return rows


def _exchanges(vhost: VHost) -> Rows:
    return [
        {
            "name": exchange.name,
            "vhost": vhost.name,
            "type": exchange.type,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": table(exchange.arguments),
        }
        for exchange in vhost.exchanges.values()
        if exchange.name and not exchange.name.startswith("amq.")
    ]


async def _bindings(vhost: VHost, pace: Pace) -> Rows:
    rows: Rows = []
    for exchange in list(vhost.exchanges.values()):
        for binding in exchange.bindings():
            if binding.destination_kind == "queue":
                queue = vhost.queues.get(binding.destination)
                if queue is None or is_exclusive(queue):
                    continue
            row = show_binding(vhost, binding)
            del row["properties_key"]
            rows.append(row)
            await pace.rest()
    return rows
