"""Nodes that join, and nodes that are forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from warren.cluster.member_effects import Why
from warren.node.agreement import ProposalError

if TYPE_CHECKING:
    from sim.wide_cluster import WideCluster, WideNode
    from warren.model.errand import Errand

ASK_US = 150_000
TRIES_MAX = 30


class Comings:
    """An operator who adds machines, and takes others away for good."""

    def __init__(self, cluster: WideCluster, every_us: int) -> None:
        self.cluster, self.world, self.every_us = cluster, cluster.world, every_us
        self.is_stopped = False
        #: Those that are to be forgotten, and are neither forgotten nor back yet.
        self.leaving: set[str] = set()
        self.forgotten: set[str] = set()

    def start(self) -> None:
        self.world.after(self.world.random.randint(100_000, self.every_us), self._step)

    def _step(self) -> None:
        if self.is_stopped:
            return
        dice = self.world.random
        self.world.after(dice.randint(self.every_us // 2, self.every_us * 2), self._step)
        absent = [it for it in self.cluster.nodes.values() if it.is_absent and self._may_join(it)]
        if absent and dice.random() < 0.6:
            self._join(dice.choice(absent))
        elif not self.leaving:
            here = [it for it in self.cluster.nodes.values() if it.is_ready]
            if len(here) >= 3:
                self._let_go(dice.choice(here))

    def _may_join(self, node: WideNode) -> bool:
        """It never was there, or nobody takes it for a member any more.

        Nor does anybody who is down: that it was forgotten is agreed on before it is out of the
        members, and with a new disk it could vote twice until then. A spare that has not been let
        in itself knows nothing of that.
        """
        if node.name in self.leaving or not self.cluster.up:
            return False
        others = [it for it in self.cluster.nodes.values() if it.boot and not it.is_absent]
        return all(node.name not in it.raft.membership.nodes for it in others)

    def _join(self, node: WideNode) -> None:
        self.world.note(f"{node.name} joins")
        self.cluster.ledger.counts["joined"] += 1
        if node.boot:
            node.wipe()
        self.forgotten.discard(node.name)
        self.cluster.given_up.discard(node.name)
        node.is_absent = False
        node.is_joining = True
        node.start()

    def _let_go(self, node: WideNode) -> None:
        self.world.note(f"{node.name} is to be forgotten")
        self.leaving.add(node.name)
        if self.world.chance(0.6) and not node.is_paused:
            node.stop()
        else:
            node.crash()
        node.is_absent = True
        self.world.after(ASK_US, lambda: self._ask(node, TRIES_MAX))

    def _ask(self, node: WideNode, tries: int) -> None:
        """Again and again, until it is so or must not be."""
        asked = [it for it in self.cluster.ready if it is not node and it.is_up]
        later = tries - (not node.is_up)
        if node.is_up or not asked or self._is_alone(asked[0], node.name):
            self._again(node, later)
            return
        self.cluster.given_up.add(node.name)
        errand = asked[0].errand(asked[0].member.forget(node.name))
        self._wait(node, errand, tries, 20)

    def _wait(self, node: WideNode, errand: Errand, tries: int, looks: int) -> None:
        if not errand.is_done:
            if looks:
                self.world.after(100_000, lambda: self._wait(node, errand, tries, looks - 1))
            else:
                # Whoever was asked is gone, perhaps. It may be done or not.
                self._ask(node, tries)
            return
        try:
            errand.result()
            self._is_forgotten(node)
        except ProposalError as error:
            if error.why is Why.NOT_FOUND:
                self._is_forgotten(node)
            else:
                self._again(node, tries - 1)

    def _again(self, node: WideNode, tries: int) -> None:
        if tries > 0:
            self.world.after(ASK_US, lambda: self._ask(node, tries))
            return
        self.world.note(f"{node.name} is not to be forgotten after all")
        self.leaving.discard(node.name)
        node.is_absent = False
        node.start()

    def _is_forgotten(self, node: WideNode) -> None:
        self.world.note(f"{node.name} is forgotten")
        self.cluster.ledger.counts["forgotten"] += 1
        self.leaving.discard(node.name)
        self.forgotten.add(node.name)

    def _is_alone(self, asked: WideNode, name: str) -> bool:
        """Whether a queue would go with the node, as one that nobody else has does."""
        engine = asked.engine
        for queue in engine.vhosts["/"].queues.values():
            view = engine.views.get(queue.number)
            if queue.home == name or view is None or set(view.in_sync) <= {name}:
                return True
        return False

    # -- in the end

    def present(self) -> list[str]:
        """Who is to be a member, and to have replicas of everything."""
        leader = cast("WideNode | None", self.cluster.leader)
        members = leader.raft.membership.nodes if leader is not None else ()
        return [
            name
            for name, node in self.cluster.nodes.items()
            if not node.is_absent
            and name not in self.forgotten
            # What was asked for and not answered may have been agreed on nevertheless.
            and (name in members or name not in self.cluster.given_up)
        ]
