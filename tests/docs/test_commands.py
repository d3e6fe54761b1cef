"""What any page names is there: commands of warrenctl and warren, keys, files of this tree."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pages import PAGES, ROOT, blocks, inline

from warren.config import load_settings
from warren.ctl.main import find
from warren.node.cli import main


def pieces(page: str) -> list[str]:
    """All code of a page, a line of a block at a time."""
    lines = [
        line.removeprefix("$ ").partition("  #")[0].strip()
        for block in blocks(page)
        for line in block.text.splitlines()
    ]
    return [*lines, *inline(page)]


def commands(start: str) -> list[tuple[str, list[str]]]:
    """(page, words) of every piece of code that begins with a word."""
    found = []
    for page in PAGES:
        for piece in pieces(page):
            if piece.split(" ")[0] == start:
                try:
                    found.append((page, shlex.split(piece)))
                except ValueError:
                    continue  # an apostrophe of prose, or half a command
    return found


def test_commands_of_warrenctl() -> None:
    named = commands("warrenctl")
    assert len(named) > 10
    for page, words in named:
        rest = words[1:]
        while rest and rest[0].startswith("-"):
            # -n and -t have a value of their own.
            rest = rest[2:] if rest[0] in {"-n", "-t"} else rest[1:]
        if rest and re.fullmatch(r"[a-z_]+", rest[0]):
            known = find(rest[0]) is not None or rest[0] in {"help", "completion", "autocomplete"}
            assert known, f"{page}: {' '.join(words)}"


def test_commands_of_warren() -> None:
    named = commands("warren")
    assert len(named) > 5
    for page, words in named:
        group: object = main
        for word in words[1:]:
            subcommands = getattr(group, "commands", None)
            if subcommands is None or not re.fullmatch(r"[a-z-]+", word):
                break
            assert word in subcommands, f"{page}: {' '.join(words)}"
            group = subcommands[word]


@pytest.mark.parametrize("page", PAGES)
def test_configurations_are_accepted(page: str, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.language == "ini":
            (tmp_path / "rabbitmq.conf").write_text(block.text)
            load_settings(tmp_path / "rabbitmq.conf", {})


@pytest.mark.parametrize("page", PAGES)
def test_files_that_pages_name_are_there(page: str) -> None:
    """`tests/...`, `bench/...` and `docs/...` between backticks are paths of this tree."""
    for piece in pieces(page):
        for path in re.findall(r"^(?:tests|bench|docs|src)/[\w./-]+$", piece):
            assert (ROOT / path).exists(), f"{page}: {path}"
