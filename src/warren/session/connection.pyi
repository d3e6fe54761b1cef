from collections.abc import Callable
from typing import Any

from warren.model.errors import AmqpError
from warren.model.ports import LinkPort
from warren.session.channel import Channel
from warren.session.outlet import Outlet

class Connection:
    engine: Any
    outlet: Outlet
    errand: Any
    token: str
    state: int
    bytes_in: int
    frames_in: int
    channel_max: int
    lingers: bool
    heartbeat_s: int
    user: str
    vhost: Any
    mechanism: str
    client_properties: dict[str, Any]
    capabilities: dict[str, Any]
    peer: Any
    name: str
    sasl: Any
    connected_at_ms: int
    blocked: bool
    close_reason: AmqpError | None
    exclusive_queues: set[str]
    on_end: Callable[[Connection], None] | None
    def __init__(self, engine: object, link: LinkPort, initial_frame_max: int = 8192) -> None: ...
    def receive(self, data: bytes, now_ms: int) -> int: ...
    @property
    def channel_count(self) -> int: ...
    def forget_channels(self) -> None: ...
    def open_channels(self) -> list[Channel]: ...
    def drop_channel(self, number: int) -> None: ...
    def fail(self, error: AmqpError, number: int) -> None: ...
    def close(self, error: AmqpError) -> None: ...
    def release(self) -> None: ...
    def finish(self) -> None: ...
    def send(self, number: int, name: str, *arguments: object) -> None: ...
    def became_writable(self) -> None: ...
    def accept_frames(self, frame_max: int) -> None: ...
