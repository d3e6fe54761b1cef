"""What a network of nodes asks of its owner; the defaults let everybody in and take nothing."""

from __future__ import annotations

from warren.model.ports import FrameSink
from warren.net.peers.handshake import Hello, Refusal
from warren.net.peers.peer_link import PeerLink
from warren.net.peers.python_sink import PythonSink


class PeerOwner:
    """Calls come inside a turn. ValueError from `on_control`: the peer is broken, its link ends."""

    def accept(self, _hello: Hello) -> Refusal | None:
        """Whether a node may have a link, in either direction; it has proved the secret.

        Its cluster id may be empty, when it is about to join, and so may ours.
        """
        return None

    def make_gateway_sink(self, _link: PeerLink) -> FrameSink:
        """Who takes what comes back on a link that we dialled."""
        return PythonSink()

    def make_home_sink(self, _link: PeerLink) -> FrameSink:
        """Who takes what comes on a link that was accepted; an older one has been closed."""
        return PythonSink()

    def make_ring_sink(self, _link: PeerLink) -> FrameSink | None:
        """Who takes the ring frames of a link that was accepted."""
        return None

    def on_control(self, peer: str, kind: int, payload: bytes) -> None:
        """A control frame came, on either link."""

    def on_up(self, peer: str, incarnation: int) -> None:
        """Our link to the peer is ready: `send` works."""

    def on_down(self, peer: str) -> None:
        """Our link to the peer is over, after its sink was told."""

    def on_refused(self, peer: str) -> None:
        """The peer's port is closed: its process is gone."""
