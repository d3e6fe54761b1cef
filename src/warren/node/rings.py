"""The rings of mirrored queues on a node: their frames on its links, and its end as a master."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from warren.engine.mirrors import Mirrors
from warren.engine.ring_sink import RING_PIECE, RING_WHOLE, RingSink

if TYPE_CHECKING:
    from warren.cluster.metadata import ViewCommand
    from warren.model.errand import Errand
    from warren.net.peers.network import PeerNetwork
    from warren.net.peers.peer_link import PeerLink
    from warren.node.node import Node

#: Longer ring frames go in pieces: a frame between nodes has at most 1 MiB.
PIECE_BYTES = 1 << 19
#: How long a stopping node waits until others are the masters of its queues, in seconds.
HAND_OVER_S = 5.0


class Rings:
    """Without a data directory there are none: copies of queues are kept on the disk or not at all.

    `links` gives the links once there are any, `change_view` proposes to the others.
    """

    def __init__(
        self,
        node: Node,
        links: Callable[[], PeerNetwork | None],
        change_view: Callable[[ViewCommand], Errand],
    ) -> None:
        self._node = node
        self._links = links
        self.mirrors: Mirrors | None = None
        if node.data_dir is not None:
            self.mirrors = Mirrors(node.engine, self._send, change_view)
            node.engine.mirrors = self.mirrors

    @property
    def are_damaged(self) -> bool:
        """Whether a copy may lack something that it had."""
        return self.mirrors is not None and self.mirrors.is_damaged

    @property
    def are_cut(self) -> bool:
        """Whether the log's end could not be read, so that it may have had more."""
        return self.mirrors is not None and self.mirrors.is_cut

    def start(self, incarnation: int) -> None:
        """What was on the disk is here, and this is the node's present life."""
        if self.mirrors is not None:
            self.mirrors.start(incarnation)

    def make_sink(self, link: PeerLink) -> RingSink | None:
        """Who takes the ring frames of a link that was accepted."""
        if self.mirrors is None:
            return None
        sink = RingSink(link.peer, self.mirrors.ring_frame)
        self.mirrors.peer_up(link.peer)
        return sink

    def _send(self, peer: str, frame: bytes) -> None:
        """Without a link it is lost; whoever needs it greets again on the next one."""
        links = self._links()
        link = None if links is None else links.link_to(peer)
        if link is None:
            return
        last = (len(frame) - 1) // PIECE_BYTES * PIECE_BYTES
        for at in range(0, last, PIECE_BYTES):
            link.send(RING_PIECE, frame[at : at + PIECE_BYTES])
        link.send(RING_WHOLE, frame[last:] if last else frame)

    def peer_up(self, peer: str) -> None:
        """There is a new link to a node."""
        if self.mirrors is not None:
            self.mirrors.peer_up(peer)

    def peer_down(self, peer: str) -> None:
        """It is gone."""
        if self.mirrors is not None:
            self.mirrors.peer_down(peer)

    async def hand_over(self) -> None:
        """Before the node stops: other replicas become masters, where there are any in sync."""
        mirrors = self.mirrors
        if self._links() is None or self._node.failure.error is not None:
            return
        mastered = [] if mirrors is None else mirrors.mastered()
        if mirrors is None or not self._node.in_turn(mirrors.hand_over_all):
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + HAND_OVER_S
        # Whoever left before the next master serves would be missed in its ring, and what is with
        # clients would come again, as if this node had died.
        while loop.time() < deadline_s and (
            mirrors.is_handing_over or any(mirror.awaits_heir for mirror in mastered)
        ):
            await asyncio.sleep(0.01)
