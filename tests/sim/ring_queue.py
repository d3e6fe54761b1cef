"""One queue on one node: does what its replica wants, and serves clients while it is master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.ring_model import Op
from warren.cluster import metadata_commands as commands
from warren.replication import effects
from warren.replication.core import NEVER_MS

if TYPE_CHECKING:
    from sim.ring_node import RingNode

#: How many messages of a backlog one watermark opens.
OPENED_AT_ONCE = 20
HAND_OVER_MS = 900


class Consumer:
    """An attachment of a consumer."""

    def __init__(self, gateway: str, number: int, prefetch: int) -> None:
        self.gateway, self.number, self.prefetch = gateway, number, prefetch


class SimQueue:
    """The owner of a replica, as the engine will be."""

    #: A mutant delivers what no watermark covers.
    heeds_watermark = True

    def __init__(self, node: RingNode, name: str, number: int) -> None:
        self.node, self.name = node, name
        self.world, self.oracles = node.world, node.cluster.ring_oracles
        self.log = node.ring_disk.open(name)
        self.log.on_truncate = lambda after: self.oracles.truncated(self, after)
        cluster = node.cluster
        self.replica = cluster.replica_class(
            node.name, number, self.log, cluster.replica_settings(name), node.now_ms
        )
        self._tick_at = 0
        self._is_pumping = False
        self._forget_clients()

    def _forget_clients(self) -> None:
        self.consumers: dict[str, Consumer] = {}
        #: index -> (consumer, number of its attachment), or None while a settlement commits.
        self.outstanding: dict[int, tuple[str, int] | None] = {}
        self.taken: dict[str, int] = {}
        self.waiting: list[Op] = []
        self.watermark_asked = 0
        self.is_accepting = False
        self.handing_since_ms: int | None = None
        #: Attachments that came before the queue was served.
        self.early: dict[str, tuple[str, str, int, int]] = {}

    # -- clients

    def publish(self, gateway: str, key: str, sequences: list[int]) -> None:
        """In order, each once: what was had before is confirmed again, a hole is left alone."""
        if not self.is_accepting or self.replica.is_congested:
            return
        live = bool(self.consumers)
        for sequence in sequences:
            taken = self.taken.get(key, 0)
            if sequence == taken + 1:
                self.taken[key] = sequence
                self.waiting.append(("p", key, sequence, live))
        committed = self.log.state.seen.get(key, 0)
        if committed >= sequences[0]:
            self.node.send(gateway, ("confirm", self.name, key, committed))
        self.pump()

    def attach(self, gateway: str, consumer: str, number: int, prefetch: int) -> None:
        if not self.is_accepting:
            self.early[consumer] = (gateway, consumer, number, prefetch)
            return
        self.consumers[consumer] = Consumer(gateway, number, prefetch)
        self._give_back(lambda to: to[0] == consumer and to[1] != number)
        self.pump()

    def gateway_gone(self, gateway: str) -> None:
        self.early = {name: one for name, one in self.early.items() if one[0] != gateway}
        gone = [name for name, one in self.consumers.items() if one.gateway == gateway]
        for name in gone:
            del self.consumers[name]
        self._give_back(lambda to: to[0] in gone)
        self.pump()

    def _give_back_unclaimed(self) -> None:
        """Deliveries of the master before, whose consumers have not come."""
        self._give_back(lambda to: to[0] not in self.consumers)
        self.pump()

    def settle(self, consumer: str, number: int, index: int, kind: str) -> None:
        if self.outstanding.get(index) == (consumer, number) and self.is_accepting:
            self.outstanding[index] = None
            self.waiting.append((kind, index))
            self.pump()

    def _give_back(self, whose: Any) -> None:
        for index, to in list(self.outstanding.items()):
            if to is not None and whose(to):
                self.outstanding[index] = None
                self.waiting.append(("r", index))

    def hand_over(self, to: str) -> None:
        """Stop, leave the deliveries to the next one, and let it be the master."""
        if self.is_accepting and not self.waiting and self.replica.is_serving:
            self.is_accepting = False
            self.handing_since_ms = self.node.now_ms
            table = [[i, *to] for i, to in self.outstanding.items() if to is not None]
            self.waiting.append(("h", table))
            self._flush()
            self.replica.hand_over(to)
            self.pump()

    # -- the replica

    def run(self, action: Any) -> None:
        """Do something to the replica, then all that follows."""
        action()
        self.pump()

    def pump(self) -> None:
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while True:
                self._deliver()
                self._flush()
                taken = self.replica.take_effects()
                if not taken:
                    break
                for effect in taken:
                    if not self.node.is_up:
                        return
                    self._do(effect)
        finally:
            self._is_pumping = False
        self.oracles.look(self)
        self._schedule_tick()

    def _flush(self) -> None:
        """One batch for all that has happened in this turn."""
        if self.waiting and self.replica.may_append:
            ops, self.waiting = self.waiting, []
            batch = self.log.append_ops(self.replica.epoch, ops)
            self.replica.appended(batch)

    def _do(self, effect: effects.Effect) -> None:
        node = self.node
        match effect:
            case effects.Send(to, frame):
                node.send(to, frame)
            case effects.AdoptEpoch(epoch):
                node.ring_disk.adopt(self.log, epoch)
            case effects.Commit(index):
                self._commit(index)
            case effects.BecameMaster(epoch, promoted):
                self._became_master(epoch, promoted)
            case effects.Deposed():
                self.world.note(f"{node.name} {self.name} deposed")
                self._forget_clients()
            case effects.ProposeShrink(epoch, other, _):
                node.order(commands.Shrink(self.name, epoch, other))
            case effects.ProposeExpand(epoch, other):
                node.cluster.aim("propose expand", self, other)
                node.order(commands.Expand(self.name, epoch, other))
            case effects.ProposeHandover(epoch, other):
                node.order(commands.Handover(self.name, epoch, other))
            case effects.ReadChunk():
                self._read_chunk(effect)
            case effects.SyncProgress():
                self.oracles.counts["chunks"] += 1
            case effects.Salvage():
                self.oracles.counts["salvaged"] += 1

    def _commit(self, index: int) -> None:
        self.oracles.commits(self, index)
        changed: dict[str, int] = {}
        for number, (epoch, op) in self.log.apply(index):
            self.oracles.applied(self, number, (epoch, op))
            if op[0] == "p":
                changed[op[1]] = op[2]
            elif op[0] in ("a", "r"):
                self.outstanding.pop(op[1], None)
        if self.replica.is_master:
            for key, sequence in changed.items():
                self.oracles.confirmed(self, key, sequence)
                gateway = key.partition(".")[0]
                self.node.send(gateway, ("confirm", self.name, key, sequence))

    def _became_master(self, epoch: int, promoted: bool) -> None:
        self.world.note(f"{self.node.name} serves {self.name} in {epoch} promoted={promoted}")
        self.oracles.serves(self, epoch)
        early = self.early
        if promoted:
            self._forget_clients()
            self.outstanding = dict(self.log.state.inherited)
            if self.outstanding:
                self.oracles.counts["inherited"] += len(self.outstanding)
                self.node.later(1_000_000, self._give_back_unclaimed)
            self.taken = dict(self.log.state.seen)
        self.is_accepting = True
        self.handing_since_ms = None
        self.early = {}
        for attachment in early.values():
            self.attach(*attachment)
        self.node.cluster.aim("serves", self, self.node.name)

    def _read_chunk(self, effect: effects.ReadChunk) -> None:
        """What is read now goes out later, as from a disk."""
        cursor, data, is_last = self.log.read_chunk(effect.after, effect.upto, effect.bytes_max)
        delay = self.world.random.choice((0, 500, 5_000, 40_000))
        replica = self.replica
        self.node.later(
            delay,
            lambda: self.run(
                lambda: replica.chunk_read(effect.learner, effect.session, cursor, data, is_last)
            ),
        )

    # -- delivering

    def _deliver(self) -> None:
        """Committed messages up to the watermark, the oldest first, to whoever has room."""
        replica = self.replica
        if not self.is_accepting or not replica.is_master or not self.consumers:
            return
        room = {}
        for name, consumer in self.consumers.items():
            held = sum(1 for to in self.outstanding.values() if to == (name, consumer.number))
            if held < consumer.prefetch:
                room[name] = consumer.prefetch - held
        if not room or len(self.log.state.messages) <= len(self.outstanding):
            return
        state = self.log.state
        for index in sorted(state.messages):
            if not room:
                return
            if index in self.outstanding:
                continue
            if index > state.watermark and self.heeds_watermark:
                if self.watermark_asked < index:
                    self.watermark_asked = max(self.log.last_index, index) + OPENED_AT_ONCE
                    self.waiting.append(("w", self.watermark_asked))
                return
            name = next(iter(room))
            room[name] -= 1
            if not room[name]:
                del room[name]
            self._deliver_one(index, name)

    def _deliver_one(self, index: int, name: str) -> None:
        key, sequence, redelivered = self.log.state.messages[index]
        consumer = self.consumers[name]
        self.outstanding[index] = (name, consumer.number)
        self.oracles.sent(self, index, (key, sequence), redelivered)
        self.node.send(
            consumer.gateway,
            ("deliver", self.name, name, consumer.number, index, key, sequence, redelivered),
        )

    # -- time

    def tick(self) -> None:
        self.replica.tick(self.node.now_ms)
        since = self.handing_since_ms
        if since is not None and self.node.now_ms - since > HAND_OVER_MS:
            self.handing_since_ms = None
            self.replica.cancel_hand_over()
        self.pump()

    def _schedule_tick(self) -> None:
        due_ms = self.replica.next_tick_ms
        if self.handing_since_ms is not None:
            due_ms = min(due_ms, self.handing_since_ms + HAND_OVER_MS + 1)
        if due_ms >= NEVER_MS:
            return
        due_ms = max(due_ms, self.node.now_ms + 1)
        at = int(due_ms * 1000 / self.node.clock_rate) + 1000
        if self._tick_at <= self.world.now_us or at < self._tick_at:
            self._tick_at = at
            self.world.at(at, lambda: self._tick_due(at))

    def _tick_due(self, at: int) -> None:
        if at == self._tick_at:
            self._tick_at = 0
            if self.node.queues.get(self.name) is self:
                self.node.awake(self.tick)
