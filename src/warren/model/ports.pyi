from collections.abc import Callable
from typing import Any

from warren.model.message import Address

class PublisherPort: ...

TIME_BOUNDS_US: tuple[int, ...]

class Times:
    total_us: int
    def buckets(self) -> list[int]: ...

class TurnClock:
    now_ms: int
    now_us: int
    heard_us: int
    confirm_times: Times
    publisher: PublisherPort | None
    publish_tag: int
    parts: int
    def end(self) -> None: ...

class ConsumerPort:
    priority: int
    no_ack: bool
    available: bool

class MirrorPort:
    commit_index: int
    acts: bool
    paused: bool
    promises: bool
    congested: bool
    def change_cursors(self, operation: bytes) -> int: ...
    def when_committed(self, index: int, action: Callable[[], object]) -> None: ...

class QueuePort:
    mirror: MirrorPort | None
    far: bool
    congested: bool
    queue_id: int
    durable: bool
    epoch: int
    operations: int
    def check_drained(self) -> None: ...

class JournalPort:
    persisted: int
    persisted_end: int
    commit_mark: int
    resident_bytes: int
    confirming: list[Any]
    replaying: bool
    behind: bool
    staged: bool

class QueueEffects:
    pending: bool

class LinkPort:
    def hold(self, queue: QueuePort) -> None: ...
    def set_blocked(self, blocked: bool) -> None: ...

class FrameSink:
    def link_lost(self) -> None: ...

class PeerPort:
    peer: str
    incarnation: int
    sink: FrameSink
    def send(self, kind: int, payload: bytes) -> None: ...

class PublishCounts:
    received: int
    routed: int

class Route:
    counts: PublishCounts
    address: Address
    queues: tuple[Any, ...]
    valid: bool
    plain: bool
    far: bool
    exchange: Any
    def __init__(
        self, address: Address, exchange: object, queues: tuple[Any, ...], plain: bool
    ) -> None: ...

class RouteBook:
    routes: dict[bytes, Route]
    def forget(self) -> None: ...
    def forget_key(self, routing_key: bytes) -> None: ...
