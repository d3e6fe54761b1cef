"""Queues: declare, inspect, purge, delete, and the ways they go by themselves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from warren.engine.amqp_queue import AmqpQueue
from warren.engine.direct_reply import inspect_reply_queue
from warren.engine.errands import NewQueue, Removal, answer_to, memo_of, take_errand
from warren.engine.exchanges import RESERVED_PREFIX, delete_if_abandoned
from warren.engine.mirroring import await_view, look_again
from warren.engine.timeouts import note_timeout
from warren.model.errors import (
    AccessRefused,
    Postponed,
    PreconditionFailed,
    ResourceLocked,
)
from warren.model.queue_arguments import (
    QueueDeclaration,
    check_equivalent_queue,
    check_queue_arguments,
    locked_queue_text,
    queue_text,
)
from warren.session.names import DIRECT_REPLY_TO

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.model.errand import Errand
    from warren.session.connection import Connection

#: (name, ready messages, consumers): what queue.declare answers.
QueueFacts = tuple[str, int, int]
#: A queue that was to go, and did not, is looked at again this much later.
LOOK_AGAIN_MS = 1_000


def declare_queue(
    engine: Engine,
    connection: Connection,
    name: str,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: dict[str, Any],
) -> QueueFacts:
    """Make the queue, or check that the existing one is the same."""
    errand = take_errand(connection)
    vhost: VHost = connection.vhost
    if name.startswith(DIRECT_REPLY_TO):
        return inspect_reply_queue(engine, vhost, name, errand)
    is_generated = not name
    if is_generated:
        begun = memo_of(errand, NewQueue)
        name = f"amq.gen-{engine.dice.token()}" if begun is None else begun.name
    # A queue that goes with its connection has nothing to survive a restart for.
    durable = durable and not exclusive
    declaration = QueueDeclaration(durable, auto_delete, exclusive, arguments)
    engine.totals.churn["queue_declared"] += 1
    engine.check_access(connection, "queue", name, "configure")
    existing = vhost.queues.get(name)
    if existing is not None:
        existing.check_there()
        check_owner(engine, connection, existing)
        check_equivalent_queue(name, vhost.name, existing.declaration, declaration)
        return _facts_now(engine, existing, errand)
    if name.startswith(RESERVED_PREFIX) and not is_generated:
        raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
    check_queue_arguments(arguments, name, vhost.name)
    _check_dead_letter_access(engine, connection, name, arguments)
    _check_queue_limit(engine, vhost, name)
    queue = add_queue(engine, vhost, name, declaration, connection if exclusive else None)
    return facts(queue)


def _facts_now(engine: Engine, queue: AmqpQueue, errand: Errand | None) -> QueueFacts:
    """What queue.declare answers; the home of a queue elsewhere is asked for it."""
    if queue.is_remote:
        ready, consumers = engine.ask(queue, "facts", errand)
        return queue.name, ready, consumers
    touch(engine, queue)
    return facts(queue)


def add_queue(
    engine: Engine,
    vhost: VHost,
    name: str,
    declaration: QueueDeclaration,
    owner: Connection | None,
    home: str | None = None,
    born_mirrored: bool | None = None,
) -> AmqpQueue:
    """Put a new queue in place; in a cluster with the home it is said to have.

    `born_mirrored`: whether it was when it was declared; None: that is now.
    """
    governing = engine.find_governing(vhost, name, declaration.arguments)
    if home is None:
        home = engine.choose_home(vhost, declaration, governing.effective)
    make = AmqpQueue if home == engine.settings.node_name else engine.make_remote
    queue = make(name, vhost, engine.effects, declaration, owner, governing.effective, home)
    await_view(engine, queue, born_mirrored)
    engine.metadata.queue_added(queue)
    if engine.journal is not None and not queue.durable and not queue.is_remote:
        # Nothing of it is kept, but what it holds can be paged out.
        queue.attach(engine.journal)
    engine.govern_queue(queue, governing)
    vhost.queues[name] = queue
    engine.queues_at[home] += 1
    if queue.number and not queue.is_remote and not queue.awaits_view:
        engine.numbered[queue.number] = queue
    vhost.forget_queue_route(name)
    if owner is not None:
        owner.exclusive_queues.add(name)
    touch(engine, queue)
    engine.totals.churn["queue_created"] += 1
    engine.emit("queue.created", vhost=vhost.name, name=name)
    return queue


def facts(queue: AmqpQueue) -> QueueFacts:
    return queue.name, queue.ready, len(queue.consumers)


def _check_dead_letter_access(
    engine: Engine, connection: Connection, name: str, arguments: dict[str, Any]
) -> None:
    target = arguments.get("x-dead-letter-exchange")
    if isinstance(target, str):
        engine.check_access(connection, "queue", name, "read")
        engine.check_access(connection, "exchange", target, "write")


def _check_queue_limit(engine: Engine, vhost: VHost, name: str) -> None:
    limit = engine.directory.vhost_limit(vhost.name, "max-queues")
    if limit is not None and len(vhost.queues) >= limit:
        raise PreconditionFailed(
            f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}' ({limit}) "
            "is reached"
        )


def check_owner(_engine: Engine, connection: Connection, queue: AmqpQueue) -> None:
    """An exclusive queue is its own connection's only. Raises ResourceLocked."""
    if queue.declaration.exclusive and queue.owner is not connection:
        raise ResourceLocked(locked_queue_text(queue.name, queue.vhost.name))


