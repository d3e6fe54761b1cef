import logging
import socket as socket_module
from collections.abc import Callable
from typing import Protocol

from warren.model.ports import FrameSink, PeerPort
from warren.net.hub import Hub

UNSENT_BYTES_MAX: int
CONTROL_FRAME_BYTES_MAX: int
PARTING_S: float

class LinkEvents(Protocol):
    def greeting_frame(self, link: PeerLink, kind: int, payload: bytes) -> None: ...
    def control_frame(self, link: PeerLink, kind: int, payload: bytes) -> None: ...
    def link_lost(self, link: PeerLink, reason: str) -> None: ...

class PeerLink(PeerPort):
    hub: Hub
    name: str
    dialled: bool
    closed: bool
    muted: bool
    opened_ms: int
    received_ms: int
    sent_ms: int
    bytes_in: int
    bytes_out: int
    window_bytes: int
    ring: FrameSink | None
    on_drained: Callable[[], None] | None
    def __init__(
        self,
        hub: Hub,
        events: LinkEvents,
        log: logging.Logger,
        name: str,
        dialled: bool,
        window_bytes: int,
    ) -> None: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def control_pending_bytes(self) -> int: ...
    @property
    def is_ready(self) -> bool: ...
    def hold_credit(self, held: bool) -> None: ...
    def ping(self) -> None: ...
    def flush(self) -> None: ...
    def become_ready(self, peer: str, incarnation: int) -> None: ...
    def part(self) -> None: ...
    def mute(self, muted: bool) -> None: ...
    def set_reading(self, reading: bool) -> None: ...
    def is_stuck(self, stuck_ms: int) -> bool: ...
    def lost(self, reason: str) -> None: ...
    def hang_up(self) -> None: ...

class SocketPeerLink(PeerLink):
    def __init__(
        self,
        hub: Hub,
        events: LinkEvents,
        log: logging.Logger,
        name: str,
        dialled: bool,
        window_bytes: int,
        socket: socket_module.socket,
    ) -> None: ...
