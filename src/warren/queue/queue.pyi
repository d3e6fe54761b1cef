from typing import Literal

from warren.model.message import Message
from warren.model.ports import ConsumerPort, QueueEffects
from warren.queue.backlog import Backlog

OVERFLOW_MODES: dict[str, int]

class Queue(Backlog):
    dead_letters: bool
    single_active: bool
    consumers: list[ConsumerPort]
    active: ConsumerPort | None
    exclusive_consumer: ConsumerPort | None
    unacked: int
    open_mark: int
    published: int
    delivered: int
    delivered_no_ack: int
    got: int
    got_no_ack: int
    redelivered: int
    acked: int
    dropped: int
    def __init__(
        self,
        name: str,
        effects: QueueEffects,
        max_priority: int = -1,
        single_active: bool = False,
    ) -> None: ...
    def configure(
        self,
        ttl_ms: int = -1,
        max_length: int = -1,
        max_bytes: int = -1,
        overflow: str = "drop-head",
        delivery_limit: int = -1,
        dead_letters: bool = False,
        now_ms: int = 0,
    ) -> None: ...
    def expire(self, now_ms: int) -> None: ...
    def offer(self, message: Message, now_ms: int) -> bool: ...
    def pause_ended(self, delivered_before: int, now_ms: int) -> None: ...
    @property
    def deliveries(self) -> int: ...
    def watermark_kept(self, now_ms: int) -> None: ...
    def run(self, now_ms: int) -> None: ...
    def get(self, no_ack: bool, now_ms: int) -> tuple[Message, int, bool] | Literal[0] | None: ...
    def settle(self, how: str, slot: int) -> None: ...
    def purge(self) -> int: ...
    def add_consumer(self, consumer: ConsumerPort, exclusive: bool = False) -> None: ...
    def remove_consumer(self, consumer: ConsumerPort) -> None: ...
    @property
    def ready_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...
    def check(self) -> None: ...