def inspect_queue(engine: Engine, connection: Connection, name: str) -> QueueFacts:
    """For passive declares."""
    errand = take_errand(connection)
    vhost: VHost = connection.vhost
    if name.startswith(DIRECT_REPLY_TO):
        return inspect_reply_queue(engine, vhost, name, errand)
    queue = vhost.queue(name)
    check_owner(engine, connection, queue)
    return _facts_now(engine, queue, errand)


def purge_queue(engine: Engine, connection: Connection, name: str) -> int:
    errand = take_errand(connection)
    queue = connection.vhost.queue(name)
    engine.check_access(connection, "queue", name, "read")
    check_owner(engine, connection, queue)
    if queue.is_remote:
        return int(engine.ask(queue, "purge", errand))
    count = int(queue.purge())
    if engine.journal is not None:
        # Said now, whoever answers waits for it: what was purged does not come back.
        engine.journal.finish_turn()
    return count


def delete_queue(
    engine: Engine, connection: Connection, name: str, if_unused: bool, if_empty: bool
) -> int:
    """How many ready messages went with it."""
    errand = take_errand(connection)
    vhost: VHost = connection.vhost
    engine.check_access(connection, "queue", name, "configure")
    queue = vhost.queues.get(name)
    if queue is None:
        removal = memo_of(errand, Removal)
        return int(answer_to(errand, "delete") or 0) if removal is None else removal.count
    queue.check_there()
    check_owner(engine, connection, queue)
    if queue.is_remote:
        return int(engine.ask(queue, "delete", errand, (if_unused, if_empty)))
    if if_unused and queue.consumers:
        raise PreconditionFailed(f"{queue_text(name, vhost.name)} in use")
    if if_empty and (queue.ready or queue.buried):
        raise PreconditionFailed(f"{queue_text(name, vhost.name)} not empty")
    count = queue.ready
    drop_queue(engine, queue)
    if queue.dropping is not None:
        queue.dropping.memo = Removal(count)
        raise Postponed(errand=queue.dropping)
    return count


def drop_queue(engine: Engine, queue: AmqpQueue) -> None:
    """Have a queue removed: at once, or in a cluster when all nodes agree on it."""
    if engine.agreed is None:
        remove_queue(engine, queue)
    elif queue.dropping is None and not queue.deleted:
        queue.dropping = engine.agreed.remove_queue(queue)
        queue.dropping.when_done(partial(_drop_ended, queue))


def _drop_ended(queue: AmqpQueue) -> None:
    # Another object may stand for it by now.
    queue = queue.vhost.queues.get(queue.name, queue)
    if not queue.deleted:
        # It could not be agreed on: whoever wants it gone may try again.
        queue.dropping = None


def drop_unused(engine: Engine, queue: AmqpQueue, retry: Callable[[AmqpQueue], None]) -> None:
    """Have a queue removed that is not used here, unless it is another's or anew ours by then.

    A master that is cut off sees nobody use the queue, while they do elsewhere; what it wants is
    agreed on when it is back. `retry` is called if it came to nothing.
    """
    if engine.agreed is None:
        remove_queue(engine, queue)
        return
    if queue.dropping is not None or queue.deleted:
        return
    view = engine.views.get(queue.number)
    errand = queue.dropping = engine.agreed.remove_queue(queue, 0 if view is None else view.epoch)

    def served() -> Any:
        after = queue.vhost.queues.get(queue.name)
        return None if after is None or after.deleted or after.is_remote else after

    def ring(_now_ms: int) -> None:
        # Another object may stand for it: this one would not see that the queue is used.
        after = served()
        if after is not None:
            retry(after)

    def over() -> None:
        _drop_ended(queue)
        if served() is not None:
            engine.timers.at(engine.clock.now_ms() + LOOK_AGAIN_MS, ring)

    errand.when_done(over)


