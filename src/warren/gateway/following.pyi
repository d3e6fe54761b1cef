from warren.gateway.stream import Stream
from warren.gateway.unanswered import Following
from warren.model.message import Message
from warren.model.ports import JournalPort, PublisherPort, QueuePort

class FollowingQueue(Following):
    gateway: Stream
    number: int
    following: bool
    holding: bool
    absent: bool
    order: int
    held_count: int
    stashed_count: int
    def follow(self, gateway: Stream, holding: bool = False) -> None: ...
    def follow_again(self) -> None: ...
    def continue_from(self, order: int, attempt: int) -> None: ...
    def hold_again(
        self, message: Message | None, publisher: PublisherPort, tag: int, order: int
    ) -> None: ...
    def refuse_all(self, over: bool = False) -> None: ...
    def publish_to(
        self, target: QueuePort, gateway: int, now_ms: int, journal: JournalPort | None = None
    ) -> None: ...
    def now_holding(self) -> None: ...
