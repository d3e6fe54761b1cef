"""Readers by position, those who would have their cursor, and producers of batches.

They act as the API does for them: on the node that serves the queue, and what they are told counts
when it is on its disk, or on those of all replicas in sync.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sim.broker_ledger import Publish, name_of
from warren.engine import batches, cursors
from warren.model.errors import AmqpError, NotFound, ResourceLocked
from warren.model.message import Address
from warren.queue.blocks import BlockBuilder
from warren.spark.blocks import Block
from warren.wire.content import make_message

if TYPE_CHECKING:
    from sim.broker_cluster import BrokerCluster
    from sim.broker_node import BrokerNode

#: Long enough for any failover to be over.
AGAIN_US = 30_000
Row = tuple[Any, ...]


class Served:
    """Somebody who needs the node that serves a queue."""

    def __init__(self, cluster: BrokerCluster, name: str, queue: str) -> None:
        self.cluster, self.world, self.name, self.queue = cluster, cluster.world, name, queue
        self.ledger = cluster.ledger
        self.is_stopped = False
        self.every_us = 10_000

    def start(self) -> None:
        self.world.after(self.world.random.randint(0, AGAIN_US), self._step)

    def stop(self) -> None:
        self.is_stopped = True

    def close(self) -> None: ...

    def _step(self) -> None:
        if self.is_over:
            return
        dice = self.world.random
        self.world.after(dice.randint(self.every_us // 2, self.every_us * 3 // 2), self._step)
        found = self.home()
        if found is not None:
            node, queue = found
            node.in_turn(lambda: self.act(node, queue))

    @property
    def is_over(self) -> bool:
        return self.is_stopped

    def act(self, node: BrokerNode, queue: Any) -> None:
        raise NotImplementedError

    def home(self) -> tuple[BrokerNode, Any] | None:
        """Who serves the queue, or thinks so: one that was cut off may, too."""
        nodes = list(self.cluster.ready)
        self.world.random.shuffle(nodes)
        for node in nodes:
            vhost = node.engine.vhosts.get("/")
            queue = None if vhost is None else vhost.queues.get(self.queue)
            if queue is None or queue.is_remote or queue.awaits_view or node.is_stopping:
                continue
            if queue.mirror is None or queue.mirror.acts:
                return node, queue
        return None

    def when_settled(self, node: BrokerNode, queue: Any, told: Callable[[], None]) -> None:
        """`told` when what was just done is where it is to be, if the queue is still the one."""
        boot = node.boot

        def settled() -> None:
            now = node.engine.vhosts["/"].queues.get(self.queue)
            serves = queue.mirror is None or queue.mirror.acts
            if node.boot == boot and node.is_up and now is queue and serves:
                told()

        if queue.mirror is not None:
            queue.mirror.when_committed(queue.operations, settled)
        else:
            journal = node.store.journal
            journal.when_persisted(journal.appended, node.in_life(settled))


@dataclass
class Shown:
    """All that was ever shown of a queue to its reader, by position; None: there is nothing."""

    rows: dict[int, Row | None] = field(default_factory=dict)
    #: Where each message was.
    places: dict[bytes, int] = field(default_factory=dict)


class Reader(Served):
    """Opens a cursor, reads on and again, trims, and is told the truth about all of it."""

    def __init__(self, *arguments: Any, mode: str, beginning: str) -> None:
        super().__init__(*arguments)
        self.mode, self.beginning = mode, beginning
        self.cursor = f"c.{self.name}"
        #: What it was told when it was first opened: token, start, incarnation; and when.
        self.told: tuple[str, int, str] | None = None
        self.told_us = 0
        #: All before it was trimmed, as was told; and the furthest that was asked for.
        self.trimmed = self.asked_trim = 0
        self.read_to = 0
        #: The epoch of the master that has shown the last of that.
        self.read_in = 0
        self.shown = Shown()

    def act(self, node: BrokerNode, queue: Any) -> None:
        dice = self.world.random
        try:
            if self.told is None or dice.random() < 0.1:
                self._open(node, queue)
            elif dice.random() < 0.25:
                self._trim(node, queue)
            else:
                self._read_some(node, queue)
        except NotFound as error:
            if self.told is not None:
                self.ledger.fail(f"{node.name} has lost the cursor of {self.name}: {error}")
        except ResourceLocked as error:
            self.ledger.fail(f"{self.name} does not get its own cursor: {error}")
        except AmqpError as error:
            # Consumers are there that it cannot drain beside, or something else that passes.
            self.world.note(f"{self.name} is refused: {error}")

    # -- the cursor

    def _open(self, node: BrokerNode, queue: Any) -> None:
        token = self.told[0] if self.told is not None else ""
        cursor = cursors.open_cursor(
            node.engine, queue, self.cursor, self.mode, self.beginning, node.now_ms,
            token=token, owner=self.name, expires_ms=0,
        )  # fmt: skip
        if cursor is not None:
            self.when_settled(node, queue, lambda: self._opened(node, queue))

    def _opened(self, node: BrokerNode, queue: Any) -> None:
        cursor = queue.cursors.by_name.get(self.cursor)
        if cursor is None:
            self.ledger.fail(f"{node.name} has lost the cursor of {self.name}")
        told = (cursor.token, cursor.start, queue.cursors.incarnation)
        if self.told is None:
            self.world.note(f"{self.name} has its cursor at {cursor.start} from {node.name}")
            self.told, self.told_us = told, self.world.now_us
            self.trimmed = self.asked_trim = self.read_to = cursor.start
        if told != self.told:
            self.ledger.fail(f"{self.name} was told {self.told}, and is told {told}")
        if not self.trimmed <= cursor.position <= self.asked_trim:
            text = f"{cursor.position}, not {self.trimmed} to {self.asked_trim}"
            self.ledger.fail(f"{self.name} is at {text}")
        self.ledger.counts["opened"] += 1

    def _trim(self, node: BrokerNode, queue: Any) -> None:
        assert self.told is not None
        cursor = cursors.use(node.engine, queue, self.cursor, self.told[0], self.name)
        upto = self.world.random.randint(cursor.position, max(cursor.position, self.read_to))
        if upto > queue.readable_end:
            self._behind(node, queue)
            return
        self.asked_trim = max(self.asked_trim, upto)
        cursors.trim_some(queue, cursor, upto)
        self.when_settled(node, queue, lambda: self._trimmed(upto))

    def _trimmed(self, upto: int) -> None:
        self.trimmed = max(self.trimmed, upto)
        self.ledger.counts["trimmed"] += 1
        if self.mode == "drain":
            self.settle_to(self.trimmed)

    def settle_to(self, end: int) -> None:
        """What was drained has left."""
        for name, position in self.shown.places.items():
            if position < end:
                self.ledger.published[name].is_settled = True

    # -- ranges

    def _read_some(self, node: BrokerNode, queue: Any) -> None:
        dice = self.world.random
        end = queue.readable_end
        if end < self.read_to:
            self._behind(node, queue)
            return
        first = self.read_to
        if dice.random() < 0.5:
            # Something of it again, wherever there is a replica that can.
            first = dice.randint(self.asked_trim, max(self.asked_trim, self.read_to))
        last = min(end, first + dice.choice((1, 20, 500)))
        self.read(node, queue, first, last)
        if first <= self.read_to <= last:
            self.read_to, self.read_in = last, queue.epoch
            if last == end:
                self.check_whole()
        for other in self.cluster.ready:
            mirror = cursors.readable_replica(other.engine, queue.number, last)
            if mirror is not None and dice.random() < 0.5:
                known = mirror.queue.cursors
                if known is not None and self.cursor in known.by_name:
                    self.ledger.counts["read at a mirror"] += 1
                    self.read(other, mirror.queue, first, last)

    def _behind(self, node: BrokerNode, queue: Any) -> None:
        """Only a master that was replaced, and cannot have heard of it, ends before what was shown.

        A node that is cut off goes on with what it has: it cannot commit anything that another in
        sync would have to have, but the next master commits more, and shows it to who asks there.
        (12000137: n3 was in epoch 21, and n1 had committed and shown three more in epoch 24.)
        """
        end = queue.readable_end
        if queue.epoch >= self.read_in:
            self.ledger.fail(
                f"{self.queue} was read to {self.read_to} in epoch {self.read_in}, and {node.name} "
                f"ends it at {end} in epoch {queue.epoch}"
            )
        self.ledger.counts["asked a deposed master"] += 1

    def read(self, node: BrokerNode, queue: Any, first: int, last: int) -> None:
        """A range, and whether it is the same as ever."""
        known, shown = queue.cursors, self.shown
        cursor = known.by_name[self.cursor]
        if first < cursor.position:
            return
        builder = BlockBuilder(first, cursor, list(known.times), True, True)
        while builder.next < last:
            before = builder.next
            builder.fill(queue, last, 256, 1 << 30)
            if builder.next == before:
                self.ledger.fail(f"{node.name} ends {self.queue} at {before}, not {last}")
        block = Block(bytes(builder.finish(epoch=0, incarnation="", node="")))
        if block.head["missing"]:
            self.ledger.fail(f"{node.name} misses something of {self.queue} {first} to {last}")
        columns = (
            ("seq", pa.int64()), ("enqueued_at", pa.int64()), ("routing_key", pa.string()),
            ("redelivered_hint", pa.bool_()), ("delivery_mode", pa.int8()), ("body", pa.binary()),
        )  # fmt: skip
        rows = zip(*(block.column(name, kind).to_pylist() for name, kind in columns), strict=True)
        found = {row[0]: tuple(row) for row in rows}
        self.ledger.counts["read"] += len(found)
        for position in range(first, last):
            row = found.get(position)
            if shown.rows.setdefault(position, row) != row:
                was = shown.rows[position]
                self.ledger.fail(
                    f"{node.name} shows {row} at {position} of {self.queue}, not {was}"
                )
            if row is not None:
                name = name_of(row[-1])
                if shown.places.setdefault(name, position) != position:
                    self.ledger.fail(f"{name!r} is at {shown.places[name]} and at {position}")
                if name not in self.ledger.published:
                    self.ledger.fail(f"nobody has published {name!r}")

    def check_whole(self) -> None:
        """All that could be read now was: of every batch all of it, or nothing.

        What consumers had let go of before there was the cursor is kept for nobody: it begins at
        the oldest message that is there, and behind that one some may have left
        (`cursors:13000235`).
        """
        for names in self.ledger.batches.get(self.queue, []):  # type: ignore[attr-defined]
            there = [name for name in names if name in self.shown.places]
            due = [name for name in names if not self._left_before(name)]
            if there and not set(due) <= set(there) and not self._began_within(names):
                self.ledger.fail(f"{len(there)} of {len(names)} of a batch: {there[0]!r}")

    def _left_before(self, name: bytes) -> bool:
        """A consumer had it, and let go of it before the cursor was there."""
        return 0 < self.ledger.published[name].settled_us < self.told_us

    def _began_within(self, names: list[bytes]) -> bool:
        """The cursor was opened behind a part of it."""
        places = [self.shown.places[name] for name in names if name in self.shown.places]
        return self.told is not None and min(places) - len(names) < self.told[1]


class Rival(Served):
    """Knows the token of another's cursor, and must not get it while that one uses it."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader.cluster, f"rival.{reader.name}", reader.queue)
        self.reader = reader
        self.every_us = 40_000

    def act(self, node: BrokerNode, queue: Any) -> None:
        if self.reader.told is None:
            return
        try:
            cursors.use(node.engine, queue, self.reader.cursor, self.reader.told[0], self.name)
        except AmqpError:
            self.ledger.counts["rivals"] += 1
            return
        # One that was deposed and has not heard of it may let it in, and nobody else hears of that.
        self.when_settled(node, queue, lambda: self.ledger.fail(f"{self.name} is let in"))


