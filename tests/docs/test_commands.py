"""Every command that any page names is there: targets of make, warrenctl, warren, our scripts."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from warren.config import load_settings
from warren.ctl.main import find
from warren.node.cli import main

ROOT = Path(__file__).parents[2]
WAIT_S = 60
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    # What the roadmap names is not there yet.
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name != "roadmap.md"),
]
#: Code between backticks, which may go over the end of a line, and blocks of code.
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def pieces(page: Path) -> list[str]:
    """All code of a page, a line of a block at a time."""
    text = page.read_text()
    lines = [
        line.removeprefix("$ ").partition("  #")[0].strip()
        for _, block in _BLOCK.findall(text)
        for line in block.splitlines()
    ]
    inline = _INLINE.findall(_BLOCK.sub("", text))
    return [*lines, *(" ".join(code.split()) for code in inline)]


def commands(start: str) -> list[tuple[str, list[str]]]:
    """(page, words) of every piece of code that begins with a word."""
    found = []
    for page in PAGES:
        for piece in pieces(page):
            if piece.split(" ")[0] == start:
                try:
                    found.append((str(page.relative_to(ROOT)), shlex.split(piece)))
                except ValueError:
                    continue  # an apostrophe of prose, or half a command
    return found


def makefile() -> str:
    return (ROOT / "Makefile").read_text()


def test_targets_of_make() -> None:
    named = commands("make")
    assert len(named) > 10
    for page, words in named:
        targets = [word for word in words[1:] if "=" not in word]
        for target in targets:
            assert re.search(rf"^{target}:", makefile(), re.M), f"{page}: make {target}"
        for variable in [word.partition("=")[0] for word in words[1:] if "=" in word]:
            assert re.search(rf"^{variable} \?=", makefile(), re.M), f"{page}: {variable}="


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


def scripts() -> list[tuple[str, str, list[str]]]:
    """(page, script, options) of our programs that a page calls."""
    found = []
    for start in ("python", ".venv/bin/python"):
        for page, words in commands(start):
            if len(words) > 1 and words[1].endswith(".py") and words[1].startswith("tests/"):
                options = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
                found.append((page, words[1], options))
    return found


@pytest.mark.parametrize(("page", "script", "options"), scripts())
def test_scripts_and_their_options(page: str, script: str, options: list[str]) -> None:
    assert (ROOT / script).exists(), page
    if options:
        done = subprocess.run(
            [sys.executable, script, "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        )
        for option in options:
            assert option in done.stdout, f"{page}: {script} {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configurations_are_accepted(page: Path, tmp_path: Path) -> None:
    for language, text in _BLOCK.findall(page.read_text()):
        if language == "ini":
            (tmp_path / "rabbitmq.conf").write_text(text)
            load_settings(tmp_path / "rabbitmq.conf", {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_are_there(page: Path) -> None:
    """`tests/...`, `bench/...` and `docs/...` between backticks are paths of this tree."""
    for piece in pieces(page):
        for path in re.findall(r"^(?:tests|bench|docs|src)/[\w./-]+$", piece):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
