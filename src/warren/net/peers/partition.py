"""Artificial partitions, for tests and for trying out: peers that are cut off without a word.

A blocked peer must not see a reset or an end of the stream, since a network that is cut shows
neither. So links to it fall silent, and what would be closed meanwhile is only put aside.
"""

from __future__ import annotations

from collections import deque

from warren.net.peers.peer_link import PeerLink

#: Connections put aside for one peer; by the time there are more, it has given up the oldest.
ASIDE_MAX = 64


class Partition:
    """Who is blocked, and the connections that are kept open for no other reason."""

    def __init__(self) -> None:
        self._aside: dict[str, deque[PeerLink]] = {}

    @property
    def blocked(self) -> frozenset[str]:
        return frozenset(self._aside)

    def is_blocked(self, peer: str) -> bool:
        return peer in self._aside

    def block(self, peer: str) -> None:
        self._aside.setdefault(peer, deque())

    def unblock(self, peer: str) -> None:
        """What was put aside is closed now: the peer may see it."""
        for link in self._aside.pop(peer, ()):
            link.hang_up()

    def put_aside(self, peer: str, link: PeerLink) -> None:
        """The link is over, but its peer must not notice yet."""
        aside = self._aside.get(peer)
        if aside is None:
            link.hang_up()
            return
        aside.append(link)
        if len(aside) > ASIDE_MAX:
            aside.popleft().hang_up()

    def close(self) -> None:
        for peer in list(self._aside):
            self.unblock(peer)
