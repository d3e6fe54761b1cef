"""Commands on policies, parameters and definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warren.ctl.command import Command, Run, json_value, number, q
from warren.ctl.errors import BAD_DATA, CtlError

_COLUMNS = ("vhost", "name", "pattern", "apply-to", "definition", "priority")


#: Exchanges, queues and bindings imported with one request.
IMPORTED_AT_A_TIME = 2000


def _set(run: Run, kind: str, noun: str, apply_to: str) -> None:
    name, pattern, definition = run.words
    priority = run.options.get("priority", "0")
    run.banner(
        f'Setting {noun} "{name}" for pattern "{pattern}" to "{definition}" '
        f'with priority "{priority}" for vhost "{run.vhost}" ...'
    )
    body = {
        "pattern": pattern,
        "definition": json_value(definition),
        "priority": number(priority, "priority"),
        "apply-to": run.options.get("apply-to", apply_to),
    }
    try:
        run.client.want("PUT", f"/{kind}/{run.vhost_path}/{q(name)}", body)
    except CtlError as error:
        hint = _hint(body["definition"])
        raise CtlError(
            error.status, f"{str(error).rstrip()}{hint}" if hint else str(error)
        ) from None


def _hint(definition: object) -> str:
    """RabbitMQ's texts, which say what is wrong, do not say what would be right."""
    from warren.base.text import nearest
    from warren.model.policy_keys import HA_MODES, VALIDATORS

    if not isinstance(definition, dict):
        return ""
    hints = []
    for key in definition:
        if key not in VALIDATORS:
            guess = nearest(key, VALIDATORS)
            hints += [] if guess is None else [f"Did you mean '{guess}' instead of '{key}'?"]
    mode = definition.get("ha-mode")
    if mode is not None and mode not in HA_MODES:
        hints.append(f"ha-mode is one of {', '.join(HA_MODES)}")
    return "".join(f"\n{hint}" for hint in hints)


def _clear(run: Run, kind: str, noun: str) -> None:
    name = run.word(0)
    run.banner(f'Clearing {noun} "{name}" on vhost "{run.vhost}" ...')
    if run.client.call("GET", f"/{kind}/{run.vhost_path}/{q(name)}").status == 404:
        raise CtlError(BAD_DATA, f"Error:\n{noun} '{name}' does not exist in vhost '{run.vhost}'")
    run.client.want("DELETE", f"/{kind}/{run.vhost_path}/{q(name)}")


def _list(run: Run, kind: str, noun: str) -> None:
    run.banner(f'Listing {noun} for vhost "{run.vhost}" ...')
    rows = run.client.get(f"/{kind}/{run.vhost_path}")
    if run.formatter != "json":
        rows = [{**row, "definition": _compact(row["definition"])} for row in rows]
    run.table(rows, _COLUMNS)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def set_policy(run: Run) -> None:
    _set(run, "policies", "policy", "all")


def clear_policy(run: Run) -> None:
    _clear(run, "policies", "policy")


def list_policies(run: Run) -> None:
    _list(run, "policies", "policies")


def set_operator_policy(run: Run) -> None:
    _set(run, "operator-policies", "operator policy override", "queues")


def clear_operator_policy(run: Run) -> None:
    _clear(run, "operator-policies", "operator policy")


def list_operator_policies(run: Run) -> None:
    _list(run, "operator-policies", "operator policy overrides")


def list_policies_that_match(run: Run) -> None:
    """The policy that governs a queue comes first; the others would follow it."""
    import re

    name = run.word(0)
    run.banner(f"Listing policies that match queue '{name}' in vhost '{run.vhost}' ...")
    run.client.get(f"/queues/{run.vhost_path}/{q(name)}?columns=name")
    rows = [
        {**row, "definition": _compact(row["definition"])}
        for row in run.client.get(f"/policies/{run.vhost_path}")
        if row["apply-to"] != "exchanges" and re.search(row["pattern"], name)
    ]
    rows.sort(key=lambda row: (-row["priority"], row["name"]))
    run.table(rows, ("name", "pattern", "apply-to", "definition", "priority"))


def set_parameter(run: Run) -> None:
    component, name, value = run.words
    run.banner(f'Setting runtime parameter "{name}" for component "{component}" ...')
    place = f"/parameters/{q(component)}/{run.vhost_path}/{q(name)}"
    run.client.want("PUT", place, {"value": json_value(value)})


def clear_parameter(run: Run) -> None:
    component, name = run.words
    run.banner(f'Clearing runtime parameter "{name}" for component "{component}" ...')
    run.client.want("DELETE", f"/parameters/{q(component)}/{run.vhost_path}/{q(name)}")


def list_parameters(run: Run) -> None:
    run.banner(f'Listing runtime parameters for vhost "{run.vhost}" ...')
    rows = [
        {**row, "value": _compact(row["value"])}
        for row in run.client.get("/parameters")
        if row["vhost"] == run.vhost
    ]
    run.table(rows, ("component", "name", "value"))


def set_global_parameter(run: Run) -> None:
    name, value = run.words
    run.banner(f'Setting global runtime parameter "{name}" to "{value}" ...')
    run.client.want("PUT", f"/global-parameters/{q(name)}", {"value": json_value(value)})


