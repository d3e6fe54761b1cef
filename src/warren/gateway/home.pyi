from collections.abc import Callable
from typing import Any

from warren.gateway.lending import RemoteConsumer
from warren.gateway.record import GatewayRecord
from warren.model.ports import FrameSink, JournalPort, PeerPort, QueuePort, TurnClock

class HomeEnd(FrameSink):
    port: PeerPort | None
    record: GatewayRecord
    queues: dict[int, QueuePort]
    on_request: Callable[[HomeEnd, int, int, bytes], None] | None
    on_consumer_gone: Callable[[RemoteConsumer], None] | None
    def __init__(
        self,
        port: PeerPort,
        record: GatewayRecord,
        queues: dict[int, QueuePort],
        turn: TurnClock,
        journal: JournalPort | None = None,
    ) -> None: ...
    def answer_now(self) -> None: ...
    def queue_left(self, number: int) -> None: ...
    def is_dropped(self, number: int) -> bool: ...
    def moved_on(self) -> None: ...
    def release_confirms(self) -> None: ...
    def reply(self, request_id: int, ok: bool, payload: bytes) -> None: ...
    def add_consumer(
        self,
        queue_number: int,
        number: int,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
        prefetch: int = 0,
        arguments: dict[str, Any] | None = None,
        tag: str = "",
        channel: Any = None,
    ) -> RemoteConsumer: ...
    def remove_consumer(self, number: int) -> RemoteConsumer | None: ...
    def adopt(self, number: int, slots: list[int], owners: list[int]) -> list[int]: ...
    def lend(self, queue_number: int, slot: int) -> None: ...
    @property
    def loan_count(self) -> int: ...
    def all_consumers(self) -> list[RemoteConsumer]: ...
