"""A cluster of whole members, and what they promise to clients and to each other."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sim.cluster import Cluster
from sim.faults import Nemesis
from sim.member_node import MemberNode, raft_payload
from sim.node import SimNode
from warren.cluster import member_effects as effects
from warren.cluster.member import Member
from warren.cluster.member_settings import MemberSettings
from warren.cluster.raft import codec
from warren.cluster.raft.messages import Message
from warren.cluster.raft.settings import Settings
from warren.cluster.sessions import OpenSession, Sessions, encode_proposal

if TYPE_CHECKING:
    from collections.abc import Callable


class FewSessions(Sessions):
    """So few that one is dropped every now and then."""

    sessions_max = 16


class Promises:
    """Checked whenever a node says or does something."""

    def __init__(self, cluster: MemberCluster) -> None:
        self.cluster = cluster
        #: index -> digest of the definitions after it
        self._digests: dict[int, bytes] = {}
        #: node -> what was committed when it had last reason to doubt what it knew
        self._floors: dict[str, int] = {}
        self._incarnations: dict[int, dict[str, int]] = {}
        self._eras: dict[int, bool] = {}
        #: What was proposed so far, and so much of it before no node ran any more.
        self._proposed: list[bytes] = []
        self._before_stop = 0
        #: The lives that were ready since then.
        self._looked_at: set[tuple[str, int]] = set()
        self.answered: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self.counts: Counter[object] = Counter()

    def fail(self, what: str) -> None:
        self.cluster.oracles.fail(what)

    def doubted(self, node: MemberNode) -> None:
        """Before it is ready again, it must know all that is committed by now."""
        self._floors[node.name] = self.cluster.oracles.commit_max

    def look(self, node: MemberNode) -> None:
        if not node.member.ready:
            return
        self.counts["ready"] += 1
        if node.member.applied_index < self._floors[node.name]:
            self.fail(f"{node.name} is ready and does not know what was committed before")
        known = node.member.nodes[node.name]
        if (known.incarnation, known.is_alive) != (node.boot, True):
            self.fail(f"{node.name} is ready but down")
        if (node.name, node.boot) not in self._looked_at:
            self._looked_at.add((node.name, node.boot))
            self._look_at_era(node)

    def _look_at_era(self, node: MemberNode) -> None:
        """If all definitions were transient, those made before all stopped would be gone."""
        era = node.member._machine.metadata.era
        for command in self._proposed[: self._before_stop]:
            if node.ledger.commands.get(command, 0) > era:
                self.fail(f"{node.name} is ready with what was transient before all stopped")

    def proposed(self, command: bytes) -> None:
        self._proposed.append(command)

    def crashed(self) -> None:
        if not self.cluster.up:
            self._before_stop = len(self._proposed)
            self._looked_at.clear()
            self.counts["all stopped"] += 1

    def defined(self, node: MemberNode) -> None:
        """Equal digests after an index: the same changes in the same order, none left out."""
        digest = self._digests.setdefault(node.defined_index, node.ledger.digest)
        if digest != node.ledger.digest:
            self.fail(f"{node.name} has other definitions at {node.defined_index}")

    def nodes_changed(self, node: MemberNode, effect: effects.NodesChanged) -> None:
        self.counts[effect.what] += 1
        self.cluster.world.note(
            f"{node.name} sees {effect.node} {effect.what.value} at {effect.index}"
        )
        table = {name: entry.incarnation for name, entry in effect.table.items()}
        if self._incarnations.setdefault(effect.index, table) != table:
            self.fail(f"{node.name} has another table at {effect.index}")
        if effect.what is not effects.Change.RESTORED:
            self.counts["eras"] += effect.ends_era
            if self._eras.setdefault(effect.index, effect.ends_era) is not effect.ends_era:
                self.fail(f"{node.name} ends another era at {effect.index}")
        for name, entry in effect.table.items():
            if entry.incarnation > self.cluster.nodes[name].boot:
                self.fail(f"{name} is registered in a life that it has not had")

    def done(self, node: MemberNode, effect: effects.ProposalDone, command: bytes) -> None:
        if node.ledger.commands.get(command, 1 << 60) > effect.index:
            self.fail(f"{command!r} is done but not applied on {node.name}")
        for name, entry in node.member.nodes.items():
            other = self.cluster.nodes[name]
            lives = other.is_up and other.boot == entry.incarnation and entry.is_alive
            if lives and command not in other.ledger.commands:
                self.fail(f"{command!r} is done on {node.name}, but {name} lacks it")
            if lives and other.applied_index <= node.applied_index:
                # Who knows no more than the one who asked must not take its queues for gone.
                seen = other.member.nodes.get(node.name)
                if seen is not None and not seen.is_alive and seen.incarnation == node.boot:
                    self.fail(f"{command!r} is done on {node.name}, which is down for {name}")
        self.answered.add(command)

    def failed(self, node: MemberNode, effect: effects.ProposalFailed, command: bytes) -> None:
        self.counts[effect.why] += 1
        if effect.why is effects.Why.UNKNOWN:
            self.unknown.add(command)
        elif command in node.ledger.commands:
            self.fail(f"{command!r} has failed but is applied")

    def refused(self, node: MemberNode, reason: str) -> None:
        self.fail(f"{node.name} is refused: {reason}")


class MemberCluster(Cluster):
    """As `Cluster`, with a member on each node; spares ask to be let in by themselves."""

    nodes: dict[str, MemberNode]  # type: ignore[assignment]
    node_type: type[MemberNode] = MemberNode

    def __init__(
        self,
        seed: int,
        founders: int = 3,
        spares: int = 0,
        settings: Settings | None = None,
        member_class: type[Member] = Member,
        **limits: int,
    ) -> None:
        self.member_class = member_class
        self.promises = Promises(self)
        super().__init__(
            seed, founders, spares, settings, sessions_class=FewSessions, node_class=self.node_type
        )
        self.member_settings = MemberSettings(raft=self.settings, **limits)

    def message_in(self, data: bytes) -> Message | None:
        payload = raft_payload(data)
        return codec.decode(payload) if payload is not None else None


class MemberNemesis(Nemesis):
    """The same trouble, and nodes that sleep longer than a quorum waits."""

    cluster: MemberCluster

    def _more_blows(self) -> list[tuple[int, Callable[[], None]]]:
        return [(3, self._sleep), (1, self._open_sessions)]

    def _kill_one(self, node: SimNode) -> None:
        if not self.stopped:
            super()._kill_one(node)

    def _sleep(self) -> None:
        node = self._victim()
        node.pause()
        self.world.after(self.world.random.randint(2_500, 5_000) * 1000, node.resume)

    def _open_sessions(self) -> None:
        """As if so many nodes had started that a session is dropped."""
        leader = self.cluster.leader
        if leader is not None:
            for number in range(self.world.random.randint(1, 14)):
                leader.raft.propose(encode_proposal(OpenSession(f"other {number}")))
            leader.pump()
