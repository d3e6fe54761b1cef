from warren.model.ports import QueuePort

class Unanswered:
    count: int
    answered: int
    size: int

class Following(QueuePort):
    sent: int
    attempt: int
    def now_holding(self) -> None: ...
