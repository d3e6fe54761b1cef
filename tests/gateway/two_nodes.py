"""A gateway with real sessions and a home with real queues and a real log, joined in memory.

Nothing happens by itself: `World.settle` carries frames and writes the log until all is quiet, and
the parts of it can be called one by one.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from pair import Client, make_engine
from turns import end_turn

from warren.engine.effects import Effects
from warren.engine.engine import Engine
from warren.gateway.gateway import Gateway
from warren.gateway.home import HomeEnd
from warren.gateway.memory_link import MemoryLink
from warren.gateway.messages import decode_message, encode_message
from warren.gateway.record import GatewayRecord
from warren.gateway.remote_queue import RemoteQueue
from warren.model.errand import Errand
from warren.model.message import Address, Message
from warren.model.ports import TurnClock
from warren.queue.queue import Queue
from warren.session.channel import Consumer
from warren.store.faulty_disk import FaultyDisk
from warren.store.journal import Journal
from warren.store.recovery import Recovery
from warren.store.stepped_log import SteppedLog
from warren.wire.content import make_message
from warren.wire.properties import encode_properties

CONSUME, CANCEL, GET = 1, 2, 3
_nodes: list[GatewayNode] = []


def message(body: bytes = b"", key: bytes = b"q", **properties: Any) -> Message:
    return make_message(Address(b"", key), encode_properties(properties, len(body)), body)


class Home:
    """A node with queues 1, 2, ... and, if it is durable, a log on a disk in memory."""

    def __init__(self, queues: int = 1, durable: bool = False) -> None:
        self.count = queues
        self.durable = durable
        self.disk = FaultyDisk()
        self.incarnation = 0
        self.journal: Journal | None = None
        self.start()

    def start(self) -> None:
        """The first time, or after a crash: what is on the disk is all there is."""
        self.incarnation += 1
        self.end()
        self.effects = Effects()
        self.turn = TurnClock()
        self.turn.now_ms = 1_000_000
        self.queues: dict[int, Queue] = {}
        self.records: dict[tuple[str, int], GatewayRecord] = {}
        self.ends: list[HomeEnd] = []
        self.gone: list[Any] = []
        recovery = Recovery(self.disk, 0, 7)
        if self.durable:
            self.journal = recovery.journal
        for number in range(1, self.count + 1):
            queue = self.queues[number] = Queue(f"q{number}", self.effects)
            queue.durable = self.durable
            if self.journal is not None:
                queue.queue_id = number
                self.journal.queues[number] = queue
                queue.attach(self.journal)
            queue.configure(dead_letters=True)
        if self.journal is not None:
            recovery.run(lambda _: None, lambda _: None)
            self.log = SteppedLog(
                self.disk, recovery.next_sequence, 65536, recovery.last_segment, self.journal.salt
            )
            self.journal.start(self.log)

    def end(self) -> None:
        """Nobody waits for its log any longer."""
        if self.journal is not None:
            self.journal.confirming.clear()
            self.journal = None

    def accept(self, link: MemoryLink) -> HomeEnd:
        key = (link.accepted.peer, link.accepted.incarnation)
        record = self.records.setdefault(key, GatewayRecord())
        end = HomeEnd(link.accepted, record, self.queues, self.turn, self.journal)
        end.on_request = self.answer
        end.on_consumer_gone = self.gone.append
        self.ends.append(end)
        return end

    def answer(self, end: HomeEnd, request: int, verb: int, payload: bytes) -> None:
        if verb == CONSUME:
            asked = json.loads(payload)
            end.add_consumer(asked.pop("queue"), asked.pop("number"), **asked)
            end.reply(request, True, b"")
        elif verb == CANCEL:
            found = end.remove_consumer(json.loads(payload))
            end.reply(request, found is not None, b"")
        elif verb == GET:
            number, no_ack = json.loads(payload)
            found = self.queues[number].get(no_ack, self.turn.now_ms)
            if not found:
                end.reply(request, False, b"")
                return
            got, slot, redelivered = found
            if not no_ack:
                end.lend(number, slot)
            head = json.dumps([slot, redelivered]).encode()
            end.reply(request, True, head + b"\n" + encode_message(got))
        else:
            end.reply(request, True, payload)

    def end_turn(self) -> None:
        self.turn.end()
        if self.journal is not None:
            self.journal.finish_turn()

    def sync(self) -> bool:
        """Writes the log and tells those who wait; whether that was anything."""
        if self.journal is None or self.journal.persisted == self.journal.appended:
            return False
        self.journal.finish_turn()
        self.log.step()
        self.journal.moved_on(self.turn.now_ms)
        return True


class FarQueue(RemoteQueue):
    """What the engine's queue adds, as far as these tests need it; the engine's ways around the
    home (`engine/remote_consume.py`) are not taken."""

    is_remote = awaits_view = False
    view_errand = None

    def check_there(self) -> None:
        """It is."""

    def __init__(self, gateway: Gateway, number: int, name: str, vhost: Any) -> None:
        super().__init__(gateway, number)
        self.name = name
        self.vhost = vhost
        self.effective = SimpleNamespace(expires_ms=None)
        self.declaration = SimpleNamespace(auto_delete=False, exclusive=False)
        self.exclusive_consumer = self.owner = None
        self.sources: set[str] = set()
        self.single_active = self.deleted = self.had_consumers = False
        self.used_ms = 0

    def attach(self, consumer: Consumer, number: int) -> Errand:
        asked = {
            "queue": self.number,
            "number": number,
            "no_ack": consumer.no_ack,
            "exclusive": consumer.exclusive,
            "priority": consumer.priority,
            "prefetch": consumer.prefetch,
            "tag": consumer.tag,
        }
        return self.gateway.request(CONSUME, json.dumps(asked).encode())  # type: ignore[attr-defined]

    def add_consumer(self, consumer: Any, exclusive: bool = False, number: int = 0) -> int:
        number = number or self.next_number()
        self.attach(consumer, number)
        return super().add_consumer(consumer, exclusive, number)

    def remove_consumer(self, consumer: Any) -> int:
        number = super().remove_consumer(consumer)
        self.gateway.request(CANCEL, json.dumps(number).encode())  # type: ignore[attr-defined]
        return number


class GatewayNode:
    """A node with clients, whose queues q1, q2, ... are at the home."""

    def __init__(self, home: Home, name: str = "gateway") -> None:
        self.home = home
        self.name = name
        self.engine: Engine = make_engine()
        self.engine.turn.now_ms = self.engine.clock.now_ms()
        self.gateway = Gateway(self.engine.turn, self.engine.effects, "home")
        self.gateway.on_attached = self.attached
        self.lost: list[Any] = []
        self.gateway.on_consumer_lost = lambda queue, consumer: self.lost.append(consumer)
        vhost = self.engine.vhost("/")
        self.queues = [
            FarQueue(self.gateway, number, f"q{number}", vhost)
            for number in range(1, home.count + 1)
        ]
        for queue in self.queues:
            vhost.queues[queue.name] = queue  # type: ignore[assignment]
        self.link: MemoryLink | None = None
        self.clients: list[Client] = []
        _nodes.append(self)
        self.connect()

    def connect(self, home_incarnation: int | None = None) -> MemoryLink:
        link = MemoryLink(self.name, 1, "home", home_incarnation or self.home.incarnation)
        self.link = link
        self.home.accept(link)
        self.gateway.attach_link(link.dialled)
        return link

    def attached(self, gateway: Gateway) -> None:
        for queue, consumer, number in gateway.attached():
            queue.attach(consumer, number)
            queue.grant(consumer)

    def client(self, channels: int = 1) -> Client:
        client = Client(self.engine, channels=channels)
        self.clients.append(client)
        return client

    def end_turn(self) -> None:
        end_turn(self.engine, self.clients)

    def get(self, number: int, no_ack: bool = False) -> tuple[Message, int, bool] | None:
        """basic.get as an engine does it: (message, what it is settled by, redelivered)."""
        errand = self.gateway.request(GET, json.dumps([number, no_ack]).encode())
        settle(self)
        ok, payload = errand.result()
        if not ok:
            return None
        head, _, data = payload.partition(b"\n")
        slot, redelivered = json.loads(head)
        queue = self.queues[number - 1]
        return decode_message(data), 0 if no_ack else queue.note_got(slot), redelivered


def settle(*nodes: GatewayNode) -> None:
    """Until nothing moves any more."""
    moved = True
    while moved:
        moved = False
        for node in nodes:
            node.end_turn()
            if node.link is not None:
                moved |= node.link.carry_out() > 0
                node.home.end_turn()
                moved |= node.home.sync()
                moved |= node.link.carry_back() > 0
            node.end_turn()


def end_all() -> None:
    """All clients hang up, and no publish is waited for any longer."""
    for node in _nodes:
        node.gateway.on_consumer_lost = None
        node.gateway.home_gone()
        for client in node.clients:
            client.hang_up()
        node.home.end()
    _nodes.clear()


def pair(queues: int = 1, durable: bool = False) -> tuple[Home, GatewayNode]:
    home = Home(queues, durable)
    return home, GatewayNode(home)
