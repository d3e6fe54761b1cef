"""Nodes whose queue moves from one to another, joined in memory, with a stand-in for its ring.

`Ring` is what the replicas have in common; `Double` is the copy on the master's node, which answers
publishes when they are committed and drops those that it has had. A ring has one master that can
commit: one that was replaced goes on as if nothing had happened until its node hears of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pair import Client, make_engine
from turns import end_turn

from warren.engine import moving
from warren.engine.amqp_queue import DESCRIBED_SLOTS, Described, describe
from warren.engine.engine import Engine
from warren.engine.homes import Homes
from warren.engine.queues import add_queue
from warren.gateway.memory_link import MemoryLink
from warren.gateway.open_queue import (
    OpenQueue,
    answer,
    answer_later,
    can_take,
    deliver,
    set_available,
)
from warren.gateway.stash import StashRoom
from warren.model.message import Message
from warren.model.policy import EffectiveArguments
from warren.model.queue_arguments import QueueDeclaration
from warren.session.channel import Consumer

QUEUE = "q"
NUMBER = 7


@dataclass(eq=False)
class Entry:
    """A message in the ring's log."""

    slot: int
    message: Message
    gateway: int
    order: int
    #: Who is told when it is committed: (publisher, tag).
    waiting: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Ring:
    """What survives the loss of any one master."""

    epoch: int = 0
    committed: list[Entry] = field(default_factory=list)
    #: What the next master has beyond that.
    tail: list[Entry] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    master: Double | None = None

    def turn_over(self, surviving: int) -> None:
        """The master is replaced; the first of what it has not committed are on the next one."""
        if self.master is not None:
            kept = self.master.pending[:surviving]
            self.tail = [Entry(e.slot, e.message, e.gateway, e.order) for e in kept]
        self.master = None
        self.epoch += 1


