"""Policies at work: which one governs an entity, and what changes when they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from warren.engine.queues import touch
from warren.engine.timeouts import note_timeout
from warren.model.policy import (
    EffectiveArguments,
    Policy,
    effective_queue_arguments,
    match,
    merge,
    validate_policy,
)

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.routing.exchange import Exchange


class Governing(NamedTuple):
    """What governs a queue: its policies, and what they make of its arguments."""

    policy: Policy | None
    operator_policy: Policy | None
    effective: EffectiveArguments


#: A queue without arguments where there are no policies.
UNGOVERNED = Governing(None, None, effective_queue_arguments({}, {}))


def find_governing(
    _engine: Engine, vhost: VHost, name: str, arguments: Mapping[str, object]
) -> Governing:
    """What governs a queue of this name and these arguments."""
    if not arguments and not vhost.policies and not vhost.operator_policies:
        return UNGOVERNED
    policy = match(vhost.policies.values(), "queue", name)
    operator_policy = match(vhost.operator_policies.values(), "queue", name)
    effective = effective_queue_arguments(arguments, merge(policy, operator_policy))
    return Governing(policy, operator_policy, effective)


def govern_queue(engine: Engine, queue: AmqpQueue, governing: Governing) -> None:
    """Apply what governs the queue now."""
    queue.policy, queue.operator_policy, effective = governing
    if effective.expires_ms != queue.effective.expires_ms and queue.lease_timer is not None:
        queue.lease_timer.cancel()
        queue.lease_timer = None
    queue.govern(effective, engine.clock.now_ms())
    if engine.mirrors is not None:
        engine.mirrors.govern(queue)
    note_timeout(engine, queue)
    touch(engine, queue)


def govern_exchange(_engine: Engine, vhost: VHost, exchange: Exchange) -> None:
    """The alternate exchange comes from the argument, or else from a policy."""
    policy = match(vhost.policies.values(), "exchange", exchange.name)
    argument = exchange.arguments.get("alternate-exchange")
    wanted = argument if argument is not None else merge(policy, None).get("alternate-exchange")
    alternate = wanted if isinstance(wanted, str) else None
    if alternate != exchange.alternate:
        vhost.chained += (alternate is not None) - (exchange.alternate is not None)
        exchange.alternate = alternate
        vhost.forget_routes(exchange.name)


def set_policy(engine: Engine, policy: Policy, operator: bool = False) -> None:
    """Set or replace a policy. Raises PolicyError when it cannot be used."""
    validate_policy(policy, operator)
    vhost = engine.vhost(policy.vhost)
    engine.metadata.policy_set(policy, operator)
    table = vhost.operator_policies if operator else vhost.policies
    table[policy.name] = policy
    _reapply(engine, vhost)
    engine.emit("policy.set", vhost=vhost.name, name=policy.name)


def clear_policy(engine: Engine, vhost_name: str, name: str, operator: bool = False) -> bool:
    """Remove a policy; False when there is none of that name."""
    vhost = engine.vhost(vhost_name)
    table = vhost.operator_policies if operator else vhost.policies
    if name not in table:
        return False
    engine.metadata.policy_cleared(vhost, name, operator)
    del table[name]
    _reapply(engine, vhost)
    engine.emit("policy.cleared", vhost=vhost.name, name=name)
    return True


def _reapply(engine: Engine, vhost: VHost) -> None:
    for queue in list(vhost.queues.values()):
        governing = find_governing(engine, vhost, queue.name, queue.declaration.arguments)
        govern_queue(engine, queue, governing)
    for exchange in list(vhost.exchanges.values()):
        govern_exchange(engine, vhost, exchange)
    engine.run_effects()