class Producer(Served):
    """Has batches committed, one after the other, each until it is told that it is."""

    def __init__(
        self, *arguments: Any, every_us: int, strike: Callable[[BrokerNode], None]
    ) -> None:
        super().__init__(*arguments)
        self.every_us, self.strike = every_us, strike
        self.number = self.count = 0
        self.batch: list[Publish] = []
        self.address = Address(b"", self.queue.encode())

    @property
    def asked(self) -> str:
        return f"batch {self.number}" if self.batch else ""

    @property
    def is_over(self) -> bool:
        # What was begun is seen through.
        return self.is_stopped and not self.batch

    def act(self, node: BrokerNode, queue: Any) -> None:
        if not self.batch:
            self._begin()
        number = self.number
        messages = [self._message(it) for it in self.batch]
        router: Any = SimpleNamespace(queues=lambda _message: (queue,))
        try:
            batches.commit(node.engine, self.name, number, messages, router)
        except AmqpError as error:
            self.world.note(f"{self.name} is refused: {error}")
            return
        self.when_settled(node, queue, lambda: self._done(queue, number))
        if not self.is_stopped and self.world.random.random() < 0.1:
            # Some of it has left by then.
            self.world.note(f"aimed at {self.name}: {node.name}")
            self.world.after(self.world.random.randint(0, 5_000), lambda: self.strike(node))

    def _begin(self) -> None:
        dice = self.world.random
        self.number += 1
        # The long ones are more than one frame of the ring.
        count, ballast = dice.choice(((1, 0), (3, 1500), (20, 20), (20, 200), (400, 1500)))
        for _ in range(count):
            self.count += 1
            name = f"{self.name}/1/{self.count}".encode()
            body = name + (b" " + bytes(ballast) if ballast else b"")
            self.batch.append(self.ledger.sent(body, self.queue, True))
        names = [it.name for it in self.batch]
        self.ledger.batches.setdefault(self.queue, []).append(names)  # type: ignore[attr-defined]

    def _message(self, it: Publish) -> Any:
        head = (60).to_bytes(2, "big") + bytes(2) + len(it.body).to_bytes(8, "big")
        return make_message(self.address, head + (1 << 12).to_bytes(2, "big") + b"\x02", it.body)

    def _done(self, queue: Any, number: int) -> None:
        if number != self.number or not self.batch:
            return
        if not batches.has_batch(queue, self.name, number):
            return
        self.world.note(f"{self.name} has its batch {number}")
        done, self.batch = self.batch, []
        for it in done:
            self.ledger.answered(it, "confirmed")
        self.ledger.counts["batches"] += 1
