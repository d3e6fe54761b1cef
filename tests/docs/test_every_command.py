"""Every command that a page shows is run by a test, or parsed by its program, or says why not."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import pytest
from pages import LANGUAGES, PAGES, ROOT, Command, blocks, commands, indented
from plan import PLAN, way_of
from ways import (
    By,
    Parsed,
    words_of,
    wrong_with_make,
    wrong_with_pip,
    wrong_with_programs,
    wrong_with_warren,
)

ALL = [command for page in PAGES for command in commands(page)]
#: What cannot be checked at all; a new one needs a good reason.
NEVER_MAX = 2


def parsed(*programs: str) -> list[Command]:
    """Those of some programs that are not run."""
    return [c for c in ALL if c.program in programs and isinstance(way_of(c), Parsed)]


@pytest.mark.parametrize("page", PAGES)
def test_code_says_what_it_is(page: str) -> None:
    """Else nobody could tell a command from what it prints."""
    assert indented(page) == [], "fence it, with a language"
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.language}: {block.text}"
        if block.language == "console":
            assert block.text.startswith("$ "), block.text
        if block.language == "text":
            assert not block.text.startswith("$ "), f"a console: {block.text}"
        if block.language == "json":
            json.loads(block.text)


def test_every_command_has_its_test() -> None:
    missing = [str(command) for command in ALL if way_of(command) is None]
    assert missing == [], "no test runs these: see tests/docs/plan.py"
    assert len(ALL) > 150


def test_the_plan_is_no_longer_than_the_pages() -> None:
    for page, text, way in PLAN:
        fitting = [c for c in ALL if fnmatchcase(c.page, page) and fnmatchcase(c.text, text)]
        assert any(way_of(command) == way for command in fitting), f"{page}: {text}: {way}"
    never = [way for _, _, way in PLAN if not isinstance(way, By | Parsed)]
    assert len(never) <= NEVER_MAX


@pytest.mark.parametrize("test", sorted({way.test for _, _, way in PLAN if isinstance(way, By)}))
def test_the_tests_are_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(), test


def test_python_on_the_pages_is_run() -> None:
    """test_pages runs what is on its pages, tests/spark what is on that of Spark."""
    pages = {block.page for page in PAGES for block in blocks(page) if block.language == "python"}
    assert pages == {"README.md", "docs/testing.md", "docs/spark.md"}


@pytest.mark.parametrize("words", sorted({tuple(words_of(c)) for c in parsed("make")}))
def test_make_knows_it(words: tuple[str, ...]) -> None:
    assert wrong_with_make([*words]) is None


def test_our_programs_take_their_options() -> None:
    """Those of the pages, and those that targets of make start with what a page gives them."""
    assert wrong_with_programs(parsed("make", "python", ".venv/bin/python")) == []


@pytest.mark.parametrize("command", parsed("warren"), ids=str)
def test_warren_takes_its_options(command: Command) -> None:
    assert wrong_with_warren(words_of(command)) is None


@pytest.mark.parametrize("command", [c for c in ALL if c.program == "pip"], ids=str)
def test_what_pip_installs_is_ours(command: Command) -> None:
    assert wrong_with_pip(words_of(command)) is None


def test_what_is_wrong_is_seen() -> None:
    """The checks above can fail."""
    assert way_of(Command("docs/new.md", "docker run warren")) is None
    assert wrong_with_make(["make", "coffee"]) == "the Makefile has no coffee"
    assert wrong_with_make(["make", "sim", "SEED=3"]) == "the Makefile has no SEED"
    for line in ('make bench BENCH="--onyl store"', "python tests/cluster/faults.py --nodes x"):
        (told,) = wrong_with_programs([Command("docs/new.md", line)])
        assert "error: " in told
    assert wrong_with_warren(["warren", "cluster", "kil", "2"]) == "there is no kil 2"
    assert wrong_with_warren(["warren", "serve", "--conf", "x", "y", "--z"]) is not None
    assert wrong_with_warren(["warren", "pipeline", "audit", "--jornal", "x"]) is not None
    assert wrong_with_pip(["pip", "install", "warren"]) == "warren is not ours"
    assert wrong_with_pip(["pip", "install", ".[park]"]) == "there is no extra park"
