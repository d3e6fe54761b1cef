from typing import Any

from warren.model.message import Message
from warren.model.ports import ConsumerPort, QueuePort, Route, RouteBook
from warren.session.confirms import Confirms
from warren.session.deliveries import Deliveries
from warren.session.outlet import Outlet

class Consumer(ConsumerPort):
    channel: Channel
    tag: str
    queue: Any
    arguments: dict[str, Any]
    exclusive: bool
    cancelled: bool
    prefetch: int
    inflight: int
    delivered: int
    def __init__(
        self,
        channel: Channel,
        tag: str,
        queue: QueuePort | None,
        no_ack: bool,
        exclusive: bool = False,
        priority: int = 0,
        arguments: dict[str, Any] | None = None,
        prefetch: int = 0,
    ) -> None: ...
    def push(self, message: Message) -> None: ...
    def cancel(self) -> None: ...
    def move_to(self, queue: QueuePort) -> None: ...

def share_room(consumers: list[Consumer], first: int, now_ms: int) -> None: ...

class Channel:
    number: int
    connection: Any
    engine: Any
    outlet: Outlet
    closing: bool
    traced: bool
    last_queue: str | None
    confirms: Confirms | None
    transaction: list[Any] | None
    max_message_bytes: int
    books: dict[bytes, RouteBook]
    published: int
    acked: int
    redelivered: int
    deliveries: Deliveries
    consumers: dict[str, Consumer]
    prefetch: int
    global_prefetch: int
    inflight: int
    def __init__(
        self,
        connection: object,
        engine: object,
        outlet: Outlet,
        number: int,
        max_message_bytes: int,
    ) -> None: ...
    def find_route(self) -> Route: ...
    def forget_routes(self) -> None: ...
    def select_confirms(self) -> None: ...
    def release_confirms(self) -> None: ...
    def tell_confirms(self) -> None: ...
    @property
    def content_pending(self) -> bool: ...
    def settle_tag(self, tag: int, multiple: bool, how: str) -> None: ...
    def is_outstanding(self, tag: int) -> bool: ...
    def note_get(self, queue: QueuePort, slot: int, no_ack: bool) -> int: ...
    def disown(self, queue: QueuePort) -> None: ...
    def set_global_prefetch(self, limit: int) -> None: ...
    def wake_all(self) -> None: ...
    def requeue_all(self) -> None: ...
    def give_back_all(self) -> list[Any]: ...
