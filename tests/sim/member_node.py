"""One simulated node with a whole member in it: links, definitions and proposals included."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.ledger import Ledger
from sim.node import SimNode
from sim.world import Violation
from warren.cluster import control_frames as frames
from warren.cluster import member_effects as effects
from warren.cluster.member import Member
from warren.cluster.raft import effects as raft_effects
from warren.cluster.raft.effects import Persist
from warren.cluster.raft.raft import Raft
from warren.cluster.raft.types import ProtocolError

if TYPE_CHECKING:
    from sim.member_cluster import MemberCluster

#: How often a node looks at its links, and what it takes for a silent one.
LINKS_EVERY_US = 120_000
LINK_SILENCE_MS = 1_500


class MemberNode(SimNode):
    """Frames on the simulated network carry kind and incarnation in front of the payload."""

    cluster: MemberCluster

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.member: Member
        self.ledger = Ledger()
        #: The definitions of this node, and how far they are.
        self.defined_index = 0
        #: What the node's own log has of them: this index and image survive a crash.
        self.kept: tuple[int, bytes] = (0, b"")
        self._heard_ms: dict[str, int] = {}
        self._linked: dict[str, int] = {}
        #: What was proposed in this life and not answered: ticket -> command.
        self.asked: dict[int, bytes] = {}
        self.was_paused_at_ms = 0

    # -- life

    def start(self) -> None:
        self.boot += 1
        self.is_up = True
        self._paused = False
        self._backlog = []
        self._tick_at = 0
        self._heard_ms, self._linked, self.asked = {}, {}, {}
        self.defined_index, image = self.kept
        self.ledger = Ledger()
        if self.defined_index:
            self.ledger.restore(image)
        self.applied_index = 0
        self.member = self.cluster.member_class(
            self.name,
            self.disk.stored,
            self.cluster.member_settings,
            self.world.random.randint,
            self.boot,
            self.now_ms,
            cluster_id="sim",
            seeds=tuple(self.cluster.nodes),
            definitions_applied=self.defined_index,
            raft_class=self._watched(self.cluster.raft_class),
            sessions_class=self.cluster.sessions_class,
        )
        self.raft = self.member.raft
        self.world.note(f"start {self.name} term={self.raft.term} last={self.raft.log.last_index}")
        self.cluster.oracles.started(self)
        self.cluster.promises.doubted(self)
        self.pump()
        self.world.after(
            self.world.random.randint(0, LINKS_EVERY_US), self._in_this_life(self._look_at_links)
        )

    def _watched(self, raft_class: type[Raft]) -> type[Raft]:
        """The oracles of Raft look at what it wants, as they do without a member around it."""
        node = self

        class Watched(raft_class):  # type: ignore[misc, valid-type]
            def take_effects(self) -> list[raft_effects.Effect]:
                taken: list[raft_effects.Effect] = super().take_effects()
                oracles = node.cluster.oracles
                oracles.saw(node, taken)
                oracles.look(node)
                for effect in taken:
                    if isinstance(effect, raft_effects.Apply):
                        for number, entry in enumerate(effect.entries):
                            oracles.applied(node, effect.first_index + number, entry)
                return taken

        return Watched

    def crash(self) -> None:
        was_up = self.is_up
        super().crash()
        if was_up:
            self.cluster.promises.crashed()

    def pause(self) -> None:
        if not self._paused:
            self.was_paused_at_ms = self.now_ms
        super().pause()

    def resume(self) -> None:
        if self._paused and self.now_ms - self.was_paused_at_ms > 3_000 and self.is_up:
            self.cluster.promises.doubted(self)
        super().resume()

    # -- inputs

    def _receive(self, source: str, data: bytes) -> None:
        self.world.note_bytes(data)
        kind, incarnation = data[0], int.from_bytes(data[1:5], "big")
        known = self._linked.get(source, 0)
        if incarnation < known:
            return  # The connection that this was said on is over.
        self._heard_ms[source] = self.now_ms
        if incarnation > known:
            self._linked[source] = incarnation
            self.member.peer_up(source, incarnation)
        try:
            self.member.receive(source, kind, data[5:], self.now_ms)
        except ProtocolError as error:
            self.cluster.oracles.fail(f"{self.name} cannot believe {source}: {error}")
        self.pump()

    def _look_at_links(self) -> None:
        self.world.after(LINKS_EVERY_US, self._in_this_life(self._look_at_links))
        self._when_awake(self._in_this_life(self._tell_of_links))

    def _tell_of_links(self) -> None:
        for name, other in self.cluster.nodes.items():
            if name == self.name:
                continue
            if self.now_ms - self._heard_ms.get(name, -LINK_SILENCE_MS) > LINK_SILENCE_MS:
                self._linked.pop(name, None)
                self.member.peer_down(name)
            if not other.is_up and not self.cluster.network.is_cut(self.name, name):
                self._linked.pop(name, None)
                self.member.peer_down(name)
                self.member.peer_refused(name)
        self.pump()

    def _tick(self) -> None:
        self.member.tick(self.now_ms)
        self.pump()

    def _schedule_tick(self) -> None:
        due_ms = max(self.member.next_tick_ms, self.now_ms + 1)
        at = int(due_ms * 1000 / self.clock_rate) + 1000
        if self._tick_at <= self.world.now_us or at < self._tick_at:
            self._tick_at = at
            self.world.at(at, self._in_this_life(lambda: self._tick_due(at)))

    def propose(self, command: bytes) -> None:
        self.cluster.promises.proposed(command)
        self.asked[self.member.propose(command)] = command

    def _persisted(self, token: int) -> None:
        self.member.persisted(token)
        self.pump()

    def take_snapshot(self) -> None:
        self.member.want_snapshot()
        self.pump()

    # -- effects

    def pump(self) -> None:
        while True:
            taken = self.member.take_effects()
            self.applied_index = self.member.applied_index
            if not taken:
                break
            for effect in taken:
                if self.is_up:
                    self._do(effect)
        if self.is_up:
            self.cluster.promises.look(self)
            self._schedule_tick()

    def _do(self, effect: effects.MemberEffect) -> None:
        promises = self.cluster.promises
        match effect:
            case effects.SendFrame():
                promises.counts[effect.kind] += 1
                head = bytes((effect.kind,)) + self.boot.to_bytes(4, "big")
                self.cluster.network.send(self.name, effect.to, head + effect.payload)
            case Persist():
                self.disk.write(effect, self._on_synced(), self._in_this_life(self.fail_disk))
            case effects.ApplyDefinition():
                self._define(effect)
            case effects.RestoreDefinitions():
                if effect.index <= self.defined_index:
                    raise Violation(f"{self.name} restores what it has applied")
                self.ledger.restore(effect.image)
                self.defined_index = effect.index
                promises.defined(self)
            case effects.NodesChanged():
                promises.nodes_changed(self, effect)
            case effects.ProposalDone():
                promises.done(self, effect, self.asked.pop(effect.ticket))
            case effects.ProposalFailed():
                promises.failed(self, effect, self.asked.pop(effect.ticket, b""))
            case effects.SnapshotNeeded():
                image = self.ledger.image()
                delay = self.world.random.choice((0, 0, 5_000, 100_000))
                self.world.after(delay, self._in_this_life(self._compact(effect.index, image)))
            case effects.Refused():
                promises.refused(self, effect.reason)

    def _define(self, effect: effects.ApplyDefinition) -> None:
        if effect.index <= self.defined_index:
            raise Violation(f"{self.name} applies {effect.index} after {self.defined_index}")
        self.ledger.apply(effect.index, effect.change)
        self.defined_index = effect.index
        self.cluster.promises.defined(self)
        if self.world.chance(0.1):
            self.kept = (self.defined_index, self.ledger.image())

    def _compact(self, index: int, image: bytes) -> Callable[[], None]:
        def compact() -> None:
            self.member.compact(index, image)
            self.pump()

        return compact


def raft_payload(data: bytes) -> bytes | None:
    """The Raft message in a frame of the simulated network."""
    return data[5:] if data[0] == frames.RAFT else None
