import asyncio

from warren.net.peers.peer_link import PeerLink

class StreamPeerLink(PeerLink, asyncio.Protocol): ...
