import socket as socket_module

from warren.model.ports import LinkPort
from warren.net.hub import Hub
from warren.session.connection import Connection

HOLD_S: float

class Link(LinkPort):
    hub: Hub
    connection: Connection
    closed: bool
    opened_ms: int
    received_ms: int
    sent_ms: int
    bytes_out: int
    def flush(self) -> None: ...
    def send_heartbeat(self) -> None: ...
    @property
    def is_paused(self) -> bool: ...
    @property
    def is_stalled(self) -> bool: ...
    def is_dead(self) -> bool: ...
    def lost(self) -> None: ...
    def close(self) -> None: ...

class SocketLink(Link):
    def __init__(self, hub: Hub, socket: socket_module.socket, peer: object, name: str) -> None: ...

class StreamLink(Link):
    def __init__(self, hub: Hub, peer: object, name: str) -> None: ...
