"""Which regular expressions may run on the broker's loop.

Python's matcher tries all ways to match and cannot be stopped. A repetition inside a repetition, or
a choice inside one, has ways beyond counting, so these are refused, and many repetitions in a row
as well. What people filter names by has none of it.
"""

from __future__ import annotations

import re
from typing import Any

#: Each of them may multiply the time by the length of a name.
REPEATS_MAX = 4
PATTERN_CHARACTERS_MAX = 256

_parser: Any = getattr(re, "_parser")  # noqa: B009 - where the standard library keeps its parser
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT"}
#: So often repeated is as good as without end.
_MANY = 16


def is_cheap(pattern: str) -> bool:
    """Whether matching a name takes a time that nobody notices."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return False
    count = _Count()
    return count.visit(_parser.parse(pattern), False) and count.repeats <= REPEATS_MAX


class _Count:
    """Walks through a parsed pattern."""

    def __init__(self) -> None:
        self.repeats = 0

    def visit(self, node: Any, inside: bool) -> bool:
        """False when something repeats, or is chosen, inside a repetition."""
        for code, value in node:
            name = str(code)
            if name in _REPEATS:
                _, most, body = value
                is_many = int(most) >= _MANY
                if is_many and inside:
                    return False
                self.repeats += is_many
                if not self.visit(body, inside or is_many):
                    return False
            elif name == "BRANCH":
                if inside or not all(self.visit(choice, inside) for choice in value[1]):
                    return False
            elif name == "SUBPATTERN":
                if not self.visit(value[3], inside):
                    return False
            elif name in {"ASSERT", "ASSERT_NOT"}:
                if not self.visit(value[1], inside):
                    return False
            elif name in {"GROUPREF", "GROUPREF_EXISTS"}:
                return False
        return True
