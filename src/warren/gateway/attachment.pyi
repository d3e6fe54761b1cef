from typing import Any

from warren.model.ports import ConsumerPort

class Attachment:
    consumer: ConsumerPort
    queue: Any
    number: int
    count: int
