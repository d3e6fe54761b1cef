"""The `warrenctl` command: finds the command that is meant and runs it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from warren.ctl.client import make_client
from warren.ctl.command import GLOBAL_OPTIONS, Command, Run, number, parse
from warren.ctl.errors import SOFTWARE, USAGE, CtlError

#: Where commands are found: the title in the help, and the module.
GROUPS = (
    ("Lists", "lists"),
    ("Users, permissions, virtual hosts", "access"),
    ("Policies, parameters, definitions", "policies"),
    ("Nodes, health, operations", "operate"),
    ("Mirrored queues", "mirrors"),
    ("Spreading masters", "rebalance"),
    ("Salvage", "salvage"),
    ("Running nodes", "runtime"),
    ("Cluster", "cluster"),
    ("Upgrades and repairs", "upgrade"),
    ("Messages", "messages"),
    ("Shovels", "shovels"),
    ("Live", "live"),
    ("The screen", "top"),
    ("Speed", "bench"),
    ("Trouble", "doctor"),
)
#: What these do is the same on every node of a cluster, so that none has to be named.
WIDE_MODULES = {
    "lists",
    "access",
    "policies",
    "mirrors",
    "rebalance",
    "salvage",
    "messages",
    "shovels",
    "top",
    "bench",
}
WIDE_COMMANDS = {
    "cluster_status",
    "cluster_name",
    "set_cluster_name",
    "await_online_nodes",
    "close_connection",
    "close_all_connections",
    "close_all_user_connections",
    "delete_queue",
    "purge_queue",
    "pause_queue",
    "resume_queue",
}
#: For the names in the help; longer ones push the text to the right.
NAME_ROOM = 29


def main() -> None:
    """The entry point of the script."""
    raise SystemExit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line; its exit status."""
    try:
        return _run(arguments)
    except CtlError as error:
        print(error, file=sys.stderr)
        return error.status
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


def _run(arguments: Sequence[str]) -> int:
    name = _command_word(arguments)
    if name is None and "--version" in arguments:
        name, arguments = "version", ["version"]
    if name is None or name == "help":
        return _help(arguments)
    if name in {"completion", "autocomplete"}:
        return _completion(arguments)
    command = find(name)
    if command is None:
        return _unknown(name)
    rest = list(arguments)
    rest.remove(name)
    words, options = parse(rest, command.options)
    if "help" in options:
        print(_usage_text(command))
        return 0
    if len(words) < command.least or (command.most is not None and len(words) > command.most):
        kind = "not enough" if len(words) < command.least else "too many"
        given = "".join(f"\n\t{word}" for word in (name, *words))
        text = f"Error (argument validation): {kind} arguments.\nArguments given:{given}"
        raise CtlError(USAGE, f"{text}\n\nUsage\n\n{command.usage}")
    timeout_s = number(options["timeout"], "timeout") if "timeout" in options else 60
    client = make_client(
        options.get("node"), options.get("url"), timeout_s or None, _is_wide(command, options)
    )
    one = Run(command, client, words, options)
    # A wrong formatter is told before anything is done.
    _ = one.formatter
    try:
        command.run(one)
    except (KeyError, TypeError, ValueError) as error:
        raise CtlError(
            SOFTWARE, f"Error: the node's answer makes no sense here: {error!r}"
        ) from error
    return 0


def _is_wide(command: Command, options: Mapping[str, str]) -> bool:
    """Whether any node of a cluster may do it."""
    module = command.run.__module__.rpartition(".")[2]
    is_wide = module in WIDE_MODULES or command.name in WIDE_COMMANDS
    # Lists are of one node with --local, events of all nodes with --all.
    return (is_wide and "local" not in options) or (command.name == "events" and "all" in options)


def _command_word(arguments: Sequence[str]) -> str | None:
    """The first word that is neither an option nor the value of one."""
    skip = False
    for given in arguments:
        if skip:
            skip = False
        elif given.startswith("-"):
            spelled, has_value, _ = given.partition("=")
            skip = not has_value and GLOBAL_OPTIONS.get(spelled, ("", False))[1]
        else:
            return given
    return None


def commands() -> list[Command]:
    """All commands there are."""
    return [command for _, module in GROUPS for command in _commands_of(module)]


def _commands_of(module: str) -> Sequence[Command]:
    found: Sequence[Command] = import_module(f"warren.ctl.{module}").COMMANDS
    return found


def find(name: str) -> Command | None:
    """The command of a name; dashes count as underscores. Modules are imported as needed."""
    name = name.replace("-", "_")
    # Nearly all lists are in the first module: the others stay out of it.
    for _, module in GROUPS:
        for command in _commands_of(module):
            if command.name == name:
                return command
    return None


def _unknown(name: str) -> int:
    from warren.base.text import nearest

    print(f"\nCommand '{name}' not found.", file=sys.stderr)
    guess = nearest(name, [command.name for command in commands()])
    if guess is not None:
        print(f"Did you mean '{guess}'?", file=sys.stderr)
    return USAGE


def _usage_text(command: Command) -> str:
    text = f"\nUsage\n\n{command.usage}\n\n{command.about}"
    if command.columns:
        text += "\n\nColumns: " + ", ".join(command.columns)
    if command.notes:
        room = max(len(word) for word, _ in command.notes)
        text += "\n\n" + "\n".join(f"   {word:<{room}}  {what}" for word, what in command.notes)
    return text


def _help(arguments: Sequence[str]) -> int:
    words, options = parse(arguments, {})
    words = [word for word in words if word != "help"]
    if words:
        command = find(words[0])
        if command is None:
            return _unknown(words[0])
        print(_usage_text(command))
        return 0
    print("\nUsage\n\nwarrenctl [-n <node>] [-t <seconds>] [-q] <command> [<options>]\n")
    print("Available commands:")
    for title, module in GROUPS:
        print(f"\n{title}:\n")
        for command in _commands_of(module):
            print(_line_of(command))
    print("\nUse 'warrenctl help <command>' to learn more about a specific command")
    return 0 if _command_word(arguments) == "help" or "help" in options else USAGE


def _line_of(command: Command) -> str:
    """One line for programs; on a terminal as many as it takes, none of them cut."""
    line = f"   {command.name:<{NAME_ROOM}} {command.about}"
    if not sys.stdout.isatty():
        return line
    import shutil
    import textwrap

    indent = " " * (NAME_ROOM + 4)
    width = max(60, shutil.get_terminal_size().columns - 1)
    return textwrap.fill(
        line, width, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False
    )


def _completion(arguments: Sequence[str]) -> int:
    """A script for the shell, or the commands that begin as a word does."""
    from warren.ctl.completion import SHELLS, script

    words = parse(arguments, {})[0][1:]
    if words and words[0] not in SHELLS and _command_word(arguments) == "autocomplete":
        names = sorted(command.name for command in commands())
        print("\n".join(name for name in names if name.startswith(words[0])))
        return 0
    print(script(words[0] if words else "bash", commands()), end="")
    return 0


if __name__ == "__main__":
    main()
