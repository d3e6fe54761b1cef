"""What pages show: blocks of code, and the commands in them and between backticks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What the roadmap names may not be there yet.
PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    *(
        str(page.relative_to(ROOT))
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.name != "roadmap.md"
    ),
]
#: `console`: commands after `$ `, and what they print; `text`: whatever nobody types.
LANGUAGES = {"console", "ini", "json", "python", "sql", "text"}
#: Words between backticks that begin with one of these are a command; alone they are a name.
PROGRAMS = {
    "make",
    "warren",
    "warrenctl",
    "python",
    ".venv/bin/python",
    "pip",
    "rabbitmqctl",
    "spark-submit",
    "zip",
    "opentelemetry-instrument",
}
_BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.M | re.S)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
#: Four spaces after an empty line are a block of code, too, and its language cannot be told.
_INDENTED = re.compile(r"\n\n {4}\S.*", re.M)


@dataclass(frozen=True)
class Block:
    """A piece of code between fences."""

    page: str
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command as it is shown; the lines of a long one are one, without a comment at its end."""

    page: str
    text: str
    is_inline: bool = False

    @property
    def program(self) -> str:
        return self.text.split()[0]

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def blocks(page: str) -> list[Block]:
    return [Block(page, *found) for found in _BLOCK.findall((ROOT / page).read_text())]


def indented(page: str) -> list[str]:
    """Blocks that are none by their fences."""
    return _INDENTED.findall(_BLOCK.sub("", (ROOT / page).read_text()))


def shown_commands(block: Block) -> list[Command]:
    """The commands of a console."""
    found: list[str] = []
    is_open = False
    for line in block.text.splitlines():
        if line.startswith("$ ") and not is_open:
            found.append(line[2:].partition("  #")[0].rstrip())
        elif is_open:
            found[-1] = f"{found[-1].removesuffix(chr(92))}\n{line}"
        is_open = bool(found) and (found[-1].endswith("\\") or found[-1].count("'") % 2 == 1)
    return [Command(block.page, text) for text in found]


def inline(page: str) -> list[str]:
    """Code between backticks, which may go over the end of a line."""
    text = _BLOCK.sub("", (ROOT / page).read_text())
    return [" ".join(code.split()) for code in _INLINE.findall(text)]


def inline_commands(page: str) -> list[Command]:
    """The commands among it, each once."""
    return [
        Command(page, piece, True)
        for piece in dict.fromkeys(inline(page))
        if piece.split(" ")[0] in PROGRAMS and " " in piece
    ]


def commands(page: str) -> list[Command]:
    """All commands of a page: those of consoles in their order, then those in its sentences."""
    consoles = [block for block in blocks(page) if block.language == "console"]
    return [
        *(command for block in consoles for command in shown_commands(block)),
        *inline_commands(page),
    ]
