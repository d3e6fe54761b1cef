"""Puts metadata of an earlier run back into the engine: one change of the log at a time.

The engine's own verbs do it, while `engine.restoring` is set. What must be there before (the
virtual host of a queue, the exchange of a binding) is looked up by them, and everything is checked
again as if a client had sent it: what the log says is not trusted. All raise MetadataError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from warren.auth.directory import DirectoryError
from warren.engine.amqp_queue import AmqpQueue
from warren.engine.engine import Engine
from warren.engine.metadata_format import Change, Fields, Kind, MetadataError
from warren.engine.vhost import VHost
from warren.model.errors import AmqpError, NotFound
from warren.model.policy import Policy, PolicyError
from warren.model.queue_arguments import QueueDeclaration, check_queue_arguments
from warren.routing.binding import Binding
from warren.routing.exchange import Exchange, make_exchange

#: The number of a queue in the log has 32 bits.
QUEUE_ID_MAX = 2**32 - 1


@contextmanager
def restoring(engine: Engine) -> Iterator[None]:
    """The engine remembers instead of acting."""
    engine.restoring = True
    try:
        yield
    finally:
        engine.restoring = False


def read_queue_id(change: Change) -> int:
    """The number that an entry gives its queue."""
    assert change.value is not None
    queue_id = change.value.number("id")
    if not 0 < queue_id <= QUEUE_ID_MAX:
        raise MetadataError(f"{change}: {queue_id} is not the number of a queue")
    return queue_id


def restore(engine: Engine, change: Change) -> None:
    """Do in the engine what the change says."""
    act = _DELETE[change.kind] if change.value is None else _PUT[change.kind]
    try:
        act(engine, change)
    except AmqpError as error:
        raise MetadataError(f"{change}: {error.explanation}") from error
    except (DirectoryError, PolicyError) as error:
        detail = getattr(error, "detail", None) or str(error)
        raise MetadataError(f"{change}: {detail}") from error


def _value(change: Change) -> Fields:
    assert change.value is not None
    return change.value


def _binding(change: Change) -> Binding:
    assert change.binding is not None
    return change.binding


# -- additions -------------------------------------------------------------------------------------


def _put_vhost(engine: Engine, change: Change) -> None:
    (name,) = change.names
    description, tags = _value(change).text("description"), _value(change).texts("tags")
    if name not in engine.vhosts:
        # Not by `add_vhost`: limits and defaults of today are not those of that time.
        engine.directory.add_vhost(name)
        engine.vhosts[name] = VHost(name)
        engine.emit("vhost.created", name=name)
    engine.vhosts[name].description = description
    engine.vhosts[name].tags = tags


def _put_vhost_limits(engine: Engine, change: Change) -> None:
    engine.directory.set_vhost_limits(change.names[0], _value(change).table("limits"))


def _put_user(engine: Engine, change: Change) -> None:
    value = _value(change)
    engine.directory.put_user(
        change.names[0],
        value.text("password_hash"),
        value.text("hashing_algorithm"),
        value.texts("tags"),
        value.table("limits"),
    )


def _put_permission(engine: Engine, change: Change) -> None:
    vhost, user = change.names
    value = _value(change)
    engine.directory.set_permissions(
        user, vhost, value.text("configure"), value.text("write"), value.text("read")
    )


def _put_topic_permission(engine: Engine, change: Change) -> None:
    vhost, user, exchange = change.names
    value = _value(change)
    engine.directory.set_topic_permissions(
        user, vhost, exchange, value.text("write"), value.text("read")
    )


def _put_policy(engine: Engine, change: Change) -> None:
    vhost, name = change.names
    value = _value(change)
    policy = Policy(
        vhost,
        name,
        value.text("pattern"),
        value.arguments("definition"),
        value.number("priority"),
        value.text("apply_to"),
    )
    engine.set_policy(policy, operator=change.kind is Kind.OPERATOR_POLICY)


def _put_parameter(engine: Engine, change: Change) -> None:
    vhost, component, name = change.names
    engine.set_parameter(vhost, component, name, _value(change).json("json"))


def _put_global_parameter(engine: Engine, change: Change) -> None:
    engine.set_global_parameter(change.names[0], _value(change).json("json"))


def _put_exchange(engine: Engine, change: Change) -> None:
    vhost, name = engine.vhost(change.names[0]), change.names[1]
    value = _value(change)
    if name in vhost.exchanges:
        raise MetadataError(f"{change} is there already")
    exchange = make_exchange(
        name,
        value.text("type"),
        durable=not value.flag("transient", False),
        auto_delete=value.flag("auto_delete"),
        internal=value.flag("internal"),
        arguments=value.arguments("arguments"),
    )
    engine.add_exchange(vhost, exchange)


def _put_queue(engine: Engine, change: Change) -> None:
    vhost, name = engine.vhost(change.names[0]), change.names[1]
    value = _value(change)
    if name in vhost.queues:
        raise MetadataError(f"{change} is there already")
    arguments = value.arguments("arguments")
    check_queue_arguments(arguments, name, vhost.name)
    declaration = QueueDeclaration(
        not value.flag("transient", False),
        value.flag("auto_delete"),
        value.flag("exclusive", False),
        arguments,
    )
    home = value.text("home", engine.settings.node_name)
    owner = engine.owners.get(value.text("owner", ""))
    born_mirrored = value.flag("mirrored", False) if engine.restoring else None
    queue = engine.add_queue(vhost, name, declaration, owner, home, born_mirrored)
    if engine.restoring:
        number_queue(queue, read_queue_id(change))
        if not queue.is_remote:
            engine.numbered[queue.number] = queue


def number_queue(queue: AmqpQueue, number: int) -> None:
    """Give a queue its number; in the log only where something of it is kept there."""
    queue.number = number
    if queue.declaration.durable and not queue.is_remote:
        queue.queue_id = number
        queue.durable = True


def _put_mirror_link(engine: Engine, change: Change) -> None:
    engine.add_mirror_link(*change.names)


def _put_pause(engine: Engine, change: Change) -> None:
    vhost, name = change.names
    value = _value(change)
    engine.pause_queue(vhost, name, value.text("by"), value.number("at_ms"))


def _put_binding(engine: Engine, change: Change) -> None:
    vhost, binding = engine.vhost(change.names[0]), _binding(change)
    source = vhost.exchange(binding.source)
    target: AmqpQueue | Exchange
    if binding.destination_kind == "queue":
        target = vhost.known_queue(binding.destination)
    else:
        target = vhost.exchange(binding.destination)
    engine.add_binding(vhost, source, binding, target)


# -- deletions -------------------------------------------------------------------------------------


def _delete_vhost(engine: Engine, change: Change) -> None:
    engine.delete_vhost(change.names[0])


def _delete_vhost_limits(engine: Engine, change: Change) -> None:
    engine.directory.set_vhost_limits(change.names[0], {})


def _delete_user(engine: Engine, change: Change) -> None:
    engine.directory.delete_user(change.names[0])


def _delete_permission(engine: Engine, change: Change) -> None:
    vhost, user = change.names
    engine.directory.clear_permissions(user, vhost)


def _delete_topic_permission(engine: Engine, change: Change) -> None:
    vhost, user, exchange = change.names
    engine.directory.clear_topic_permissions(user, vhost, exchange)


def _delete_policy(engine: Engine, change: Change) -> None:
    vhost, name = change.names
    engine.clear_policy(vhost, name, operator=change.kind is Kind.OPERATOR_POLICY)


def _delete_parameter(engine: Engine, change: Change) -> None:
    engine.clear_parameter(*change.names)


def _delete_global_parameter(engine: Engine, change: Change) -> None:
    engine.clear_global_parameter(change.names[0])


def _delete_exchange(engine: Engine, change: Change) -> None:
    vhost, name = engine.vhost(change.names[0]), change.names[1]
    engine.remove_exchange(vhost, vhost.exchange(name))


def _delete_queue(engine: Engine, change: Change) -> None:
    vhost, name = engine.vhost(change.names[0]), change.names[1]
    engine.remove_queue(vhost.known_queue(name))


def _delete_mirror_link(engine: Engine, change: Change) -> None:
    engine.remove_mirror_link(*change.names)


def _delete_pause(engine: Engine, change: Change) -> None:
    engine.resume_queue(*change.names)


def _delete_binding(engine: Engine, change: Change) -> None:
    vhost, binding = engine.vhost(change.names[0]), _binding(change)
    if not engine.remove_binding(vhost, vhost.exchange(binding.source), binding):
        raise NotFound("no such binding")


_Act = Callable[[Engine, Change], Any]

_PUT: dict[Kind, _Act] = {
    Kind.VHOST: _put_vhost,
    Kind.VHOST_LIMITS: _put_vhost_limits,
    Kind.USER: _put_user,
    Kind.PERMISSION: _put_permission,
    Kind.TOPIC_PERMISSION: _put_topic_permission,
    Kind.POLICY: _put_policy,
    Kind.OPERATOR_POLICY: _put_policy,
    Kind.PARAMETER: _put_parameter,
    Kind.GLOBAL_PARAMETER: _put_global_parameter,
    Kind.EXCHANGE: _put_exchange,
    Kind.QUEUE: _put_queue,
    Kind.MIRROR_LINK: _put_mirror_link,
    Kind.PAUSE: _put_pause,
    Kind.BINDING: _put_binding,
}
_DELETE: dict[Kind, _Act] = {
    Kind.VHOST: _delete_vhost,
    Kind.VHOST_LIMITS: _delete_vhost_limits,
    Kind.USER: _delete_user,
    Kind.PERMISSION: _delete_permission,
    Kind.TOPIC_PERMISSION: _delete_topic_permission,
    Kind.POLICY: _delete_policy,
    Kind.OPERATOR_POLICY: _delete_policy,
    Kind.PARAMETER: _delete_parameter,
    Kind.GLOBAL_PARAMETER: _delete_global_parameter,
    Kind.EXCHANGE: _delete_exchange,
    Kind.QUEUE: _delete_queue,
    Kind.MIRROR_LINK: _delete_mirror_link,
    Kind.PAUSE: _delete_pause,
    Kind.BINDING: _delete_binding,
}