class Double(Described, OpenQueue):
    """The queue on its master's node."""

    __slots__ = (
        *DESCRIBED_SLOTS,
        "consumers",
        "down",
        "engine",
        "epoch_served",
        "exclusive_consumer",
        "last",
        "name",
        "number",
        "own_gateway",
        "own_sequence",
        "out",
        "pending",
        "pumping",
        "ready_slots",
        "ring",
    )

    single_active = False
    paused = False
    unacked = published = 0
    delivered = delivered_no_ack = got = got_no_ack = redelivered = acked = 0

    def set_paused(self, paused: bool) -> None:
        assert not paused, "nobody pauses queues here"

    def __init__(self, engine: Engine, ring: Ring) -> None:
        super().__init__()
        #: This node as the gateway of its own clients, and its newest publish.
        self.own_gateway: int = engine.cluster.own_gateway_id  # type: ignore[union-attr]
        self.own_sequence = 0
        engine.mirrors = SimpleNamespace(
            by_number={NUMBER: SimpleNamespace(log=self)}, note_used=lambda _queue: None
        )
        self.engine = engine
        self.ring = ring
        self.name = QUEUE
        self.number = NUMBER
        self.consumers: list[Any] = []
        self.exclusive_consumer = None
        self.out: set[int] = set()
        self.down = self.pumping = False
        vhost = engine.vhost("/")
        describe(
            self, vhost, QueueDeclaration(True, False, False, {}), None, EffectiveArguments(), ""
        )
        self.epoch_served = ring.epoch
        self.pending, ring.tail = ring.tail, []
        ring.master = self
        self.last: dict[int, int] = {}
        for entry in [*ring.committed, *self.pending]:
            self.last[entry.gateway] = max(self.last.get(entry.gateway, 0), entry.order)
        self.ready_slots = [e.slot for e in ring.committed if e.slot not in ring.removed]

    @property
    def can_commit(self) -> bool:
        return self.ring.master is self and not self.down

    # -- publishing --------------------------------------------------------------------------------

    def on_publish(self, message: Message, gateway: int, order: int) -> bool:
        assert not self.down, "a publish to a queue that is not here any more"
        waiting = answer_later(self.engine.turn)
        if gateway and order <= self.last.get(gateway, 0):
            for entry in self.pending:
                if (entry.gateway, entry.order) == (gateway, order):
                    if waiting is not None:
                        entry.waiting.append(waiting)
                    return True
            if waiting is not None:
                self.engine.turn.parts -= 1
            return True
        if not gateway:
            self.own_sequence += 1
            gateway, order = self.own_gateway, self.own_sequence
        self.last[gateway] = order
        slot = len(self.ring.committed) + len(self.pending) + 1
        entry = Entry(slot, message, gateway, order, [] if waiting is None else [waiting])
        self.pending.append(entry)
        return True

    def commit(self, count: int) -> None:
        if not self.can_commit:
            return
        done, self.pending = self.pending[:count], self.pending[count:]
        for entry in done:
            self.ring.committed.append(entry)
            self.ready_slots.append(entry.slot)
            waiting, entry.waiting = entry.waiting, []
            for publisher, tag in waiting:
                answer(publisher, tag, True)
        self.on_pump()

    def stand_down(self) -> None:
        """Another is master: settlements mean nothing any more."""
        self.down = True

    def take_unanswered(self) -> list[Any]:
        """(message, publisher, tag, order) of all that is waited for."""
        waiting = [
            (entry.message, publisher, tag, entry.order)
            for entry in self.pending
            for publisher, tag in entry.waiting
        ]
        self.pending = []
        return waiting

    # -- delivering --------------------------------------------------------------------------------

    def on_settle(self, how: str, slot: int) -> None:
        if self.down or self.ring.master is not self:
            return
        assert slot in self.out, f"slot {slot} is settled and not out"
        self.out.discard(slot)
        if how == "ack":
            if self.can_commit:
                self.ring.removed.add(slot)
        else:
            self.ready_slots.append(slot)
            self.ready_slots.sort()

    def adopt(self, slots: list[int]) -> list[int]:
        """Those that may be out, which they are from now on."""
        taken = [slot for slot in slots if slot in self.ready_slots]
        self.ready_slots = [slot for slot in self.ready_slots if slot not in taken]
        self.out.update(taken)
        return taken

    def on_ready(self, consumer: Any) -> None:
        set_available(consumer, can_take(consumer) and not self.down)

    def on_pump(self) -> int:
        if self.pumping or self.down or not self.can_commit:
            return 0
        self.pumping = True
        try:
            while self.ready_slots:
                takers = [c for c in self.consumers if can_take(c)]
                if not takers:
                    break
                slot = self.ready_slots.pop(0)
                self.out.add(slot)
                was = slot in self.ring.delivered
                self.ring.delivered.add(slot)
                message = self.ring.committed[slot - 1].message
                deliver(takers[slot % len(takers)], self, message, slot, was)
        finally:
            self.pumping = False
        return 0

    def add_consumer(self, consumer: Any, exclusive: bool = False) -> None:
        assert consumer not in self.consumers
        self.consumers.append(consumer)
        if exclusive:
            self.exclusive_consumer = consumer

    def remove_consumer(self, consumer: Any) -> int:
        self.consumers.remove(consumer)
        set_available(consumer, False)
        return 0

    # -- what the engine asks ----------------------------------------------------------------------

    def offer(self, message: Message, _now_ms: int) -> bool:
        return self.on_publish(message, 0, 0)

    def get(self, no_ack: bool, _now_ms: int) -> Any:
        if not self.ready_slots or not self.can_commit:
            return None
        slot = self.ready_slots.pop(0)
        was = slot in self.ring.delivered
        self.ring.delivered.add(slot)
        if no_ack:
            self.ring.removed.add(slot)
        else:
            self.out.add(slot)
        return self.ring.committed[slot - 1].message, slot, was

    @property
    def ready(self) -> int:
        return len(self.ready_slots)

    def run(self, _now_ms: int) -> None:
        self.on_pump()

    def govern(self, effective: EffectiveArguments, _now_ms: int) -> None:
        self.effective = effective

    def configure(self) -> None:
        """It has no limits."""

    def purge(self) -> int:
        return 0


