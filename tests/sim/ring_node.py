"""One simulated node with a member, its replicas of queues, and a gateway for clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.member_node import MemberNode
from sim.ring_disk import Record, RingDisk
from sim.ring_gateway import Gateway
from sim.ring_queue import SimQueue
from warren.cluster import member_effects as effects
from warren.cluster.metadata import View, ViewCommand
from warren.replication import frames

if TYPE_CHECKING:
    from sim.ring_cluster import RingCluster


class RingNode(MemberNode):
    """As a member's node; ring frames and clients' messages go over links that keep order."""

    cluster: RingCluster

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        cluster = self.cluster
        self.ring_disk = RingDisk(self.world, cluster.state_class, cluster.log_class, cluster.keep)
        # One disk for both, also after it has been mended.
        self.ring_disk.health_of = lambda: self.disk.health
        self.ring_disk.on_synced = self._ring_synced
        self.ring_disk.on_error = self.fail_disk
        self.queues: dict[str, SimQueue] = {}
        self.numbers: dict[int, SimQueue] = {}
        self.gateway: Gateway | None = None
        self._views: dict[str, View] = {}

    # -- life

    def start(self) -> None:
        if self.is_up:
            return
        self._views, self.queues, self.numbers = {}, {}, {}
        self.is_up = True
        for number, name in enumerate(self.cluster.queue_names, 1):
            queue = self.cluster.queue_class(self, name, number)
            self.queues[name] = self.numbers[number] = queue
            self.cluster.ring_oracles.opened(queue)
        super().start()
        self.gateway = Gateway(self)

    def crash(self) -> None:
        if self.is_up:
            super().crash()
            self.ring_disk.crash()
            self.queues, self.numbers = {}, {}
            self.gateway = None
            self.cluster.links.node_gone(self.name)

    def awake(self, action: Callable[[], None]) -> None:
        """Do something in this life of the node, when it is not paused."""
        if self.is_up:
            self._when_awake(self._in_this_life(action))

    def later(self, delay_us: int, action: Callable[[], None]) -> None:
        guarded = self._in_this_life(action)
        self.world.after(delay_us, lambda: self._when_awake(guarded))

    # -- inputs

    def _ring_synced(self, records: list[Record]) -> None:
        self.awake(lambda: self._tell_synced(records))

    def _tell_synced(self, records: list[Record]) -> None:
        last: dict[str, Record] = {}
        for record in records:
            last[record.queue] = record
        for name, record in last.items():
            queue = self.queues.get(name)
            if queue is None:
                continue
            self.cluster.aim("synced", queue, self.name)
            if not self.is_up:
                return  # Killed between the sync and whatever would have been said about it.
            replica = queue.replica
            replica.persisted(record.generation, record.last, record.is_full)
            for other in records:
                if other.queue == name and other.kind == "adopt":
                    was = replica.epoch
                    replica.epoch_persisted(other.what[0])
                    if replica.epoch != was:
                        self.cluster.ring_oracles.adopted(queue)
                        self.cluster.aim("adopted", queue, self.name)
                        if not self.is_up:
                            return
            queue.pump()

    def send(self, to: str, what: Any) -> None:
        if to == self.name:
            self.later(0, lambda: self.take(self.name, what))
        else:
            self.cluster.links.send(self.name, to, what)

    def take(self, source: str, what: Any) -> None:
        """Something has come over a link: a frame, or words between a gateway and a master."""
        if isinstance(what, bytes):
            self.world.note_bytes(what)
            queue = self.numbers[frames.queue_of(what)]
            queue.replica.receive(source, what, self.now_ms)
            queue.pump()
            return
        kind, name, *rest = what
        if kind in ("confirm", "deliver"):
            if self.gateway is not None:
                getattr(self.gateway, kind)(source, name, *rest)
        elif kind == "settle":
            self.queues[name].settle(*rest)
        else:
            getattr(self.queues[name], kind)(source, *rest)

    def link_changed(self, other: str, is_up: bool) -> None:
        for queue in self.queues.values():
            if is_up:
                queue.replica.peer_up(other)
            else:
                queue.replica.peer_down(other)
                queue.gateway_gone(other)
            queue.pump()
        if self.gateway is not None and not is_up:
            self.gateway.link_lost(other)

    def _do(self, effect: effects.MemberEffect) -> None:
        if isinstance(effect, effects.ProposalDone | effects.ProposalFailed) and (
            self.asked.get(effect.ticket) == b""
        ):
            del self.asked[effect.ticket]
        else:
            super()._do(effect)

    # -- views

    def pump(self) -> None:
        super().pump()
        if self.is_up:
            self._look_at_views()

    def _look_at_views(self) -> None:
        registered = None
        for name, view in self.member.views.items():
            if self._views.get(name) is view:
                continue
            before = self._views.get(name)
            self._views[name] = view
            if registered is None:
                mine = self.member.nodes.get(self.name)
                registered = mine is not None and mine.incarnation == self.boot
            queue = self.queues[name]
            self.cluster.ring_oracles.view(name, view)
            queue.replica.view(view, registered)
            queue.pump()
            if self.gateway is not None and (before is None or before.master != view.master):
                self.gateway.moved(name)
            self.cluster.view_seen(self, queue, before, view)
            if not self.is_up:
                return

    def view_of(self, name: str) -> View | None:
        return self._views.get(name)

    def order(self, command: ViewCommand) -> None:
        self.asked[self.member.change_view(command)] = b""
        self.later(0, self.pump)
