from typing import Any

from warren.model.ports import ConsumerPort, PeerPort

class Loan:
    queue: Any
    number: int
    @property
    def out(self) -> int: ...

class RemoteConsumer(ConsumerPort):
    home: Any
    number: int
    loan: Loan
    port: PeerPort | None
    auto_ack: bool
    exclusive: bool
    cancelled: bool
    prefetch: int
    inflight: int
    delivered: int
    tag: str
    channel: Any
    arguments: dict[str, Any]
    def cancel(self) -> None: ...
    def detach(self) -> None: ...
    @property
    def queue(self) -> Any: ...
    @property
    def credit(self) -> int: ...