class MovingNode:
    """A node with clients, which knows where the queue is."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        ring: Ring,
        home: str,
        stash_room: StashRoom | None = None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.ring = ring
        self.engine: Engine = make_engine(node_name=name)
        self.engine.turn.now_ms = self.engine.clock.now_ms()
        self.homes = Homes(self.engine, lambda _: 0)
        self.homes.stash_room = stash_room
        self.engine.cluster = self.homes
        self.clients: list[Client] = []
        vhost = self.engine.vhost("/")
        declaration = QueueDeclaration(True, False, False, {})
        queue: Any = add_queue(self.engine, vhost, QUEUE, declaration, None, home)
        queue.number = NUMBER

    @property
    def queue(self) -> Any:
        return self.engine.vhost("/").queues[QUEUE]

    def client(self, channels: int = 2) -> Client:
        client = Client(self.engine, channels=channels)
        self.clients.append(client)
        return client

    def view(self, master: str | None, planned: bool = False) -> None:
        """The agreement says where the queue is."""
        queue = self.queue
        if queue.is_remote:
            if master == self.name:
                double: Any = Double(self.engine, self.ring)
                moving.become_local(self.engine, double, planned)
                double.run(0)
            else:
                moving.rehome(self.engine, queue, master, planned)
        elif master != self.name:
            queue.stand_down()
            moving.become_remote(self.engine, queue, master, planned)

    def end_turn(self) -> None:
        self.engine.tick()
        end_turn(self.engine, self.clients)

    def attached(self) -> list[str]:
        """Who consumes at this node's copy: the names that consumers have with their clients."""
        if self.queue.is_remote:
            return []
        found = []
        for consumer in self.queue.consumers:
            channel = consumer.channel
            if isinstance(consumer, Consumer):
                channel = f"{channel.connection.name} ({channel.number})"
            found.append(f"{channel} {consumer.tag}")
        return sorted(found)


class Nodes:
    """Some nodes, the links between them, and who is alive."""

    def __init__(
        self, names: str = "abc", master: str = "a", stash_room: StashRoom | None = None
    ) -> None:
        self.ring = Ring()
        self.names = names
        self.nodes: dict[str, MovingNode] = {}
        self.links: dict[tuple[str, str], MemoryLink] = {}
        #: What each node has not heard of yet.
        self.news: dict[str, list[tuple[str | None, bool]]] = {name: [] for name in names}
        self.master: str | None = master
        for name in names:
            other = next(n for n in names if n != name)
            home = master if name != master else other
            self.nodes[name] = MovingNode(name, 1, self.ring, home, stash_room)
        self.tell_who_lives()
        for name in names:
            self.nodes[name].view(master)
        self.connect_all()

    def tell_who_lives(self) -> None:
        table = {n: (self.nodes[n].incarnation, True) for n in self.names}
        for name in self.names:
            self.nodes[name].homes.nodes_are(table)

    def connect(self, gateway: str, home: str) -> None:
        here, there = self.nodes[gateway], self.nodes[home]
        link = MemoryLink(gateway, here.incarnation, home, there.incarnation)
        self.links[gateway, home] = link
        there.homes.make_home_sink(link.accepted)
        here.homes.make_gateway_sink(link.dialled)

    def connect_all(self) -> None:
        for gateway in self.names:
            for home in self.names:
                if gateway != home and (gateway, home) not in self.links:
                    self.connect(gateway, home)

    def cut(self, gateway: str, home: str) -> None:
        link = self.links.pop((gateway, home), None)
        if link is not None:
            link.cut()

    def move(self, master: str | None, surviving: int = 10**6, planned: bool = False) -> None:
        """A new master is agreed on; the nodes hear of it one by one."""
        self.ring.turn_over(surviving)
        self.master = master
        for name in self.names:
            self.news[name].append((master, planned))

    def hear(self, name: str) -> None:
        """A node hears of the next change."""
        if self.news[name]:
            told, planned = self.news[name].pop(0)
            node = self.nodes[name]
            if told == name and self.news[name]:
                # It is not master any more: its copy never serves.
                return
            node.view(told, planned)
            node.end_turn()

    def commit(self, count: int = 10**6) -> None:
        if self.ring.master is not None:
            self.ring.master.commit(count)

    def step_time(self, ms: int = 400) -> None:
        for node in self.nodes.values():
            node.engine.clock.ms += ms  # type: ignore[attr-defined]

    def settle(self) -> None:
        """Until nothing moves any more; time goes on."""
        quiet = 0
        while quiet < 3:
            moved = 0
            for name in self.names:
                self.hear(name)
            self.commit()
            for node in self.nodes.values():
                node.end_turn()
            for (gateway, home), link in list(self.links.items()):
                moved += link.carry_out()
                self.nodes[home].end_turn()
                moved += link.carry_back()
                self.nodes[gateway].end_turn()
            if not moved:
                quiet += 1
                self.step_time()
            else:
                quiet = 0

    def end(self) -> None:
        for name in self.names:
            self.nodes[name].view(None)
            for client in self.nodes[name].clients:
                client.hang_up()
        for link in self.links.values():
            link.cut()
