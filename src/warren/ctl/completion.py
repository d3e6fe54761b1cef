"""Scripts that have a shell complete commands, options and the names of queues and vhosts."""

from __future__ import annotations

from collections.abc import Sequence

from warren.ctl.command import GLOBAL_OPTIONS, Command
from warren.ctl.errors import usage

_BASH = """\
_warrenctl() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= one
    for one in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case " {commands} " in *" $one "*) command=$one; break;; esac
    done
    case $previous in
        -p|--vhost)
            one=$(warrenctl -s list_vhosts name 2>/dev/null)
            COMPREPLY=($(compgen -W "$one" -- "$word")); return;;
        --formatter) COMPREPLY=($(compgen -W "table pretty_table json csv" -- "$word")); return;;
    esac
    if [[ -z $command ]]; then
        COMPREPLY=($(compgen -W "{commands} {options}" -- "$word")); return
    fi
    local own=
    case $command in
{own}
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$own {options}" -- "$word")); return
    fi
    case $command in
        {queue_commands})
            one=$(warrenctl -s list_queues name 2>/dev/null)
            COMPREPLY=($(compgen -W "$one" -- "$word"));;
{columns}
    esac
}}
complete -F _warrenctl warrenctl
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
_FISH = """\
complete -c warrenctl -f
{commands}
{options}
complete -c warrenctl -n '__fish_seen_subcommand_from {queue_commands}' \
-a '(warrenctl -s list_queues name 2>/dev/null)'
"""
SHELLS = ("bash", "zsh", "fish")


def script(shell: str, commands: Sequence[Command]) -> str:
    """What the shell is to read. Raises CtlError for an unknown one."""
    if shell == "bash":
        return _bash(commands)
    if shell == "zsh":
        return _ZSH + _bash(commands)
    if shell == "fish":
        return _fish(commands)
    raise usage(f"completion is for one of {', '.join(SHELLS)}, not for '{shell}'")


def _queue_commands(commands: Sequence[Command]) -> list[str]:
    return sorted(command.name for command in commands if command.words.startswith("<queue>"))


def _bash(commands: Sequence[Command]) -> str:
    own = [
        f"        {command.name}) own='{' '.join(f'--{name}' for name in command.options)}';;"
        for command in commands
        if command.options
    ]
    columns = [
        f'        {command.name}) COMPREPLY=($(compgen -W "{" ".join(command.columns)}"'
        ' -- "$word"));;'
        for command in commands
        if command.columns
    ]
    return _BASH.format(
        commands=" ".join(sorted(command.name for command in commands)),
        options=" ".join(name for name in GLOBAL_OPTIONS if name.startswith("--")),
        own="\n".join(own),
        queue_commands="|".join(_queue_commands(commands)),
        columns="\n".join(columns),
    )


def _fish(commands: Sequence[Command]) -> str:
    lines = [
        f"complete -c warrenctl -n __fish_use_subcommand -a {command.name} "
        f"-d '{command.about.replace(chr(39), '')}'"
        for command in commands
    ]
    options = [
        f"complete -c warrenctl -l {name.removeprefix('--')}"
        for name in GLOBAL_OPTIONS
        if name.startswith("--")
    ]
    for command in commands:
        options += [
            f"complete -c warrenctl -n '__fish_seen_subcommand_from {command.name}' -l {name}"
            for name in command.options
        ]
    return _FISH.format(
        commands="\n".join(lines),
        options="\n".join(options),
        queue_commands=" ".join(_queue_commands(commands)),
    )
