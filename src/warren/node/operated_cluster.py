"""What operators do with a cluster by way of one of its nodes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.engine.homes import Homes
    from warren.model.errand import Errand
    from warren.net.peers.network import PeerNetwork
    from warren.node.agreement import Agreement
    from warren.node.node import Node
    from warren.node.peer_facts import NodeFacts, PeerFacts

#: How long whoever has a node forgotten waits at most until all others know of it.
KNOWN_S = 5.0


class OperatedCluster:
    """A part of `NodeCluster`."""

    agreement: Agreement | None
    links: PeerNetwork | None
    facts: PeerFacts
    homes: Homes
    _node: Node
    _opening: asyncio.Task[None] | None

    def member_names(self) -> list[str]:
        """All nodes that belong to the cluster."""
        raise NotImplementedError

    def _agreement(self) -> Agreement:
        raise NotImplementedError

    def facts_of(self, name: str) -> NodeFacts | None:
        """What is known of a node; None: it cannot be reached."""
        return self._own_facts() if name == self._node.name else self.facts.of(name)

    def role_of(self, name: str) -> str:
        """What a node is in the agreement."""
        assert self.agreement is not None
        status = self.agreement.status()
        if name == self._node.name:
            return status.role
        return "leader" if name == status.leader else "follower"

    def is_drained(self, name: str) -> bool:
        """Whether an operator has taken a node out of service."""
        return name in self.homes.drained

    def _unreachable(self) -> tuple[str, ...]:
        if self.agreement is None or self.links is None or self.agreement.is_retired:
            return ()
        alive = [name for name, node in self.agreement.status().nodes.items() if node.is_alive]
        others = sorted(name for name in alive if name != self._node.name)
        return tuple(name for name in others if self.links.link_to(name) is None)

    def _own_facts(self) -> NodeFacts:
        raise NotImplementedError

    async def retire(self) -> None:
        """Let no clients in, and take no part; links and questions go on."""
        assert self.agreement is not None
        if self._opening is not None:
            self._opening.cancel()
        await self._node.close_clients()
        await self.agreement.retire()
        self.facts.look()

    async def forget(self, name: str, timeout_s: float) -> None:
        """Let a node go for ever. Raises ProposalError or TimeoutError."""
        assert self.agreement is not None
        errand = self.agreement.forget(name)
        async with asyncio.timeout(timeout_s):
            await ended(errand)
        errand.result()
        # It is forgotten; the others are to know it before whoever asked asks one of them.
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_S):
                while name in self.member_names():
                    await asyncio.sleep(0.02)
                await ended(self.agreement.everywhere())

    async def drain(self, name: str, drained: bool, timeout_s: float) -> None:
        """Take a node out of service, or put it back. Raises ProposalError or TimeoutError."""
        errand = self._agreement().drain(name, drained)
        async with asyncio.timeout(timeout_s):
            await ended(errand)
        errand.result()

    def why_unreachable(self, name: str) -> str:
        """What the last try of a call came to."""
        assert self.links is not None
        for status in self.links.status():
            if status.name == name:
                return status.last_refusal or f"nobody answers at {status.address}"
        return "nobody answers"

    def block(self, peer: str, blocked: bool) -> None:
        """Let nothing through to and from another node, or again."""
        assert self.links is not None
        if blocked:
            self.links.block(peer)
        else:
            self.links.unblock(peer)

    def blocked(self) -> list[str]:
        """The nodes that are blocked so."""
        assert self.links is not None
        return [name for name in self.member_names() if self.links.is_blocked(name)]


async def ended(errand: Errand) -> None:
    """Until an errand is over."""
    over = asyncio.Event()
    errand.when_done(over.set)
    await over.wait()
