class Confirms:
    last: int
    settled: int
    told: int
    def outstanding(self) -> int: ...
