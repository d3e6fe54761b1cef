class Made:
    def lag_behind(
        self, position: int, last: int, now_ms: int
    ) -> tuple[int | None, int | None]: ...
