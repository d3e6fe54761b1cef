"""Batches of messages that are published all at once, and once only.

A producer stages the parts of a batch, in any order and more than once if it must, and then commits
those that count. Each queue remembers the last batch of each producer, in its log: a batch that is
committed again, because the answer was lost, is published to no queue that has it. What one node
takes of a batch is one record of its log, so a crash leaves all of it or nothing.

Into a mirrored queue a batch goes between two operations of its ring, and is seen when all replicas
in sync have the second (`whole_batches.pyx`). Its parts are staged on all of them: whoever is the
master when the batch is committed has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.engine.batch_offer import copy_of, offer_all
from warren.engine.publish import find_destinations, find_route
from warren.model.errors import AccessRefused, AmqpError, NotFound, ResourceError
from warren.model.message import MARK_CARBON_COPY, MARK_DELAY, MARK_HEADERS, Message
from warren.queue.cursors import PRODUCERS_MAX, batch_operation
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
class Block:
    """What came in one request."""

    messages: list[Message]
    #: Those that were written to the log, for queues that have no mirrors.
    placed: list[Message]
    size: int


@dataclass(slots=True)
class Stage:
    """A part of a batch: its blocks by number. One that is sent again takes the other's place."""

    blocks: dict[int, Block] = field(default_factory=dict)
    at_ms: int = 0

    @property
    def messages(self) -> list[Message]:
        """All of them, in order."""
        return [message for _, block in sorted(self.blocks.items()) for message in block.messages]


@dataclass(slots=True)
class Outcome:
    """What became of a commit."""

    published: int
    #: Queues that had the batch already.
    duplicates: int
    refused: int
    unroutable: int
    #: Queues of this node, and by name those of others with their homes.
    taken: list[AmqpQueue] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)


