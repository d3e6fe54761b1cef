"""How the commands on the pages are checked: run by a test, parsed by the program, or why not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

import click
from pages import ROOT, Command

from warren.node.cli import main as warren
from warren.spark.pipelines.main import make_parser

WAIT_S = 120
#: Words that stand for something, and what they are parsed as.
STANDING_FOR = {"SEED": "7", "N": "3", "W": "W1", "PATH": "/tmp"}
#: Their recipes call make, which runs even where make is to show only what it would do.
MAKE_IN_MAKE = {"check", "test"}


@dataclass(frozen=True)
class By:
    """A test runs it: `tests/docs/test_pages.py::test_this`."""

    test: str


@dataclass(frozen=True)
class Parsed:
    """It takes long, or other machines: the program takes the command line, and another test
    shows that the program does its work."""

    why: str


@dataclass(frozen=True)
class Never:
    """Nothing here can run or parse it."""

    why: str


Way = By | Parsed | Never


def words_of(command: Command) -> list[str]:
    text = command.text.replace("\\\n", " ")
    return [STANDING_FOR.get(word, word) for word in shlex.split(text)]


# -- make ------------------------------------------------------------------------------------------


def wrong_with_make(words: list[str]) -> str | None:
    """Unknown targets and variables; make itself says which."""
    text = (ROOT / "Makefile").read_text()
    for word in words[1:]:
        name, equals, _ = word.partition("=")
        wanted = rf"^{name} \?=" if equals else rf"^{name}:"
        if not re.search(wanted, text, re.M):
            return f"the Makefile has no {name}"
    return None


@cache
def recipe(target: str, variables: tuple[str, ...]) -> list[list[str]]:
    """The words of each command that make would run, `cd` and variables before it left out."""
    if target in MAKE_IN_MAKE:
        return []
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", target, *variables],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=WAIT_S, check=True,
    )  # fmt: skip
    pieces = [piece for line in done.stdout.splitlines() for piece in line.split(" && ")]
    found = []
    for piece in pieces:
        try:
            words = shlex.split(piece)
        except ValueError:
            continue  # a line of a longer script, which is none of our programs
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        found.append(words)
    return found


# -- our programs ----------------------------------------------------------------------------------


def programs_in(words: list[str]) -> list[tuple[tuple[str, ...], list[str]]]:
    """(program, its words) of what a command starts: itself, or what its make target does."""
    lines = recipe(words[1], (*words[2:],)) if words[0] == "make" else [words]
    found = []
    for line in lines:
        if len(line) < 2 or not line[0].endswith("python"):
            continue
        size = 2 if line[1] == "-m" else 1
        program = tuple(line[1 : 1 + size])
        if program[0] == "-m" or program[0].startswith("tests/"):
            found.append((program, line[1 + size :]))
    return found


def wrong_with_programs(commands: list[Command]) -> list[str]:
    """What our programs say of the command lines; each program is started once."""
    lines: dict[tuple[str, ...], dict[tuple[str, ...], Command]] = defaultdict(dict)
    for command in commands:
        for program, words in programs_in(words_of(command)):
            if program[0] != "tests/step.py":
                lines[program].setdefault(tuple(words), command)
    wrong = []
    for program, asked in lines.items():
        if not parses(program):
            # It would set to work at once.
            wrong += [
                f"{command}: it takes no options" for words, command in asked.items() if words
            ]
            continue
        for (words, command), told in zip(asked.items(), _told(program, [*asked]), strict=True):
            if told is not None:
                wrong.append(f"{command}: {' '.join([*program, *words])}: {told}")
    return wrong


def parses(program: tuple[str, ...]) -> bool:
    """Whether a program of ours looks at its words before it does anything."""
    place = ROOT / program[-1]
    if program[0] == "-m":
        place = ROOT / ("bench" if program[1] == "bench" else f"tests/{program[1]}")
    sources = sorted(place.glob("*.py")) if place.is_dir() else [place]
    return any(".ArgumentParser(" in source.read_text() for source in sources)


def _told(program: tuple[str, ...], lines: list[tuple[str, ...]]) -> list[str | None]:
    # The simulator's modules are in tests/, from where make starts it.
    place = ROOT / "tests" if program == ("-m", "sim") else ROOT
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "docs" / "parse_only.py"],
        cwd=place, input=json.dumps({"program": program, "lines": lines}),
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (program, done.stderr)
    told: list[str | None] = json.loads(done.stdout)
    return told


def wrong_with_warren(words: list[str]) -> str | None:
    """Options and arguments of `warren ...`."""
    if words[1:2] == ["pipeline"]:
        return _wrong_with_pipeline(words[2:])
    command: Any = warren
    rest = words[1:]
    context = click.Context(warren)
    while isinstance(command, click.Group) and rest:
        options = command.make_parser(context).parse_args(rest)[1]
        found = command.get_command(context, options[0]) if options else None
        if found is None:
            return f"there is no {' '.join(rest)}"
        command, rest = found, options[1:]
        context = click.Context(command, parent=context)
    try:
        command.make_parser(context).parse_args(rest)
    except click.UsageError as error:
        return error.message
    return None


def _wrong_with_pipeline(words: list[str]) -> str | None:
    if words in ([], ["NAME"], ["NAME", "--help"]):
        return None
    try:
        make_parser().parse_args(words)
    except SystemExit:
        return "its parser refuses it"
    return None


def wrong_with_pip(words: list[str]) -> str | None:
    """What is to be installed: this tree, an extra of it, or what tests have installed, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if words[-1] in project["optional-dependencies"]["dev"]:
        return None
    found = re.fullmatch(rf"(?:{project['name']}|\.)(?:\[(\w+)\])?", words[-1])
    if found is None:
        return f"{words[-1]} is not ours"
    extra = found.group(1)
    known = extra is None or extra in project["optional-dependencies"]
    return None if known else f"there is no extra {extra}"
