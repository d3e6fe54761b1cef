"""A node among others, as operators see it and act on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from warren.cluster.member_effects import Why
from warren.engine.parameters import CLUSTER_NAME
from warren.management.cluster_control import (
    UNAVAILABLE,
    AgreementStatus,
    ClusterError,
    ClusterStatus,
    DrainStatus,
    MemberStatus,
    NodeType,
    app_is_running,
    joins_itself,
    member_is_running,
    not_a_member,
)
from warren.management.peers import PeerSilent, Question
from warren.net.peers.handshake import Refusal
from warren.node import next_start
from warren.node.agreement import ProposalError
from warren.node.link_addresses import format_address
from warren.node.next_start import NextStart

if TYPE_CHECKING:
    from warren.node.cluster import NodeCluster
    from warren.node.node import Node

#: Within this time a node that has stopped is called anew by those that serve.
CALLED_ANEW_S = 3.0
#: How long all nodes may take to agree on something an operator asks for, in seconds.
AGREE_S = 10.0
#: How long a node that has just stopped may take to count as down.
DOWN_S = 6.0
#: How long a node that is to be joined may take to answer.
CALL_S = 5.0
LOOK_AGAIN_S = 0.1
NOBODY_AGREES = (
    "no majority of the nodes agrees: warrenctl cluster_status says which of them can be reached"
)
#: What an operator does about a refusal.
_MENDED = {
    Refusal.WRONG_SECRET: "Copy the other's file to this node: cluster.secret_file, or else the "
    "file cookie in its data directory",
    Refusal.UNKNOWN_VERSION: "Install the same version of Warren on both: warrenctl server_version",
}


class ClusteredControl:
    """A `ClusterControl` for a node of a cluster, be it of one."""

    def __init__(self, node: Node, cluster: NodeCluster) -> None:
        self._node = node
        self._cluster = cluster
        #: Everything is to be forgotten by the next start: the node is in no cluster.
        self._is_reset = False

    # -- looking -----------------------------------------------------------------------------------

    def status(self) -> ClusterStatus:
        node, cluster = self._node, self._cluster
        members = [self._member(name) for name in cluster.member_names()]
        partitions = {}
        for member in members:
            facts = cluster.facts_of(member.name)
            if facts is not None and facts.unreachable:
                partitions[member.name] = list(facts.unreachable)
        return ClusterStatus(
            node=node.name,
            cluster_name=node.engine.cluster_name,
            is_app_running=node.is_open,
            members=members,
            partitions=partitions,
            agreement=self._agreement(),
        )

    def _agreement(self) -> AgreementStatus | None:
        if self._cluster.agreement is None:
            return None
        status = self._cluster.agreement.status()
        return AgreementStatus(
            status.leader,
            status.term,
            sorted(status.voters),
            sorted(status.learners),
            status.applied_index,
            status.is_ready,
        )

    def _member(self, name: str) -> MemberStatus:
        cluster = self._cluster
        facts = cluster.facts_of(name)
        is_drained = cluster.is_drained(name)
        if facts is None:
            return MemberStatus(name, is_running=False, is_drained=is_drained)
        alarms = cluster.alarms
        return MemberStatus(
            name=name,
            is_running=facts.is_open,
            os_pid=facts.os_pid,
            role=cluster.role_of(name) if facts.is_open else None,
            product=facts.product,
            version=facts.version,
            runtime=facts.runtime,
            cpu_cores=facts.cpu_cores,
            alarms=sorted(alarms.own()) if name == self._node.name else alarms.of(name),
            listeners=facts.shown_listeners(),
            is_drained=is_drained,
        )

    def online_nodes(self) -> Sequence[str]:
        return [member.name for member in self.status().members if member.is_running]

    # -- members -----------------------------------------------------------------------------------

    async def join(self, node: str, node_type: NodeType) -> bool:  # noqa: ARG002
        if node == self._node.name:
            raise joins_itself(node)
        others = self._others()
        if node in others:
            return False
        self._check_stopped()
        if others:
            raise ClusterError(
                f"{self._node.name} is in a cluster with {', '.join(others)}.\n"
                f"Let it leave first: warrenctl -n {self._node.name} reset"
            )
        members = await self._call(node)
        if self._node.name in members:
            raise ClusterError(
                f"{node} knows a node of this name already. Forget it there first: "
                f"warrenctl -n {node} forget_cluster_node {self._node.name}"
            )
        seeds = (node, *(name for name in members if name != node))
        self._plan(NextStart(True, seeds, self._cluster.addresses.known(self._cluster.link_port)))
        return True

    async def _call(self, node: str) -> list[str]:
        """The members of another node's cluster, as it says. Raises ClusterError."""
        with self._cluster.calling(node):
            until_s = asyncio.get_running_loop().time() + CALL_S
            while self._cluster.facts_of(node) is None:
                if asyncio.get_running_loop().time() > until_s:
                    why = self._cluster.why_unreachable(node)
                    hint = self._hint(node, why)
                    raise ClusterError(f"{node} cannot be reached: {why}{hint}", UNAVAILABLE)
                await asyncio.sleep(LOOK_AGAIN_S)
            shown = await self._want(node, "GET", "/warren/cluster/status")
        return [str(row["name"]) for row in msgspec.json.decode(shown)["nodes"]]

    def _hint(self, node: str, why: str) -> str:
        """What to do about it, where that is known."""
        if "@" not in node:
            return ".\nA node's name has a host, as in rabbit@host1"
        refusal = next((refusal for refusal in Refusal if refusal.text in why), None)
        if refusal in _MENDED:
            return f".\n{_MENDED[refusal]}"
        if refusal not in {None, Refusal.ONESELF, Refusal.OTHER_NAME}:
            return ""
        place = format_address(*self._cluster.addresses.of(node))
        key = node.replace(".", "\\.")
        return (
            f".\nIt was looked for at {place}. If it is elsewhere, this node needs to know: "
            f"cluster.nodes.{key} = HOST:PORT; and that one needs cluster.listen = PORT for others "
            "to reach it"
        )

    async def _want(self, node: str, method: str, path: str, body: object = None) -> bytes:
        """Have another node do something. Raises ClusterError."""
        sent = b"" if body is None else msgspec.json.encode(body)
        question = Question(method, path, body=sent)
        try:
            answer = await self._cluster.questions.ask(node, question, AGREE_S + DOWN_S)
        except PeerSilent as error:
            raise ClusterError(str(error), UNAVAILABLE) from error
        if answer.status >= 300:
            raise ClusterError(f"{node} refuses: {_reason(answer.body)}", answer.status)
        return answer.body

    async def forget(self, node: str, offline: bool, force: bool) -> None:
        if node not in self._cluster.member_names():
            raise not_a_member(node)
        if offline:
            self._forget_offline(node)
            return
        if not self._node.is_open:
            raise ClusterError(
                f"{self._node.name} takes no part at present: say it on a node that runs, or, "
                "where half of the nodes or more are lost for good, with --offline",
                UNAVAILABLE,
            )
        until_s = asyncio.get_running_loop().time() + DOWN_S
        while True:
            facts = self._cluster.facts_of(node)
            if facts is not None and facts.is_open:
                raise member_is_running(node)
            if not force:
                self._check_forks(node)
            try:
                await self._cluster.forget(node, AGREE_S)
            except ProposalError as error:
                if error.why is Why.NOT_FOUND:
                    raise not_a_member(node) from error
                # It may count as alive for a moment longer.
                if asyncio.get_running_loop().time() > until_s:
                    raise self._why_not(node) from error
                await asyncio.sleep(LOOK_AGAIN_S)
            except TimeoutError:
                raise ClusterError(NOBODY_AGREES, UNAVAILABLE) from None
            else:
                return

    def _check_forks(self, node: str) -> None:
        """What was confirmed at a fork and is not merged is on the node's disk only."""
        forks = self._cluster.forking.unmerged_on(node)
        if forks is None:
            raise ClusterError(
                f"{node} may have served queues by itself after it was cut off (autoheal); what "
                "it confirmed then is on its disk only. Start it, and it is merged. If the disk "
                f"is lost: warrenctl forget_cluster_node --force {node}"
            )
        if forks:
            raise ClusterError(
                f"{node} has forks of {self._names(forks)} that are not merged: what it confirmed "
                "in the partition is on its disk only. Start it, and wait until its warrenctl "
                f"cluster_status shows no forks. To give that up: warrenctl forget_cluster_node "
                f"--force {node}"
            )

    def _names(self, numbers: Sequence[int]) -> str:
        """Queues in words, some of them by name."""
        queues = map(self._cluster.queue_views.queue, numbers)
        shown = ", ".join(f"'{queue.name}'" for queue in list(queues)[:3] if queue is not None)
        more = ", ..." if numbers[3:] else ""
        return f"{len(numbers)} queue{'s' if numbers[1:] else ''} ({shown or 'deleted'}{more})"

    def _forget_offline(self, node: str) -> None:
        """For a survivor that is no majority: done by its next start, whatever others know."""
        own, data_dir = self._node.name, self._node.data_dir
        if node == own:
            raise ClusterError(f"{node} is this node itself: see reset")
        if self._node.is_open:
            raise ClusterError(
                f"{own} runs, so the nodes can agree on it: say it without --offline, or stop "
                f"this one first: warrenctl -n {own} stop_app"
            )
        facts = {name: self._cluster.facts_of(name) for name in self._others()}
        serving = [name for name, told in facts.items() if told is not None and told.is_open]
        if serving:
            raise ClusterError(
                f"the nodes that run must agree on it: say it on {serving[0]}, without --offline"
            )
        if facts.get(node) is not None:
            raise ClusterError(f"{node} is there, so it is not lost: stop it, or start it")
        if data_dir is None:
            raise ClusterError(
                "this node keeps no data: start it anew with the nodes that are left"
            )
        planned = next_start.read(data_dir)
        names = () if planned is None else planned.forget
        try:
            next_start.plan(data_dir, NextStart(False, forget=tuple(sorted({*names, node}))))
        except OSError as error:
            raise ClusterError(f"it cannot be written down: {error}", UNAVAILABLE) from error

    def _why_not(self, node: str) -> ClusterError:
        """What keeps a node from being forgotten."""
        engine = self._node.engine
        kept = [number for number, view in engine.views.items() if view.is_in_full_on(node)]
        names = [queue.name for queue in map(self._cluster.queue_views.queue, kept) if queue]
        if not names:
            return member_is_running(node)
        shown = ", ".join(f"'{name}'" for name in names[:3]) + (", ..." if names[3:] else "")
        return ClusterError(
            f"{node} has the only full copy of {len(names)} mirrored queues ({shown}): start it, "
            "or give up what the others lack: ha-promote-on-failure always, in their policy"
        )

    # -- this node ---------------------------------------------------------------------------------

    async def reset(self, force: bool) -> None:
        self._check_stopped()
        others = self._others()
        if not force:
            self._check_own_forks()
        if others and not force:
            await self._leave(others)
        self._plan(NextStart(True))

    def _check_own_forks(self) -> None:
        forks = self._cluster.forking.own_unmerged()
        if forks:
            own = self._node.name
            raise ClusterError(
                f"{own} has forks of {self._names(forks)} that are not merged: what it confirmed "
                "in the partition would be lost with it. "
                f"Let it go on: warrenctl -n {own} start_app, and wait until cluster_status shows "
                f"no forks. To give that up: warrenctl -n {own} force_reset"
            )

    def _serving(self, others: Sequence[str]) -> str | None:
        """One of the others that can be reached and lets clients in."""
        for name in others:
            facts = self._cluster.facts_of(name)
            if facts is not None and facts.is_open:
                return name
        return None

    async def _leave(self, others: Sequence[str]) -> None:
        # The others let go of their links to a node that has stopped, and call it anew.
        until_s = time.monotonic() + CALLED_ANEW_S
        while (name := self._serving(others)) is None and time.monotonic() < until_s:
            await asyncio.sleep(0.05)
        if name is not None:
            # Its forks have been looked at here, or an operator gives them up.
            body = {"node": self._node.name, "force": True}
            try:
                await self._want(name, "POST", "/warren/cluster/forget", body)
            except ClusterError as error:
                own = self._node.name
                if str(not_a_member(own)) not in str(error):
                    raise
                raise ClusterError(
                    f"the others have forgotten {own} already: warrenctl -n {own} force_reset"
                ) from error
            return
        raise ClusterError(
            "no other node of the cluster runs and can be reached, so none can be told.\n"
            "To leave without telling them: warrenctl force_reset",
            UNAVAILABLE,
        )

    def _plan(self, what: NextStart) -> None:
        if self._node.data_dir is None:
            raise ClusterError("this node keeps no data: stop it, and start it as it is to be")
        try:
            next_start.plan(self._node.data_dir, what)
        except OSError as error:
            raise ClusterError(f"it cannot be written down: {error}", UNAVAILABLE) from error
        self._is_reset = True

    async def stop_app(self) -> None:
        await self._cluster.retire()

    async def start_app(self) -> None:
        if self._node.is_open:
            return
        if self._node.on_restart is None:
            raise ClusterError("this node is part of another program, which has to start it anew")
        self._node.on_restart()

    async def drain(self) -> None:
        self._check_takes_part()
        if not set(self._cluster.homes.nodes_in_service()) - {self._node.name}:
            raise ClusterError(
                "no other node is in service, so nobody could take over: start one, or "
                "warrenctl -n <node> revive"
            )
        await self._agree_on_drain(True)

    async def revive(self) -> None:
        self._check_takes_part()
        await self._agree_on_drain(False)

    async def _agree_on_drain(self, drained: bool) -> None:
        try:
            await self._cluster.drain(self._node.name, drained, AGREE_S)
        except ProposalError as error:
            raise ClusterError(str(error), UNAVAILABLE) from error
        except TimeoutError:
            raise ClusterError(NOBODY_AGREES, UNAVAILABLE) from None

    def drain_status(self) -> DrainStatus:
        return self._cluster.draining.status()

    def _check_takes_part(self) -> None:
        if not self._node.is_open:
            name = self._node.name
            raise ClusterError(
                f"{name} takes no part at present: warrenctl cluster_status says whether it lacks "
                f"a majority; if it was stopped, warrenctl -n {name} start_app",
                UNAVAILABLE,
            )

    async def set_name(self, name: str) -> None:
        node = self._node
        try:
            async with asyncio.timeout(AGREE_S):
                await self._cluster.agree(
                    lambda: node.engine.set_global_parameter(CLUSTER_NAME, name)
                )
        except TimeoutError:
            raise ClusterError(NOBODY_AGREES, UNAVAILABLE) from None

    async def block_link(self, peer: str, blocked: bool) -> None:
        if peer not in self._others():
            raise not_a_member(peer)
        self._cluster.block(peer, blocked)

    def blocked_links(self) -> Sequence[str]:
        return self._cluster.blocked()

    def _others(self) -> list[str]:
        if self._is_reset:
            return []
        return [name for name in self._cluster.member_names() if name != self._node.name]

    def _check_stopped(self) -> None:
        if self._node.is_open:
            raise app_is_running(self._node.name)


def _reason(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["reason"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "it does not say why"
