"""Mirrored queues that get another home: what this node's clients have to do with them goes along.

On the node of its master a queue is an `AmqpQueue`, on all others a `RemoteAmqpQueue`. Whenever
that changes, one takes the other's place everywhere; publishes that the home before has not
answered go to the next one in order, consumers are attached there, and settlements of what the home
before has delivered mean nothing any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from warren.engine import remote_consume
from warren.engine.adopting import ask, begin, call_off, rebind, was_handed_over
from warren.engine.homes import absence_text
from warren.engine.queues import note_consumer, touch
from warren.engine.timeouts import note_timeout
from warren.gateway.record import GatewayRecord
from warren.session.channel import Consumer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.homes import Homes
    from warren.engine.remote_queue import RemoteAmqpQueue

#: What is known of a queue on every node and goes over from one that stands for it to the next.
KEPT = (
    "awaits_view",
    "born_mirrored",
    "declaration",
    "dropping",
    "effective",
    "had_consumers",
    "operator_policy",
    "owner",
    "policy",
    "sources",
)
#: An argument of basic.consume: the client wants to hear that the master has changed.
CANCEL_ON_FAILOVER = "x-cancel-on-ha-failover"


def rehome(
    engine: Engine, remote: Any, home: str | None, planned: bool = False, torn: bool = False
) -> None:
    """The queue's master is on another node; None: it has none at present.

    If it is on this one, all that is published waits until its copy here serves. `planned`: it was
    handed over, so that no client needs to hear of it. `torn`: a fork begins or ends, so that a
    slot of one home is not the same message at the other.
    """
    homes = _homes(engine)
    if remote.deleted:
        return
    if home is None:
        _lose_master(engine, remote)
        return
    before = remote.home
    if home == engine.settings.node_name:
        handed = planned or (not torn and was_handed_over(engine, remote.number, before))
        if handed and remote.following:
            # The home before lets go of it, perhaps before the copy here serves: what clients hold
            # stays with them, and what they settle meanwhile is settled here.
            remote.begin_adoption()
        _set_home(engine, remote, home)
        remote.follow(remote.gateway, holding=True)
        homes.queue_moved(remote, before)
        return
    gateway = homes.gateway_to(home)
    if remote.gateway is gateway and remote.following and not (remote.absent or remote.holding):
        return
    planned = planned or (not torn and was_handed_over(engine, remote.number, before))
    if planned and remote.following and remote.gateway is not gateway:
        _follow_planned(engine, remote, home)
        return
    # One that was about to be here, and is where it was: that home has let go of it all.
    is_back = remote.holding and remote.adopting
    consumers = _leave(engine, remote) if remote.gateway is not gateway or is_back else []
    _set_home(engine, remote, home)
    remote.pause_ms = 0
    remote.follow(gateway)
    homes.queue_moved(remote, before)
    _attach_there(engine, remote, consumers, planned)


def _follow_planned(engine: Engine, remote: RemoteAmqpQueue, home: str) -> None:
    """The master was handed over: what clients hold stays with them."""
    homes, before = _homes(engine), remote.home
    _detach_all(engine, remote)
    numbers = remote.take_along(homes.gateway_to(home))
    _set_home(engine, remote, home)
    remote.pause_ms = 0
    remote.follow(homes.gateway_to(home))
    homes.queue_moved(remote, before)
    ask(engine, homes, remote)
    for consumer, number in numbers:
        remote_consume.attach_again(engine, remote, consumer, number)


def _set_home(engine: Engine, remote: RemoteAmqpQueue, home: str) -> None:
    engine.queues_at[remote.home] -= 1
    engine.queues_at[home] += 1
    remote.home = home
    remote.absence = None


def _leave(engine: Engine, remote: RemoteAmqpQueue) -> list[Any]:
    """All consumers, which are attached nowhere any more."""
    _detach_all(engine, remote)
    consumers = remote.leave()
    remote_consume.disown(remote, consumers)
    return consumers


def _detach_all(engine: Engine, remote: RemoteAmqpQueue) -> None:
    """The home before, if it is still there, may be master again by now: it must not go on."""
    gateway: Any = remote.gateway
    if gateway.has_link:
        for consumer in remote.consumers:
            number = remote.number_of(consumer)
            remote_consume.detach_at(engine, gateway.home, remote, number)


def _lose_master(engine: Engine, remote: RemoteAmqpQueue) -> None:
    """As when the home of a plain queue is down: nothing is waited for."""
    remote.absence = absence_text(remote)
    for consumer in _leave(engine, remote):
        remote_consume.consumer_lost(engine, consumer)
    remote.refuse_all()
    _homes(engine).queue_moved(remote, remote.home)


def _attach_there(
    engine: Engine, remote: RemoteAmqpQueue, consumers: Iterable[Consumer], planned: bool
) -> None:
    for consumer in consumers:
        if _must_hear(consumer) and not planned:
            remote_consume.consumer_lost(engine, consumer)
        else:
            number = remote.enter(consumer)
            remote_consume.attach_again(engine, remote, consumer, number)


def _must_hear(consumer: Consumer) -> bool:
    return consumer.arguments.get(CANCEL_ON_FAILOVER) is True


def become_local(
    engine: Engine, queue: AmqpQueue, keep_deliveries: bool = False, torn: bool = False
) -> None:
    """This node's copy of a queue is its master, and serves; `torn`: a fork of it is."""
    homes = _homes(engine)
    vhost = queue.vhost
    remote: Any = vhost.queues.get(queue.name)
    if remote is queue or remote is None:
        return
    now_ms = engine.clock.now_ms()
    before: str = remote.gateway.home
    keep = keep_deliveries or (not torn and was_handed_over(engine, remote.number, before))
    if keep and hasattr(queue, "adopt"):
        _detach_all(engine, remote)
        slots = remote.slots_out()
        remote.hand_out_to(queue, set(slots) - set(queue.adopt(slots)))
        consumers = remote.leave(keep=True)
    else:
        keep = False
        consumers = _leave(engine, remote)
    waited_at = remote.home
    queue.number = remote.number
    queue.home = engine.settings.node_name
    queue.absence = None
    _take_place(engine, remote, queue)
    engine.numbered[queue.number] = queue
    homes.orders[queue.number] = remote.order, remote.attempt
    log = _log_of(engine, queue)
    if log is not None:
        # What clients publish here from now on is numbered behind what they published before.
        log.own_sequence = max(log.own_sequence, remote.order)
    remote.publish_to(queue, homes.own_gateway_id, now_ms, engine.journal)
    homes.queue_moved(queue, waited_at)
    staying = []
    for consumer in consumers:
        if _must_hear(consumer) and not keep:
            remote_consume.consumer_lost(engine, consumer)
        else:
            staying.append(consumer)
    touch(engine, queue)
    if keep:
        begin(engine, homes, queue, staying)
        return
    for consumer in staying:
        consumer.move_to(queue)
        note_consumer(engine, queue)
        queue.add_consumer(consumer, consumer.exclusive)


