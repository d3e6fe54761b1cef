"""A master that is handed over: what clients hold stays with them, and nothing is delivered again.

Every node tells the new home what its clients hold. Until all have, or a moment has passed, nobody
is given anything there; then it goes on with the rest, as after any other change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from warren.engine import remote_consume
from warren.engine.queues import note_consumer
from warren.gateway.errors import LinkLostError, MovedError
from warren.model.errand import Errand

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.homes import Homes
    from warren.session.channel import Consumer

#: Nodes that have not said by then what their clients hold are not waited for any longer.
ADOPTION_MS = 2000
#: A home that is none yet is asked again after so long.
RETRY_MS = 10


@dataclass(eq=False, slots=True)
class Adoption:
    """The new home waits for what other nodes hold."""

    queue: Any
    waiting: set[str]
    #: Consumers of this node's clients, to be attached when it is over.
    consumers: list[Consumer] = field(default_factory=list)
    errand: Errand = field(default_factory=Errand)


def was_handed_over(engine: Engine, number: int, before: str) -> bool:
    """Whether the master that was is still one of those that have everything."""
    view = engine.views.get(number)
    return view is not None and before in view.in_sync and before != view.master


def begin(engine: Engine, homes: Homes, queue: Any, consumers: list[Consumer]) -> None:
    """The queue is on this node now; whoever wants something of it waits a moment."""
    waiting = set(homes.living_nodes()) - {engine.settings.node_name}
    adoption = homes.adoptions[queue.number] = Adoption(queue, waiting, consumers)
    if not waiting:
        finish(engine, homes, adoption)
        return
    queue.view_errand = adoption.errand

    def ring(_now_ms: int) -> None:
        finish(engine, homes, adoption)

    engine.timers.at(engine.clock.now_ms() + ADOPTION_MS, ring)


def heard_from(engine: Engine, homes: Homes, number: int, node: str) -> None:
    """A node has said what its clients hold, or it is gone."""
    adoption = homes.adoptions.get(number)
    if adoption is not None:
        adoption.waiting.discard(node)
        if not adoption.waiting:
            finish(engine, homes, adoption)


def finish(engine: Engine, homes: Homes, adoption: Adoption) -> None:
    """What nobody has claimed may be given to others."""
    queue = adoption.queue
    if homes.adoptions.get(queue.number) is not adoption:
        return
    del homes.adoptions[queue.number]
    if queue.view_errand is adoption.errand:
        queue.view_errand = None
    for consumer in adoption.consumers:
        # Not sooner: whoever settles something would stand in line already.
        consumer.move_to(queue)
        note_consumer(engine, queue)
        queue.add_consumer(consumer, consumer.exclusive)
    adoption.errand.finish()
    queue.run(engine.clock.now_ms())


def call_off(homes: Homes, queue: Any) -> list[Consumer]:
    """The queue has left this node before that: the consumers that wait."""
    adoption = homes.adoptions.pop(queue.number, None)
    if adoption is None:
        return []
    adoption.errand.finish()
    return adoption.consumers


def ask(engine: Engine, homes: Homes, remote: Any) -> None:
    """Tell the new home what this node's clients hold."""
    held = remote.owners_out(_holders(remote))
    slots = [slot for slot, _ in held]
    place = (remote.vhost.name, remote.name)
    owners = [owner for _, owner in held]
    request = homes.request(remote.home, "adopt", (*place, slots, owners), once=True)
    standing = remote.standing()

    def again(_now_ms: int) -> None:
        if remote.adopting and not remote.deleted and remote.standing() == standing:
            ask(engine, homes, remote)

    def answered() -> None:
        try:
            lost = set(request.result())
        except (LinkLostError, MovedError):
            if remote.standing() != standing:
                return
            engine.timers.at(engine.clock.now_ms() + RETRY_MS, again)
            return
        except Exception:  # noqa: BLE001 - whatever it is, nothing of it is ours any more
            lost = set(slots)
        if remote.standing() != standing:
            # The queue has moved on; what the home took over nevertheless is its own again.
            gateway, session, _ = standing
            held = set(remote.slots_out()) if remote.gateway is gateway else set()
            gateway.give_back_slots(session, remote.number, sorted(set(slots) - lost - held))
            return
        remote.adopted(lost)
        if lost and not remote.slots_out():
            remote_consume.disown(remote, remote.consumers)
        remote.run(engine.clock.now_ms())

    request.when_done(answered)


def _holders(remote: Any) -> dict[int, Any]:
    """Which consumer has which delivery: it takes up room there, as it did at the home before."""
    channels = dict.fromkeys(consumer.channel for consumer in remote.consumers)
    return {
        delivery: consumer
        for channel in channels
        for delivery, consumer in channel.deliveries.held_of(remote)
    }


def rebind(engine: Engine, queue: Any, remote: Any) -> None:
    """What this node's clients hold of a queue that was here is the new home's."""
    for connection in list(engine.connections):
        for channel in connection.open_channels():
            channel.deliveries.rebind(queue, remote, remote.note_got)
            # What came before the queue was here is settled by way of what stood for it then.
            held = {entry[1] for entry in channel.deliveries.outstanding()}
            for before in held:
                if getattr(before, "heir", None) is queue:
                    channel.deliveries.rebind(before, remote, partial(_renumber, before, remote))


def _renumber(before: Any, remote: Any, delivery: int) -> int:
    slot = before.take_slot(delivery)
    return int(remote.note_stale() if slot is None else remote.note_got(slot))
