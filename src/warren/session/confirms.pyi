class Confirms:
    last: int
    told: int
    def outstanding(self) -> int: ...
