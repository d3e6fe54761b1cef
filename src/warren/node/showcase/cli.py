"""`warren showcase`: see the whole product at work; what `make run` and `make demo` run."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from warren.node.local_nodes import LocalNode
    from warren.node.showcase.nodes import ShowcaseNodes
    from warren.node.showcase.show import Show

#: Of the demonstration: when the master is killed, and how long the load goes on after that.
KILL_AFTER_S, GO_ON_S = 8.0, 8.0


@click.command("showcase", short_help="See it all: three nodes, a workload, the archive.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".warren/showcase"),
    show_default=True,
    help="Where everything is kept; what an earlier showcase left there is removed.",
)
@click.option("--port", type=click.IntRange(1024, 45_000), help="First AMQP port; else a free one.")
@click.option("--rate", default=500, show_default=True, help="Messages a second.")
@click.option("--archive/--no-archive", default=True, help="Run the archive pipeline beside it.")
@click.option("--seconds", type=float, help="End by itself after so long.")
@click.option(
    "--demo", is_flag=True, help="Kill the master in the middle, audit what happened, and end."
)
def showcase(
    directory: Path,
    port: int | None,
    rate: int,
    archive: bool,
    seconds: float | None,
    demo: bool,
) -> None:
    """Run three nodes with a mirrored queue, a workload and the archive beside it, until Ctrl-C."""
    from warren.node.local_nodes import LocalNodeError
    from warren.node.showcase.nodes import ShowcaseNodes
    from warren.node.showcase.show import Show, Wishes, configuration
    from warren.node.try_out import TryOutError

    wishes = Wishes(
        directory=directory,
        first_port=port,
        rate=rate,
        seconds=seconds or (GO_ON_S if demo else None),
        archive=archive,
        kill_after_s=KILL_AFTER_S if demo else None,
    )

    def on_ready(node: LocalNode) -> None:
        click.echo(f"  {node.name} is ready")

    click.echo("starting three nodes ...")
    try:
        with ShowcaseNodes(directory, port, configuration(), on_ready) as nodes:
            _greet(nodes)
            show = Show(nodes, wishes)
            with _archive(show):
                asyncio.run(show.run())
            show.status.say("stopping ...")
    except (TryOutError, LocalNodeError) as error:
        click.echo(f"warren showcase: {error}", err=True)
        raise SystemExit(1) from error
    _say_ledger(show)
    code = _judge(show) if demo else int(bool(show.ledger.unflagged))
    raise SystemExit(code)


def _greet(nodes: ShowcaseNodes) -> None:
    first = nodes.nodes[0]
    click.echo("")
    click.echo(f"  Web UI  {first.management_url}  (guest / guest)")
    click.echo(f"  AMQP    {', '.join(node.url for node in nodes.nodes)}")
    click.echo("  Queue   orders, mirrored on all three by the policy ha-all")
    click.echo(f"  Files   {nodes.directory}")
    click.echo("  Ctrl-C ends everything\n")


@contextlib.contextmanager
def _archive(show: Show):  # type: ignore[no-untyped-def]
    """The archive pipeline, where there is what it needs."""
    from warren.node.showcase.show import start_archive, stop_archive

    missing = _missing_for_archive()
    if not show.wishes.archive or missing is not None:
        if missing is not None and show.wishes.archive:
            click.echo(f"  without the archive: {missing}\n")
        yield
        return
    lake = show.nodes.directory / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    process = start_archive(show.nodes, lake)
    show.status.lake = lake
    try:
        yield
    finally:
        stop_archive(process)


def _missing_for_archive() -> str | None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "it needs PySpark (pip install 'warrenmq[spark]')"
    from warren.spark.pipelines.session import has_java

    if not has_java():
        return "it needs Java 17 (Debian: apt-get install openjdk-17-jre-headless)"
    return None


def _say_ledger(show: Show) -> None:
    ledger = show.ledger
    click.echo(
        f"published {ledger.published:,}, confirmed {ledger.confirmed:,}, consumed "
        f"{ledger.received:,}; {ledger.duplicates:,} came twice, {ledger.unflagged:,} of them "
        "without a flag"
    )


def _judge(show: Show) -> int:
    """What clients know and what the journals say; both must be good."""
    missing = show.ledger.missing
    if show.killed is None:
        click.echo("the demonstration was interrupted: no verdict", err=True)
        return 1
    click.echo(
        f"{show.killed.name} was killed; the longest pause of confirms was "
        f"{show.pause_s * 1000:,.0f} ms"
    )
    if missing or show.ledger.unflagged:
        click.echo(f"LOST, by the clients' books: {len(missing):,}; first {missing[:10]}", err=True)
        return 1
    click.echo(
        "nothing confirmed was lost, by the clients' books. Now what the nodes themselves have "
        "noted,\njudged by the audit pipeline (Spark takes some seconds to start):"
    )
    reason = _missing_for_archive()
    if reason is not None:
        click.echo(f"the audit of the journals cannot be run: {reason}", err=True)
        return 1
    sys.stdout.flush()
    from warren.spark.pipelines.main import main

    journals = [str(node.data_dir / "events") for node in show.nodes.nodes]
    out = str(show.nodes.directory / "audit")
    code = main(["audit", "--journal", *journals, "--out", out])
    if code == 0:
        archived = show.nodes.directory / "lake" / "data"
        click.echo("\nThe report is a page for a browser; other pipelines read the same files:")
        click.echo(f"  warren pipeline latency --gap-ms 50 --journal {' '.join(journals)}")
        if archived.is_dir():
            click.echo(f"  what the archive has of the orders: {archived}")
    return code
