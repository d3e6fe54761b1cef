"""What people see at a terminal and pipes do not: colours, bars, whole screens.

`NO_COLOR` is obeyed. Elsewhere there are plain lines.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Self, TextIO

BAR_WIDTH = 30
#: A bar is drawn anew this often, a plain line is written this often.
BAR_S, LINE_S = 0.1, 2.0


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def has_colours(stream: TextIO) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def painted(text: str, colour: str, stream: TextIO | None = None) -> str:
    """The text in a colour (`bold`, `dim`, `red`, ...) where there are colours."""
    codes = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}
    if not has_colours(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{codes[colour]}m{text}\x1b[0m"


def size_text(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def without_control(text: str) -> str:
    """A text from elsewhere cannot move the cursor or change colours."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else f"\\x{ord(letter):02x}"
        for letter in text
    )


class Progress:
    """How far long work has come: a bar at a terminal, plain lines now and then elsewhere.

    Written to standard error, so that results can be piped. To be used with `with`, so that no bar
    is left behind by an error.
    """

    def __init__(self, what: str, total: int, quiet: bool = False) -> None:
        self._what = what
        self.total = max(total, 0)
        self._quiet = quiet
        self._is_bar = is_terminal(sys.stderr)
        self._begun_s = self._shown_s = time.monotonic()
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def show(self, done: int, note: str = "") -> None:
        """The work has come so far."""
        now_s = time.monotonic()
        if self._quiet or now_s - self._shown_s < (BAR_S if self._is_bar else LINE_S):
            return
        self._shown_s = now_s
        self._write(done, note)

    def _write(self, done: int, note: str) -> None:
        share = min(1.0, done / self.total) if self.total else 1.0
        text = f"{self._what} {share:4.0%}  {done:,} of {max(self.total, done):,}"
        spent_s = time.monotonic() - self._begun_s
        if 0 < share < 1 and spent_s > 1:
            text += f"  {spent_s / share - spent_s:.0f} s left"
        text += f"  {note}" if note else ""
        if not self._is_bar:
            print(text, file=sys.stderr, flush=True)
            return
        full = int(share * BAR_WIDTH)
        bar = "█" * full + "░" * (BAR_WIDTH - full)
        sys.stderr.write(f"\r\x1b[K{bar} {text}")
        sys.stderr.flush()
        self._is_drawn = True

    def end(self) -> None:
        """The work is over: a bar is wiped away."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False
