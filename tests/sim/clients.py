"""Clients that propose and read, try again when they get no answer, and remember what they got."""

from __future__ import annotations

from sim.cluster import Cluster
from sim.node import SimNode
from sim.world import Violation
from warren.cluster.raft.effects import Position
from warren.cluster.sessions import OpenSession, Outcome, Request, Verdict, encode_proposal

_ANSWERED = (Verdict.APPLIED, Verdict.REPEATED, Verdict.FORGOTTEN)


class Client:
    """One session; a few requests are open at a time."""

    def __init__(self, cluster: Cluster, name: str, every_us: int, window: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.every_us = every_us
        self.window = window
        self.session = 0
        self.next_sequence = 1
        #: sequence -> when it was last tried
        self.open: dict[int, int] = {}
        self.answered: dict[bytes, int] = {}
        self.reads_done = 0
        self.stopped = False
        cluster.listen(self._on_outcome)

    def start(self) -> None:
        self.world.after(self.world.random.randint(0, self.every_us), self._step)

    def stop(self) -> None:
        self.stopped = True

    def command(self, sequence: int) -> bytes:
        return f"{self.name}/{sequence}".encode()

    def _step(self) -> None:
        if self.stopped:
            return
        dice = self.world.random
        self.world.after(dice.randint(self.every_us // 2, self.every_us * 3 // 2), self._step)
        node = self._some_node()
        if node is None:
            return
        if dice.random() < 0.2:
            node.read(self._on_read)
        elif not self.session:
            self._propose(node, encode_proposal(OpenSession(self.name)))
        else:
            self._request(node)

    def _some_node(self) -> SimNode | None:
        """Mostly the one that believes to lead, at times a wrong one."""
        awake = self.cluster.up
        if not awake:
            return None
        leaders = [node for node in awake if node.is_leader]
        if leaders and self.world.random.random() < 0.8:
            return self.world.random.choice(leaders)
        return self.world.random.choice(awake)

    def _request(self, node: SimNode) -> None:
        now = self.world.now_us
        stale = [sequence for sequence, tried in self.open.items() if tried + 400_000 < now]
        if stale:
            sequence = stale[0]
        elif len(self.open) < self.window:
            sequence = self.next_sequence
            self.next_sequence += 1
        else:
            return
        self.open[sequence] = now
        open_from = min(self.open)
        request = Request(self.session, sequence, open_from, self.command(sequence))
        self._propose(node, encode_proposal(request))

    def _propose(self, node: SimNode, data: bytes) -> None:
        if isinstance(node.raft.propose(data), Position):
            node.pump()

    def _on_outcome(self, outcome: Outcome) -> None:
        """Any node's word will do: what one has applied, all will."""
        if outcome.verdict is Verdict.OPENED and outcome.origin == self.name:
            self.session = self.session or outcome.session
        if outcome.session != self.session or outcome.sequence not in self.open:
            return
        if outcome.verdict not in _ANSWERED:
            raise Violation(f"{self.name}/{outcome.sequence} is {outcome.verdict.value}")
        del self.open[outcome.sequence]
        self.answered[self.command(outcome.sequence)] = outcome.sequence

    def _on_read(self, done: bool) -> None:
        self.reads_done += done