def _forget_copy(engine: Engine, number: int, _now_ms: int) -> None:
    engine.mirrors.queue_removed(number)


def remove_queue(engine: Engine, queue: AmqpQueue) -> None:
    """Take a queue away: its consumers are told, its bindings go, its messages with it."""
    if queue.deleted:
        return
    vhost = queue.vhost
    # Before anything else: that the queue is gone must be known before its messages go.
    with engine.metadata.together():
        engine.metadata.queue_removed(queue)
        queue.deleted = True
        _unbind(engine, vhost, queue)
    del vhost.queues[queue.name]
    vhost.mirror_links.pop(queue.name, None)
    vhost.pauses.pop(queue.name, None)
    engine.queues_at[queue.home] -= 1
    engine.numbered.pop(queue.number, None)
    vhost.forget_queue_route(queue.name)
    if queue.owner is not None:
        queue.owner.exclusive_queues.discard(queue.name)
    for timer in (queue.lease_timer, queue.expiry_timer):
        if timer is not None:
            timer.cancel()
    note_timeout(engine, queue)
    look_again(queue)
    engine.cancel_consumers(queue)
    if engine.cluster is not None:
        engine.cluster.queue_deleted(queue)
    if engine.mirrors is not None:
        engine.later(partial(_forget_copy, engine, queue.number))
    queue.configure()
    queue.purge()
    if not queue.is_remote:
        # What it has counted is counted at its home.
        engine.totals.retire_queue(queue)
        engine.totals.churn["queue_deleted"] += 1
    engine.emit("queue.deleted", vhost=vhost.name, name=queue.name)


def _unbind(engine: Engine, vhost: VHost, queue: AmqpQueue) -> None:
    for name in sorted(queue.sources):
        source = vhost.exchanges.get(name)
        if source is not None and source.unbind_destination("queue", queue.name):
            vhost.forget_routes(name)
            delete_if_abandoned(engine, vhost, source)


def note_consumer(engine: Engine, queue: AmqpQueue) -> None:
    """A queue gets a consumer: if it goes with the last of them, its other replicas must know."""
    queue.had_consumers = True
    if queue.declaration.auto_delete and engine.mirrors is not None:
        engine.mirrors.note_used(queue)


def touch(engine: Engine, queue: AmqpQueue) -> None:
    """The queue was used: its own expiry, if it has one, starts over."""
    if queue.is_remote:
        return
    queue.used_ms = engine.clock.now_ms()
    if queue.effective.expires_ms is not None and queue.lease_timer is None:
        _arm_lease(engine, queue)


def _arm_lease(engine: Engine, queue: AmqpQueue) -> None:
    expires_ms = queue.effective.expires_ms
    if expires_ms is None or queue.deleted:
        queue.lease_timer = None
        return

    def ring(now_ms: int) -> None:
        queue.lease_timer = None
        lease_ms = queue.effective.expires_ms
        if lease_ms is None or queue.deleted:
            return
        if queue.consumers or queue.buried:
            # What waits to be safe elsewhere would go with it.
            queue.used_ms = now_ms
        if now_ms - queue.used_ms >= lease_ms:
            drop_unused(engine, queue, partial(_look_at_lease, engine))
        else:
            _arm_lease(engine, queue)

    queue.lease_timer = engine.timers.at(queue.used_ms + expires_ms, ring)


def _look_at_lease(engine: Engine, queue: AmqpQueue) -> None:
    if queue.lease_timer is None and not queue.is_remote:
        _arm_lease(engine, queue)


def check_exclusive(queue: AmqpQueue, exclusive: bool) -> None:
    """Raises AccessRefused when somebody has, or wants, the queue alone and cannot."""
    queue.check_drained()
    if queue.exclusive_consumer is not None or (
        exclusive and (queue.consumers or queue.single_active)
    ):
        raise AccessRefused(f"{queue_text(queue.name, queue.vhost.name)} in exclusive use")