def clear_global_parameter(run: Run) -> None:
    run.banner(f'Clearing global runtime parameter "{run.word(0)}" ...')
    run.client.want("DELETE", f"/global-parameters/{q(run.word(0))}")


def list_global_parameters(run: Run) -> None:
    run.banner("Listing global runtime parameters ...")
    rows = [
        {**row, "value": _compact(row["value"])} for row in run.client.get("/global-parameters")
    ]
    run.table(rows, ("name", "value"))


def export_definitions(run: Run) -> None:
    """To a file, or to standard output for `-`."""
    path = run.word(0)
    definitions = run.client.get("/definitions")
    if path == "-":
        run.say(json.dumps(definitions, ensure_ascii=False))
        return
    run.banner(f"Exporting definitions in JSON to a file at {path!r} ...")
    try:
        Path(path).write_text(json.dumps(definitions, ensure_ascii=False, indent=2) + "\n")
    except OSError as error:
        raise CtlError(BAD_DATA, f"Error:\ncannot write {path}: {error.strerror}") from error


def import_definitions(run: Run) -> None:
    """From a file, or from standard input for `-` or no word at all."""
    import sys

    path = run.word(0, "-")
    run.banner("Importing definitions in JSON ...")
    try:
        document = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CtlError(BAD_DATA, f"Error:\ncannot read {path}: {error.strerror}") from error
    _import(run, document)
    run.say("Successfully started definition import. This process is synchronous: it is done.")


def _import(run: Run, document: bytes) -> None:
    """All at once, or some thousands at a time so that there is progress to be seen."""
    try:
        whole = json.loads(document)
    except ValueError:
        whole = None
    many = ("exchanges", "queues", "bindings")
    if not isinstance(whole, dict) or not all(isinstance(whole.get(k, []), list) for k in many):
        # The node says what is wrong with it.
        run.client.want("POST", "/definitions", document)
        return
    rows = [(kind, row) for kind in many for row in whole.get(kind, [])]
    if len(rows) <= IMPORTED_AT_A_TIME:
        run.client.want("POST", "/definitions", document)
        return
    from warren.ctl.terminal import Progress

    with Progress("imported", len(rows), run.is_quiet) as progress:
        # What the rest stands on comes first: users, virtual hosts, permissions, policies.
        run.client.want("POST", "/definitions", {**whole, **{kind: [] for kind in many}})
        for at in range(0, len(rows), IMPORTED_AT_A_TIME):
            piece: dict[str, list[object]] = {}
            for kind, row in rows[at : at + IMPORTED_AT_A_TIME]:
                piece.setdefault(kind, []).append(row)
            run.client.want("POST", "/definitions", piece)
            progress.show(min(len(rows), at + IMPORTED_AT_A_TIME))


_POLICY_OPTIONS = {"priority": True, "apply-to": True}
_POLICY_NOTES = (
    ("<pattern>", "a regular expression: '^orders' is every name that begins so"),
    ("<definition>", """JSON, as in '{"ha-mode": "all", "ha-sync-mode": "automatic"}'"""),
    ("--apply-to", "queues, exchanges or all"),
    ("--priority", "the highest of those that match a name counts, and that one alone"),
)
_POLICY_WORDS = "<name> <pattern> <definition>"

COMMANDS = (
    Command(
        "set_policy",
        _POLICY_WORDS,
        "Sets or updates a policy",
        set_policy,
        _POLICY_OPTIONS,
        notes=_POLICY_NOTES,
    ),
    Command("clear_policy", "<name>", "Clears (removes) a policy", clear_policy),
    Command("list_policies", "", "Lists all policies in a virtual host", list_policies),
    Command(
        "set_operator_policy",
        _POLICY_WORDS,
        "Sets an operator policy",
        set_operator_policy,
        _POLICY_OPTIONS,
        notes=_POLICY_NOTES,
    ),
    Command("clear_operator_policy", "<name>", "Clears an operator policy", clear_operator_policy),
    Command("list_operator_policies", "", "Lists operator policies", list_operator_policies),
    Command(
        "list_policies_that_match",
        "<queue>",
        "Lists all policies that match a queue, the one in force first",
        list_policies_that_match,
    ),
    Command(
        "set_parameter", "<component> <name> <value>", "Sets a runtime parameter", set_parameter
    ),
    Command("clear_parameter", "<component> <name>", "Clears a runtime parameter", clear_parameter),
    Command("list_parameters", "", "Lists runtime parameters of a vhost", list_parameters),
    Command(
        "set_global_parameter",
        "<name> <value>",
        "Sets a global runtime parameter",
        set_global_parameter,
    ),
    Command(
        "clear_global_parameter",
        "<name>",
        "Clears a global runtime parameter",
        clear_global_parameter,
    ),
    Command(
        "list_global_parameters", "", "Lists global runtime parameters", list_global_parameters
    ),
    Command(
        "export_definitions", "<file>", "Exports definitions in JSON; - prints", export_definitions
    ),
    Command(
        "import_definitions", "[file]", "Imports definitions in JSON; - reads", import_definitions
    ),
)