class Staging:
    """The parts of batches that this node holds."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.stages: dict[StageKey, Stage] = {}
        self.size = 0
        #: Batches that are in a mirrored queue and not committed there: (queue, producer).
        self.committing: dict[tuple[AmqpQueue, str], int] = {}
        #: The last batch of a producer, and what was said of it: who asks again is told the same.
        self.told: dict[tuple[str, str], tuple[int, Any]] = {}

    def stage(
        self, key: StageKey, number: int, messages: list[Message], plain: list[Message]
    ) -> None:
        """Add a block of messages to a part; `plain` of them have a queue here without mirrors.

        Raises ResourceError.
        """
        engine = self.engine
        self._expire()
        size = sum(m.header_len + m.body_len for m in messages) + MESSAGE_BYTES * len(messages)
        if self.size + size > STAGED_BYTES_MAX:
            raise ResourceError(
                f"{self.size} bytes of batches are staged and not committed; publish smaller "
                "batches, or wait"
            )
        stage = self.stages.setdefault(key, Stage())
        if number in stage.blocks:
            self._release(stage.blocks.pop(number))
        placed = plain if engine.journal is not None else []
        if engine.journal is not None:
            place_all(engine.journal, placed)
        stage.blocks[number] = Block(messages, placed, size)
        stage.at_ms = engine.clock.now_ms()
        self.size += size

    def take(
        self, vhost: str, producer: str, batch: int, parts: list[tuple[str, str, int]]
    ) -> list[Message]:
        """All messages of the parts, in their order. Raises NotStaged."""
        self.check(vhost, producer, batch, parts)
        found: list[Message] = []
        for part, attempt, _ in parts:
            stage = self.stages.get((vhost, producer, batch, part, attempt))
            found += stage.messages if stage is not None else []
        return found

    def check(
        self, vhost: str, producer: str, batch: int, parts: list[tuple[str, str, int]]
    ) -> None:
        """Whether all that is to be of the parts here is. Raises NotStaged."""
        for part, attempt, count in parts:
            stage = self.stages.get((vhost, producer, batch, part, attempt))
            held = sum(len(b.messages) for b in stage.blocks.values()) if stage is not None else 0
            if count and held != count:
                raise NotStaged(
                    f"part '{part}' of batch {batch} is not staged at node "
                    f"{self.engine.settings.node_name} as it should be ({held} messages of "
                    f"{count}): it was restarted, or the batch took too long; publish it again"
                )

    def forget(self, vhost: str, producer: str, batch: int) -> None:
        """The batch is committed or given up: this and older ones are needed no more."""
        for key in [k for k in self.stages if k[:2] == (vhost, producer) and k[2] <= batch]:
            self._drop(key)

    def remember(self, vhost: str, producer: str, batch: int, answer: Any) -> None:
        """What was said of a batch; of so many producers."""
        self.told.pop((vhost, producer), None)
        self.told[vhost, producer] = (batch, answer)
        while len(self.told) > PRODUCERS_MAX:
            del self.told[next(iter(self.told))]

    def _drop(self, key: StageKey) -> None:
        for block in self.stages.pop(key).blocks.values():
            self._release(block)

    def _release(self, block: Block) -> None:
        self.size -= block.size
        if self.engine.journal is not None:
            release_all(self.engine.journal, block.placed)

    def _expire(self) -> None:
        before_ms = self.engine.clock.now_ms() - STAGED_MS
        for key in [k for k, stage in self.stages.items() if stage.at_ms < before_ms]:
            self._drop(key)


class NotStaged(NotFound):
    """A part of the batch is not here, or not all of it."""


class NotServed(AmqpError):
    """A queue has no master at present; it will have one."""


class Router:
    """Where the messages of a batch go; addresses repeat, so each is looked up once."""

    def __init__(self, engine: Engine, actor: Any, vhost: VHost) -> None:
        self.engine = engine
        self.actor = actor
        self.vhost = vhost
        self._routes: dict[Any, Route] = {}
        self._nodes: dict[AmqpQueue, frozenset[str]] = {}
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

    def nodes(self, queue: AmqpQueue) -> frozenset[str]:
        """Who is to have what is staged for a queue: its home, and its replicas in sync."""
        found = self._nodes.get(queue)
        if found is None:
            view = self.engine.views.get(queue.number) if queue.number else None
            here = self.engine.settings.node_name
            if view is not None and view.in_sync:
                found = frozenset(view.in_sync)
            else:
                found = frozenset((queue.home if queue.is_remote else here,))
            self._nodes[queue] = found
        return found

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
    """Publish a batch to the queues of this node that do not have it; one turn.

    In mirrored ones it is there when all replicas have it. Raises NotServed.
    """
    targets: list[tuple[AmqpQueue, ...]] = []
    fresh: dict[AmqpQueue, bool] = {}
    unroutable = 0
    for message in messages:
        queues = router.queues(message)
        if not queues:
            unroutable += 1
        for queue in queues:
            if queue not in fresh:
                fresh[queue] = _is_fresh(engine, queue, producer, batch)
        if not all(fresh[queue] for queue in queues):
            queues = tuple(queue for queue in queues if fresh[queue])
        targets.append(queues)
    wanted = [queue for queue, is_fresh in fresh.items() if is_fresh]
    taken = [queue for queue in fresh if not queue.is_remote]
    refused = 0
    if wanted:
        refused = _publish(engine, wanted, messages, targets, producer, batch)
    return Outcome(
        sum(map(bool, targets)), len(taken) - len(wanted), refused, unroutable, taken,
        {queue.name: queue.home for queue in fresh if queue.is_remote},
    )  # fmt: skip


def has_batch(queue: AmqpQueue, producer: str, batch: int) -> bool:
    """Whether the queue has had that batch of a producer, or a later one."""
    return queue.cursors is not None and queue.cursors.batches.get(producer, -1) >= batch


def _is_fresh(engine: Engine, queue: AmqpQueue, producer: str, batch: int) -> bool:
    if queue.is_remote or has_batch(queue, producer, batch):
        return False
    if queue.awaits_view or (queue.mirror is not None and not queue.mirror.acts):
        raise NotServed(f"the master of queue '{queue.name}' is being chosen")
    return engine.staging.committing.get((queue, producer), -1) < batch


def _publish(
    engine: Engine,
    queues: list[AmqpQueue],
    messages: list[Message],
    targets: list[tuple[AmqpQueue, ...]],
    producer: str,
    batch: int,
) -> int:
    journal, now_ms = engine.journal, engine.clock.now_ms()
    operation = batch_operation(producer, batch)
    mirrored = [queue for queue in queues if queue.mirror is not None]
    plain = [queue for queue in queues if queue.mirror is None]
    for queue in queues:
        queue.in_batch = True
    refused = 0
    try:
        if journal is not None:
            # What left the queues before is told before.
            journal.finish_turn()
        if plain:
            only = _only(plain, targets) if mirrored else targets
            refused += _publish_plain(engine, plain, messages, only, operation)
        if mirrored:
            refused += _publish_mirrored(engine, mirrored, messages, targets, operation)
            for queue in mirrored:
                _await_commit(engine, queue, producer, batch)
    finally:
        for queue in queues:
            queue.in_batch = False
    for queue in queues:
        queue.run(now_ms)
    return refused


def _only(
    queues: list[AmqpQueue], targets: list[tuple[AmqpQueue, ...]]
) -> list[tuple[AmqpQueue, ...]]:
    """Of the queues of each message those that are wanted."""
    wanted = set(queues)
    known = {some: tuple(queue for queue in some if queue in wanted) for some in set(targets)}
    return [known[some] for some in targets]


def _publish_plain(
    engine: Engine,
    queues: list[AmqpQueue],
    messages: list[Message],
    only: list[tuple[AmqpQueue, ...]],
    operation: bytes,
) -> int:
    journal = engine.journal
    logged = [queue for queue in queues if journal is not None and queue.durable and queue.queue_id]
    if journal is not None:
        # A queue that has lost its mirrors since they were staged.
        late = [m for m, some in zip(messages, only, strict=True) if some and not m.place]
        place_all(journal, late)
        begin_batch(journal)
    refused = offer_all(messages, only, journal, engine.clock.now_ms())
    for queue in queues:
        queue.apply_cursor(operation)
    if journal is not None:
        end_batch(journal, logged, operation)
        release_all(journal, late)
    return refused


def _publish_mirrored(
    engine: Engine,
    queues: list[AmqpQueue],
    messages: list[Message],
    targets: list[tuple[AmqpQueue, ...]],
    operation: bytes,
) -> int:
    """Each message is written with its operation, as any publish."""
    only = _only(queues, targets)
    # The staged ones stand elsewhere in the log, or may have to be published again.
    own = [copy_of(message) for message, some in zip(messages, only, strict=True) if some]
    only = [some for some in only if some]
    logs: list[Any] = [queue.mirror for queue in queues]
    for log in logs:
        log.begin_batch()
    try:
        return offer_all(own, only, engine.journal, engine.clock.now_ms())
    finally:
        for log in logs:
            log.end_batch(operation)


def _await_commit(engine: Engine, queue: AmqpQueue, producer: str, batch: int) -> None:
    """It is not published again meanwhile."""
    committing = engine.staging.committing
    committing[queue, producer] = batch
    assert queue.mirror is not None

    def done() -> None:
        if committing.get((queue, producer)) == batch:
            del committing[queue, producer]

    queue.mirror.when_committed(queue.operations, done)
