"""The one error of configuration: it holds every problem found, each with its place."""

from __future__ import annotations

from collections.abc import Sequence


class ConfigError(Exception):
    """The configuration cannot be used; `problems` has one line for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
