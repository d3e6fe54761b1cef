"""Words for people: the nearest known word, and values written the way operators know them.

RabbitMQ's messages show values as Erlang terms (`<<"a">>`, `[1,2]`); tools and people match on
those texts, so ours are written the same way. Patterns of policies and
permissions share one compiler.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping

#: How alike two words must be (0..1) before one is offered in place of the other.
NEAREST_CUTOFF = 0.6
#: Compiled patterns kept; a broker has a handful of policies and permissions, seldom thousands.
PATTERNS_CACHED_MAX = 4096


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, or None when nothing comes close."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=NEAREST_CUTOFF)
    return found[0] if found else None


def erlang_term(value: object) -> str:
    """`value` as an Erlang term, as RabbitMQ's error texts show it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'<<"{escaped}">>'
    if isinstance(value, bytes):
        return f"<<{','.join(str(octet) for octet in value)}>>"
    if isinstance(value, Mapping):
        pairs = (f"{erlang_term(key)} => {erlang_term(item)}" for key, item in value.items())
        return f"#{{{','.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(erlang_term(item) for item in value)}]"
    return str(value)


@functools.lru_cache(maxsize=PATTERNS_CACHED_MAX)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an operator's pattern; raises PatternError with what is wrong and where."""
    try:
        return re.compile(pattern)
    except re.error as error:
        position = error.pos if error.pos is not None else 0
        raise PatternError(error.msg, position) from error
    except (OverflowError, RecursionError) as error:
        raise PatternError(str(error), 0) from error


class PatternError(ValueError):
    """A pattern that is not a regular expression."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f'{{"{reason}",{position}}}')
        self.reason = reason
        self.position = position
