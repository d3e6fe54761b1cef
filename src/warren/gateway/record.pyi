from warren.model.ports import PublisherPort

class GatewayRecord(PublisherPort):
    last: int
    done: int
    count: int
    open_count: int
    @property
    def refused_count(self) -> int: ...
    def queue_left(self, number: int, tell: bool = True) -> None: ...
