"""Has one of our programs parse command lines, and do nothing.

Standard input is JSON: the program, as `["-m", "bench"]` or `["tests/crash"]`, and its command
lines. Standard output is JSON: what is wrong with each, or null.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any

_parse = argparse.ArgumentParser.parse_args


class Parsed(BaseException):
    """A command line that is taken as it is; whatever the program guards against, not this."""


def parse_and_stop(parser: argparse.ArgumentParser, *args: Any, **options: Any) -> None:
    _parse(parser, *args, **options)
    raise Parsed


def wrong_with(program: list[str], words: list[str]) -> str | None:
    """What the program says of a command line; None if it would set to work."""
    told = io.StringIO()
    sys.argv = [program[-1], *words]
    try:
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
            if program[0] == "-m":
                runpy.run_module(program[1], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program[0], run_name="__main__")
    except Parsed:
        return None
    except SystemExit as ended:
        return f"it ended with {ended.code}: {told.getvalue()}"
    return f"it parses no command line: {told.getvalue()}"


def main() -> None:
    asked = json.load(sys.stdin)
    # Whatever waits for input gets none.
    sys.stdin = io.StringIO()
    program = asked["program"]
    own = Path.cwd() if program[0] == "-m" else Path(program[0]).absolute()
    sys.path.insert(0, str(own if own.is_dir() else own.parent))
    sys.path.insert(1, str(Path.cwd()))
    argparse.ArgumentParser.parse_args = parse_and_stop  # type: ignore[assignment]
    print(json.dumps([wrong_with(program, words) for words in asked["lines"]]))


if __name__ == "__main__":
    main()
