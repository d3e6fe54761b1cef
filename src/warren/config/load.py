"""Makes one `Settings` from the file, the environment and the command line.

Precedence: flag, then environment, then file, then default. All problems are reported together,
each with its place, what was expected and, for an unknown key, the nearest known one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from warren.base.text import nearest
from warren.config.cluster import cluster_problems, cluster_warnings
from warren.config.environment import environment_values, listener_entries, lookup
from warren.config.errors import ConfigError
from warren.config.file import Entry, configuration_files, read_entries
from warren.config.schema import Key, find_key, has_no_effect_yet, known_names_like
from warren.config.settings import Settings


def load_settings(
    path: Path | str | None, env: Mapping[str, str], overrides: Mapping[str, object] | None = None
) -> Settings:
    """The settings of a node, or ConfigError with everything that is wrong.

    `path` is a file or a directory of files; None takes what the environment names, else no file.
    `overrides` are keys of the configuration file, given by flags.
    """
    from_file = _Layer()
    for file in _files(path, env):
        from_file.add(read_entries(file))
    from_environment = _Layer()
    from_environment.add(listener_entries(env))
    from_flags = _Layer()
    from_flags.add(
        Entry(name, _flag_text(value), f"flag {name}") for name, value in (overrides or {}).items()
    )
    problems = [*from_file.problems, *from_environment.problems, *from_flags.problems]
    variables: dict[str, object] = {}
    try:
        variables = environment_values(env)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    settings = from_file.apply(Settings())
    settings = _filled(settings, variables)
    settings = from_flags.apply(from_environment.apply(settings))
    idle = sorted({*from_file.idle, *from_environment.idle, *from_flags.idle})
    given = from_file.given | from_environment.given | from_flags.given
    problems = cluster_problems(settings.cluster)
    if problems:
        raise ConfigError(problems)
    return dataclasses.replace(
        settings,
        without_effect=tuple(idle),
        warnings=tuple(cluster_warnings(settings.cluster)),
        given=frozenset(given),
    )


def _files(path: Path | str | None, env: Mapping[str, str]) -> list[Path]:
    if path is not None:
        return configuration_files(Path(path))
    files: list[Path] = []
    for name in ("CONFIG_FILE", "CONFIG_FILES"):
        found = lookup(env, name)
        if found is not None:
            files += [file for file in _globbed(found[1]) if file not in files]
    return files


def _globbed(pattern: str) -> list[Path]:
    named = Path(pattern)
    if "*" in named.name:
        return sorted(named.parent.glob(named.name))
    return configuration_files(named)


def _flag_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class _Layer:
    """The settings of one source, gathered key by key."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        #: Keys given that nothing obeys yet.
        self.idle: set[str] = set()
        #: All keys given.
        self.given: set[str] = set()
        self._values: dict[str, object] = {}
        self._gathered: dict[str, tuple[Key, dict[str, Any]]] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        """Take the entries of a file; a later entry for the same key replaces an earlier one."""
        try:
            for entry in entries:
                self._take(entry)
        except ConfigError as error:
            self.problems += error.problems

    def apply(self, settings: Settings) -> Settings:
        """The settings with this source's values in place of theirs."""
        values = dict(self._values)
        for path, (key, gathered) in self._gathered.items():
            values[path] = _shaped(key, gathered, _current(settings, path))
        return _filled(settings, values)

    def _take(self, entry: Entry) -> None:
        found = find_key(entry.segments)
        if found is None:
            guess = nearest(entry.name, known_names_like(entry.segments))
            hint = f"; did you mean '{guess}'?" if guess is not None else ""
            self.problems.append(f"{entry.source}: unknown key '{entry.name}'{hint}")
            return
        key, chosen = found
        try:
            value = key.kind.parse(entry.value)
        except ValueError:
            given = "" if key.kind.secret else f" = '{entry.value}'"
            self.problems.append(
                f"{entry.source}: {entry.name}{given}: expected {key.kind.expected}"
            )
            return
        self.given.add(entry.name)
        if has_no_effect_yet(entry.name):
            self.idle.add(entry.name)
        self._keep(key, chosen, entry, value)

    def _keep(self, key: Key, chosen: tuple[str, ...], entry: Entry, value: object) -> None:
        if key.shape == "one":
            self._values[key.path] = value
            self._gathered.pop(key.path, None)
            return
        self._values.pop(key.path, None)
        _, gathered = self._gathered.setdefault(key.path, (key, {}))
        if key.shape == "records":
            place = key.name.split(".").index("*")
            attribute = ".".join(entry.segments[place + 1 :])
            gathered.setdefault(chosen[0], {})[attribute] = value
        else:
            gathered[".".join(chosen)] = value


def _shaped(key: Key, gathered: dict[str, Any], current: Any) -> object:
    if key.shape == "list":
        return tuple(gathered[name] for name in sorted(gathered, key=_list_position))
    if key.shape == "flags":
        return tuple(name for name, on in gathered.items() if on)
    if key.shape == "flags_added":
        names = dict.fromkeys([*current, *gathered])
        return tuple(name for name in names if gathered.get(name, True))
    return {**current, **gathered}


def _list_position(name: str) -> tuple[bool, int, str]:
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)


def _current(settings: Settings, path: str) -> Any:
    value: Any = settings
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _filled(settings: Settings, values: Mapping[str, object]) -> Settings:
    filled: Any = settings
    for path, value in values.items():
        filled = _with_value(filled, path.split("."), value)
    result: Settings = filled
    return result


def _with_value(node: Any, parts: list[str], value: object) -> Any:
    first, rest = parts[0], parts[1:]
    if isinstance(node, Mapping):
        return {**node, first: value}
    below = _with_value(getattr(node, first), rest, value) if rest else value
    return dataclasses.replace(node, **{first: below})
