from warren.model.errand import Errand
from warren.model.ports import PublisherPort, TurnClock

class Commit(PublisherPort):
    refused: bool
    mark: int
    errand: Errand
    def __init__(self, turn: TurnClock) -> None: ...
    def begin(self) -> None: ...
    def end(self) -> bool: ...