def become_remote(
    engine: Engine,
    queue: AmqpQueue,
    home: str | None,
    planned: bool = False,
    torn: bool = False,
) -> RemoteAmqpQueue:
    """This node is the master of a queue no more; its copy has stood down already.

    `torn`: it was a fork of it, or makes room for one.
    """
    homes = _homes(engine)
    consumers = [consumer for consumer in queue.consumers if isinstance(consumer, Consumer)]
    for consumer in consumers:
        queue.remove_consumer(consumer)
    consumers += call_off(homes, queue)
    remote: RemoteAmqpQueue = homes.make_remote(
        queue.name,
        queue.vhost,
        engine.effects,
        queue.declaration,
        queue.owner,
        queue.effective,
        home or queue.home,
    )
    remote.number = queue.number
    remote.continue_from(*homes.orders.pop(queue.number, (0, 0)))
    remote.absence = None
    _take_place(engine, queue, cast("Any", remote))
    engine.numbered.pop(queue.number, None)
    for timer in (queue.lease_timer, queue.expiry_timer):
        if timer is not None:
            timer.cancel()
    queue.lease_timer = queue.expiry_timer = None
    # What it has counted was counted here; what stands for it from now on begins with nothing.
    engine.totals.retire_queue(queue)
    homes.queue_left(queue.number)
    _take_unanswered(engine, queue, remote)
    here = engine.settings.node_name
    planned = planned or (not torn and was_handed_over(engine, queue.number, here))
    if home is None or not planned:
        remote_consume.disown(queue, consumers)
    for consumer in consumers:
        consumer.move_to(remote)
    if home is None:
        for consumer in consumers:
            remote_consume.consumer_lost(engine, consumer)
        _lose_master(engine, remote)
    elif planned:
        rebind(engine, queue, remote)
        remote.begin_adoption()
        remote.follow(remote.gateway)
        # What they hold is theirs there, too: they have their numbers first.
        numbers = [(consumer, remote.enter(consumer)) for consumer in consumers]
        ask(engine, homes, remote)
        for consumer, number in numbers:
            remote_consume.attach_again(engine, remote, consumer, number)
    else:
        # If its master is, or will be, on this node, all that is published waits until it serves.
        remote.follow(remote.gateway, holding=home == here)
        _attach_there(engine, remote, consumers, planned=False)
    return remote


def _take_unanswered(engine: Engine, queue: AmqpQueue, remote: RemoteAmqpQueue) -> None:
    """What this node's clients have published, and the ring has not answered, goes along."""
    log = _log_of(engine, queue)
    if log is None:
        return
    remote.continue_from(max(remote.order, log.own_sequence), remote.attempt)
    for message, publisher, tag, order in log.take_unanswered():
        # Those of other nodes have been told to send it elsewhere.
        if not isinstance(publisher, GatewayRecord):
            remote.hold_again(message, publisher, tag, order)


def _log_of(engine: Engine, queue: AmqpQueue) -> Any:
    """This node's copy of the queue's log, if it has one."""
    mirror = None if engine.mirrors is None else engine.mirrors.by_number.get(queue.number)
    return None if mirror is None else mirror.log


def forget_routes(queue: AmqpQueue) -> None:
    """Publishers look anew where the queue is, and whether it answers later."""
    for name in sorted(queue.sources):
        queue.vhost.forget_routes(name)
    queue.vhost.forget_queue_route(queue.name)


def _take_place(engine: Engine, before: AmqpQueue, after: AmqpQueue) -> None:
    """`after` stands for the queue from now on, wherever `before` did."""
    vhost = before.vhost
    for name in KEPT:
        setattr(after, name, getattr(before, name))
    # Who waits for the first view goes on when it is there, with whatever stands for the queue.
    after.view_errand = before.view_errand if before.awaits_view else None
    vhost.queues[before.name] = after
    engine.queues_at[before.home] -= 1
    engine.queues_at[after.home] += 1
    for name in sorted(before.sources):
        source = vhost.exchanges.get(name)
        if source is not None:
            source.redirect("queue", before.name, after)
    forget_routes(after)
    if engine.timed_queues.pop(before, None) is not None:
        # Deliveries that are out are due by what their channels find when they look.
        engine.timeout_looks.clear()
    note_timeout(engine, after)


def _homes(engine: Engine) -> Homes:
    assert engine.cluster is not None, "queues move between the nodes of a cluster only"
    return cast("Homes", engine.cluster)
