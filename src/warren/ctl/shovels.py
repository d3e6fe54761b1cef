"""Commands on shovels. They are made with `set_parameter shovel <name> <definition>`."""

from __future__ import annotations

from warren.ctl.client import granted
from warren.ctl.command import Command, Run, q
from warren.ctl.errors import BAD_DATA, CtlError

_COLUMNS = (
    "name",
    "vhost",
    "node",
    "state",
    "forwarded",
    "rate",
    "pending",
    "remaining",
    "src_uri",
    "src_queue",
    "dest_uri",
    "dest_queue",
    "reason",
    "last_error",
    "paused_by",
    "timestamp",
    "type",
)
_SHOWN = ("name", "vhost", "node", "state", "forwarded", "src_queue", "dest_queue", "reason")


def shovel_status(run: Run) -> None:
    run.banner(f"Shovel status on node {run.node_name()}")
    where = f"/shovels/{run.vhost_path}" if "vhost" in run.options else "/shovels"
    run.table(run.client.get(where), run.chosen_columns(_SHOWN))


def _place(run: Run) -> str:
    """The path of the shovel that is named. Raises CtlError when there is none."""
    answer = run.client.call("GET", f"/parameters/shovel/{run.vhost_path}/{q(run.word(0))}")
    if answer.status == 404:
        raise CtlError(
            BAD_DATA,
            f"Error:\nShovel with the given name was not found on the target node: {run.word(0)}",
        )
    granted(answer)
    return f"/shovels/vhost/{run.vhost_path}/{q(run.word(0))}"


def delete_shovel(run: Run) -> None:
    run.banner(f"Deleting shovel {run.word(0)} in vhost {run.vhost}")
    run.client.want("DELETE", _place(run))


def restart_shovel(run: Run) -> None:
    run.banner(f"Restarting dynamic Shovel {run.word(0)} in virtual host {run.vhost}")
    run.client.want("DELETE", f"{_place(run)}/restart")


def pause_shovel(run: Run) -> None:
    run.banner(f"Pausing shovel {run.word(0)} in vhost {run.vhost} ...")
    run.client.want("PUT", f"{_place(run)}/pause")


def resume_shovel(run: Run) -> None:
    run.banner(f"Resuming shovel {run.word(0)} in vhost {run.vhost} ...")
    run.client.want("PUT", f"{_place(run)}/resume")


COMMANDS = (
    Command(
        "shovel_status", "[column ...]", "Shows how shovels are doing", shovel_status, {}, _COLUMNS
    ),
    Command("delete_shovel", "<name>", "Ends a shovel and forgets it", delete_shovel),
    Command("restart_shovel", "<name>", "Begins a shovel anew", restart_shovel),
    Command(
        "pause_shovel", "<name>", "Has a shovel move nothing until it is resumed", pause_shovel
    ),
    Command("resume_shovel", "<name>", "Has a paused shovel go on", resume_shovel),
)
