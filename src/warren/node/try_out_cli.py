"""`warren cluster`: a cluster on this machine, to try things out with."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from warren.node.local_nodes import LocalNode
    from warren.node.try_out import NodeState, TryOut

#: Between two looks at a log that is followed.
FOLLOW_S = 0.2
#: The highest first port whose link ports are still ports.
FIRST_PORT_MAX = 45_000


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Errors in words, and exit code 1."""
    from warren.node.local_nodes import LocalNodeError
    from warren.node.try_out import TryOutError

    try:
        yield
    except (TryOutError, LocalNodeError) as error:
        click.echo(f"warren cluster: {error}", err=True)
        raise SystemExit(1) from error
    except OSError as error:
        if error.filename is None:
            raise
        told = f"{error.filename} cannot be used: {error.strerror}"
        click.echo(f"warren cluster: {told}; --dir names another place", err=True)
        raise SystemExit(1) from error


def _try_out(run: Callable[..., None]) -> Callable[..., None]:
    """A command that gets the cluster of the chosen directory first."""

    @click.pass_obj
    @functools.wraps(run)
    def wrapped(directory: Path, *args: Any, **options: Any) -> None:
        from warren.node.try_out import TryOut

        with _told():
            run(TryOut(directory), *args, **options)

    return wrapped


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=".warren",
    show_default=True,
    help="Where the nodes' files are.",
)
@click.pass_context
def cluster(context: click.Context, directory: Path) -> None:
    """Run a cluster on this machine, to try things out with.

    A node N is named by its number, as in: warren cluster kill 2
    """
    context.obj = directory


@cluster.command()
@click.option(
    "-n", "count", type=click.IntRange(1, 9), help="How many nodes; 3, or as many as there are."
)
@click.option(
    "--port",
    type=click.IntRange(1024, FIRST_PORT_MAX),
    help="AMQP port of the first node, 5672 if not given; the next ones follow.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A key of rabbitmq.conf for all nodes, from their next start on, as in: "
    "--set cluster_partition_handling=autoheal",
)
@_try_out
def up(try_out: TryOut, count: int | None, port: int | None, settings: Sequence[str]) -> None:
    """Start the nodes that do not run, and wait until all are ready."""
    pairs = [text.partition("=") for text in settings]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise click.BadParameter("give it as KEY=VALUE", param_hint="--set")
    told = {key.strip(): value.strip() for key, _, value in pairs}
    _check_settings(told)

    def on_start(nodes: Sequence[LocalNode]) -> None:
        if nodes:
            click.echo(f"starting {', '.join(node.name for node in nodes)} ...", err=True)

    def on_ready(node: LocalNode) -> None:
        click.echo(f"  {node.name} is ready", err=True)

    started = try_out.up(count, port, on_start, on_ready, told)
    if not started:
        later = ": what was set counts when they are started again" if told else ""
        click.echo(f"all nodes run already{later}", err=True)
    states = try_out.status()
    click.echo(_table(states))
    click.echo(_next_commands(try_out, [state.node for state in states]))


def _check_settings(told: Mapping[str, str]) -> None:
    """A key that keeps nodes from starting must not be kept: they would never start again."""
    from warren.config.errors import ConfigError
    from warren.config.load import load_settings

    try:
        load_settings(None, {}, told)
    except ConfigError as error:
        raise click.BadParameter("; ".join(error.problems), param_hint="--set") from error


@cluster.command()
@_try_out
def status(try_out: TryOut) -> None:
    """Show the nodes and where they are."""
    click.echo(_table(try_out.status()))


@cluster.command()
@click.argument("n")
@_try_out
def kill(try_out: TryOut, n: str) -> None:
    """End node N at once, as a crash would."""
    node = try_out.node(n)
    click.echo(f"{node.name} {'killed' if try_out.kill(node) else 'does not run'}")


@cluster.command()
@click.argument("n")
@_try_out
def stop(try_out: TryOut, n: str) -> None:
    """Stop node N in good order, and wait for its end."""
    node = try_out.node(n)
    click.echo(f"{node.name} {'stopped' if try_out.stop(node) else 'does not run'}")


@cluster.command()
@click.argument("n")
@click.option("--no-wait", is_flag=True, help="Return at once: it may need others to get ready.")
@_try_out
def start(try_out: TryOut, n: str, no_wait: bool) -> None:
    """Start node N again, and wait until it is ready."""
    node = try_out.node(n)
    done = "starts" if no_wait else "is ready"
    click.echo(f"{node.name} {done if try_out.start(node, not no_wait) else 'runs already'}")


@cluster.command()
@click.argument("a")
@click.argument("b")
@_try_out
def partition(try_out: TryOut, a: str, b: str) -> None:
    """Let nothing through between nodes A and B."""
    one, other = try_out.node(a), try_out.node(b)
    try_out.partition(one, other)
    click.echo(f"{one.name} and {other.name} are parted; undo it with: warren cluster heal")


@cluster.command()
@_try_out
def heal(try_out: TryOut) -> None:
    """Let everything through between all nodes."""
    pairs = try_out.heal()
    for one, other in pairs:
        click.echo(f"{one} hears {other} again")
    if not pairs:
        click.echo("no nodes were parted")


@cluster.command()
@click.option("--wipe", is_flag=True, help="Remove the nodes' files too.")
@_try_out
def down(try_out: TryOut, wipe: bool) -> None:
    """Stop all nodes."""
    if not try_out.exists:
        click.echo(f"there is no cluster in {try_out.directory}")
        return
    ended = try_out.down(wipe)
    click.echo(f"stopped {', '.join(n.name for n in ended)}" if ended else "no node was running")
    if wipe:
        click.echo(f"removed {try_out.directory}")
        return
    size = try_out.size_bytes() / 1e6
    click.echo(
        f"{size:.1f} MB remain in {try_out.directory}: warren cluster up goes on with them, "
        "warren cluster down --wipe removes them"
    )


@cluster.command()
@click.argument("n")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows, until Ctrl-C.")
@_try_out
def logs(try_out: TryOut, n: str, follow: bool) -> None:
    """Print the log of node N."""
    path = try_out.node(n).log
    if not path.exists():
        return
    with path.open(errors="replace") as file, contextlib.suppress(KeyboardInterrupt):
        while True:
            click.echo(file.read(), nl=False)
            if not follow:
                return
            time.sleep(FOLLOW_S)


_TITLES = ("node", "pid", "state", "AMQP", "management", "link", "role")


def _table(states: Sequence[NodeState]) -> str:
    rows = [_TITLES, *(_row(state) for state in states)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(state: NodeState) -> tuple[str, ...]:
    node = state.node
    parted = f", parted from {', '.join(state.blocked)}" if state.blocked else ""
    return (
        node.name,
        str(state.pid) if state.pid is not None else "-",
        state.state + parted,
        node.url,
        node.management_url,
        str(node.link_port),
        state.role or "-",
    )


def _next_commands(try_out: TryOut, nodes: Sequence[LocalNode]) -> str:
    chosen = "" if str(try_out.directory) == ".warren" else f" --dir {try_out.directory}"
    command = f"warren cluster{chosen}"
    last = nodes[-1].number
    lines = [
        "",
        "Try",
        f"  warrenctl -n {nodes[0].name} cluster_status",
        f"  warrenctl -n {nodes[0].name} pub hello 'Hello, Warren'",
        f"  {command} kill {last}; {command} status; {command} start {last}",
    ]
    if len(nodes) > 1:
        lines.append(f"  {command} partition 1 {last}; {command} heal")
    return "\n".join([*lines, f"  {command} down"])
