"""Batches of messages that are published all at once, and once only.

A producer stages the parts of a batch, in any order and more than once if it must, and then commits
those that count. Each queue remembers the last batch of each producer, in its log: a batch that is
committed again, because the answer was lost, is published to no queue that has it. What one node
takes of a batch is one record of its log, so a crash leaves all of it or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.engine.batch_offer import offer_all
from warren.engine.publish import find_destinations, find_route
from warren.model.errors import AccessRefused, NotFound, PreconditionFailed, ResourceError
from warren.model.message import MARK_CARBON_COPY, MARK_DELAY, MARK_HEADERS, Message
from warren.queue.cursors import batch_operation
from warren.store.batches import begin_batch, end_batch, place_all, release_all
from warren.wire.tables import decode_table

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.model.ports import Route

#: What is staged and not committed is forgotten after this time.
STAGED_MS = 15 * 60 * 1000
#: No more than this is staged at a time, in bytes of messages.
STAGED_BYTES_MAX = 1 << 30
#: What a message takes beyond its header and body.
MESSAGE_BYTES = 160

#: (virtual host, producer, batch, part, attempt)
StageKey = tuple[str, str, int, str, str]


@dataclass(slots=True)
class Stage:
    """A part of a batch."""

    messages: list[Message] = field(default_factory=list)
    #: The numbers of the blocks they came in: one that is sent again is there already.
    blocks: set[int] = field(default_factory=set)
    size: int = 0
    at_ms: int = 0


@dataclass(slots=True)
class Outcome:
    """What became of a commit."""

    published: int
    #: Queues that had the batch already.
    duplicates: int
    refused: int
    unroutable: int


class Staging:
    """The parts of batches that this node holds."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.stages: dict[StageKey, Stage] = {}
        self.size = 0

    def stage(self, key: StageKey, block: int, messages: list[Message]) -> None:
        """Add a block of messages to a part. Raises ResourceError."""
        engine = self.engine
        self._expire()
        size = sum(m.header_len + m.body_len for m in messages) + MESSAGE_BYTES * len(messages)
        if self.size + size > STAGED_BYTES_MAX:
            raise ResourceError(
                f"{self.size} bytes of batches are staged and not committed; publish smaller "
                "batches, or wait"
            )
        stage = self.stages.setdefault(key, Stage())
        if block in stage.blocks:
            return
        stage.blocks.add(block)
        if engine.journal is not None:
            place_all(engine.journal, messages)
        stage.messages += messages
        stage.size += size
        stage.at_ms = engine.clock.now_ms()
        self.size += size

    def take(
        self, vhost: str, producer: str, batch: int, parts: list[tuple[str, str, int]]
    ) -> list[Message]:
        """All messages of the parts, in their order. Raises NotFound when one is not whole here."""
        found: list[Message] = []
        for part, attempt, count in parts:
            stage = self.stages.get((vhost, producer, batch, part, attempt))
            if count and (stage is None or len(stage.messages) != count):
                raise NotFound(
                    f"part '{part}' of batch {batch} is not staged here as it should be: the node "
                    "was restarted, or took too long; publish the batch again"
                )
            found += stage.messages if stage is not None else []
        return found

    def forget(self, vhost: str, producer: str, batch: int) -> None:
        """The batch is committed or given up: this and older ones are needed no more."""
        for key in [k for k in self.stages if k[:2] == (vhost, producer) and k[2] <= batch]:
            self._drop(key)

    def _drop(self, key: StageKey) -> None:
        stage = self.stages.pop(key)
        self.size -= stage.size
        if self.engine.journal is not None:
            release_all(self.engine.journal, stage.messages)

    def _expire(self) -> None:
        before_ms = self.engine.clock.now_ms() - STAGED_MS
        for key in [k for k, stage in self.stages.items() if stage.at_ms < before_ms]:
            self._drop(key)


class Router:
    """Where the messages of a batch go; addresses repeat, so each is looked up once."""

    def __init__(self, engine: Engine, actor: Any, vhost: VHost) -> None:
        self.engine = engine
        self.actor = actor
        self.vhost = vhost
        self._routes: dict[Any, Route] = {}
        self._allowed: set[bytes] = set()

    def queues(self, message: Message) -> tuple[AmqpQueue, ...]:
        """All queues of a message, wherever they are. Raises AccessRefused, NotFound."""
        route = self._routes.get(message.address)
        if route is None:
            route = self._routes[message.address] = self._find(message)
        if route.plain and not message.marks & (MARK_CARBON_COPY | MARK_DELAY):
            return route.queues
        keys = [message.routing_key]
        if message.marks & MARK_HEADERS:
            copies = decode_table(message.headers_table).get("CC")
            if isinstance(copies, str):
                keys.append(copies.encode())
        found, _ = find_destinations(self.engine, self.vhost, route.exchange, message, keys)
        return tuple(found)

    def _find(self, message: Message) -> Route:
        name = message.exchange.decode("utf-8", "surrogateescape")
        exchange = self.vhost.exchange(name)
        if message.exchange not in self._allowed:
            self.engine.check_access(self.actor, "exchange", name, "write")
            if exchange.internal:
                raise AccessRefused(f"cannot publish to internal exchange '{name}'")
            self._allowed.add(message.exchange)
        return find_route(self.vhost, exchange, message.routing_key)


def commit(
    engine: Engine, producer: str, batch: int, messages: list[Message], router: Router
) -> Outcome:
    """Publish a batch to the queues of this node that do not have it; one turn."""
    targets: list[tuple[AmqpQueue, ...]] = []
    fresh: dict[AmqpQueue, bool] = {}
    unroutable = 0
    for message in messages:
        queues = router.queues(message)
        if not queues:
            unroutable += 1
        for queue in queues:
            if queue not in fresh:
                if not queue.is_remote and (queue.mirror is not None or queue.awaits_view):
                    raise PreconditionFailed(
                        f"queue '{queue.name}' is mirrored: batches are not replicated yet. "
                        "Publish to it by AMQP, or to a queue that is not mirrored"
                    )
                fresh[queue] = not queue.is_remote and not has_batch(queue, producer, batch)
        if not all(fresh[queue] for queue in queues):
            queues = tuple(queue for queue in queues if fresh[queue])
        targets.append(queues)
    wanted = [queue for queue, is_fresh in fresh.items() if is_fresh]
    refused = 0
    if wanted:
        refused = _publish(engine, wanted, messages, targets, batch_operation(producer, batch))
    duplicates = sum(not queue.is_remote for queue in fresh) - len(wanted)
    return Outcome(sum(map(bool, targets)), duplicates, refused, unroutable)


def has_batch(queue: AmqpQueue, producer: str, batch: int) -> bool:
    """Whether the queue has had that batch of a producer, or a later one."""
    return queue.cursors is not None and queue.cursors.batches.get(producer, -1) >= batch


def _publish(
    engine: Engine,
    queues: list[AmqpQueue],
    messages: list[Message],
    targets: list[tuple[AmqpQueue, ...]],
    operation: bytes,
) -> int:
    journal, now_ms = engine.journal, engine.clock.now_ms()
    logged = [queue for queue in queues if journal is not None and queue.durable and queue.queue_id]
    for queue in queues:
        queue.in_batch = True
    try:
        if journal is not None:
            # What left the queues before is told before.
            journal.finish_turn()
            begin_batch(journal)
        refused = offer_all(messages, targets, journal, now_ms)
        for queue in queues:
            queue.apply_cursor(operation)
        if journal is not None:
            end_batch(journal, logged, operation)
    finally:
        for queue in queues:
            queue.in_batch = False
    for queue in queues:
        queue.run(now_ms)
    return refused
