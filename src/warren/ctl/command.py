"""What a command is: its words, its options, what it does; and how a command line becomes one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from warren.ctl.client import Client
from warren.ctl.errors import usage
from warren.ctl.output import ALIGNED, FORMATTERS, Row, render

#: Options that every command takes: spellings -> (name, whether a value follows).
GLOBAL_OPTIONS = {
    "-n": ("node", True),
    "--node": ("node", True),
    "-p": ("vhost", True),
    "--vhost": ("vhost", True),
    "-q": ("quiet", False),
    "--quiet": ("quiet", False),
    "-s": ("silent", False),
    "--silent": ("silent", False),
    "-t": ("timeout", True),
    "--timeout": ("timeout", True),
    "-l": ("longnames", False),
    "--longnames": ("longnames", False),
    "--formatter": ("formatter", True),
    "--json": ("json", False),
    "--no-table-headers": ("no-table-headers", False),
    "--url": ("url", True),
    "--help": ("help", False),
    "-h": ("help", False),
}


#: Options of some commands that have a short spelling too.
SHORT = {"-f": "follow", "-c": "count"}
#: Options that may be given several times: the values are gathered, a line each.
REPEATED = {"match"}


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the table of commands."""

    name: str
    #: The words after the name: `<needed>`, `[optional]`, `[many ...]`.
    words: str
    about: str
    run: Callable[[Run], None]
    #: Options of its own: name -> whether a value follows.
    options: dict[str, bool] = field(default_factory=dict)
    #: Lists what it can show, and shows by default, if it prints a table.
    columns: Sequence[str] = ()
    #: What its words and options mean, where that needs saying: (as it is written, meaning).
    notes: Sequence[tuple[str, str]] = ()

    @property
    def least(self) -> int:
        return self.words.count("<")

    @property
    def most(self) -> int | None:
        """None: any number."""
        return None if "..." in self.words else self.words.count("<") + self.words.count("[")

    @property
    def usage(self) -> str:
        own = "".join(
            f" [--{name}{' <' + name + '>' if takes else ''}]"
            for name, takes in self.options.items()
        )
        words = f" {self.words}" if self.words else ""
        return f"warrenctl [-n <node>] [-t <seconds>] [-q] {self.name}{own}{words}"


@dataclass(slots=True)
class Run:
    """One run of a command."""

    command: Command
    client: Client
    words: list[str]
    options: dict[str, str]

    @property
    def vhost(self) -> str:
        return self.options.get("vhost", "/")

    @property
    def vhost_path(self) -> str:
        return q(self.vhost)

    @property
    def formatter(self) -> str:
        if "json" in self.options:
            return "json"
        chosen = self.options.get("formatter", "table")
        if chosen not in FORMATTERS:
            raise usage(f"formatter '{chosen}' is not one of {', '.join(FORMATTERS)}")
        return chosen

    def word(self, number: int, default: str = "") -> str:
        return self.words[number] if number < len(self.words) else default

    def banner(self, text: str) -> None:
        """What is about to happen; to standard error, so that a pipe gets the results alone."""
        machine = self.formatter in {"json", "csv"}
        if not machine and not self.is_quiet:
            print(text, file=sys.stderr, flush=True)

    @property
    def is_quiet(self) -> bool:
        """Nothing is said beside results."""
        return bool({"quiet", "silent"} & set(self.options))

    def say(self, text: str) -> None:
        """A result."""
        print(text, flush=True)

    def table(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        from warren.ctl.terminal import is_terminal

        headers = not {"silent", "no-table-headers"} & set(self.options)
        formatter = self.formatter
        if formatter == "table" and "formatter" not in self.options and is_terminal(sys.stdout):
            # People want columns below each other; programs read what goes into a pipe.
            formatter = ALIGNED
        lines = render(list(rows), columns, formatter, headers)
        sys.stdout.write("".join(f"{line}\n" for line in lines))

    def chosen_columns(self, default: Sequence[str]) -> list[str]:
        """The columns in the words of a list command. Raises CtlError for unknown ones."""
        asked = [column for word in self.words for column in word.split(",") if column]
        for column in asked:
            if column not in self.command.columns:
                from warren.base.text import nearest

                guess = nearest(column, self.command.columns)
                hint = f". Did you mean '{guess}'?" if guess is not None else ""
                raise usage(f"Info key {column} is not supported{hint}")
        return asked or list(default)

    def node_name(self) -> str:
        """The name of the node spoken to."""
        return str(self.client.get("/overview?columns=node")["node"])


def q(name: str) -> str:
    """A name as a step of a path."""
    return quote(name, safe="")


def parse(arguments: Sequence[str], own: dict[str, bool]) -> tuple[list[str], dict[str, str]]:
    """Words and options, wherever they stand. Raises CtlError."""
    words: list[str] = []
    options: dict[str, str] = {}
    waiting = list(arguments)
    while waiting:
        given = waiting.pop(0)
        if given == "--":
            words += waiting
            break
        if not given.startswith("-") or given == "-" or _is_number(given):
            words.append(given)
            continue
        spelled, has_value, value = given.partition("=")
        if spelled in GLOBAL_OPTIONS:
            name, takes = GLOBAL_OPTIONS[spelled]
        elif SHORT.get(spelled) in own:
            name, takes = SHORT[spelled], own[SHORT[spelled]]
        elif spelled.startswith("--") and spelled[2:] in own:
            name, takes = spelled[2:], own[spelled[2:]]
        else:
            raise usage(f"invalid option {spelled}{_guess(spelled, own)}")
        if takes and not has_value:
            if not waiting:
                raise usage(f"option {spelled} needs a value")
            value = waiting.pop(0)
        if name in REPEATED and name in options:
            value = f"{options[name]}\n{value}"
        options[name] = value
    return words, options


def _guess(spelled: str, own: dict[str, bool]) -> str:
    from warren.base.text import nearest

    guess = nearest(spelled, [*(f"--{name}" for name in own), *GLOBAL_OPTIONS])
    return f". Did you mean {guess}?" if guess is not None else ""


def _is_number(text: str) -> bool:
    return text[1:].isdigit()


def number(text: str, name: str) -> int:
    """A whole number in a word or an option. Raises CtlError."""
    try:
        return int(text)
    except ValueError:
        raise usage(f"{name} must be a whole number, not '{text}'") from None


def json_value(text: str) -> Any:
    """JSON in a word. Raises CtlError."""
    import json

    from warren.ctl.errors import BAD_DATA, CtlError

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Of two values for a key one would be forgotten without a word."""
        found = dict(pairs)
        twice = [key for key in found if sum(key == name for name, _ in pairs) > 1]
        if twice:
            raise CtlError(BAD_DATA, f"Error:\nValidation failed\n\n{twice[0]} is given twice\n")
        return found

    try:
        return json.loads(text, object_pairs_hook=whole)
    except ValueError as error:
        raise CtlError(BAD_DATA, f"Error:\nCould not parse JSON document: {error}") from error
