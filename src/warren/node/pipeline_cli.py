"""`warren pipeline`: hands over to the pipelines, which import nothing of the broker."""

from __future__ import annotations

import click


@click.command(
    "pipeline",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    short_help="Archive queues, audit journals: jobs on Spark.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def pipeline(arguments: tuple[str, ...]) -> None:
    """Archive queues, audit journals, measure latency: jobs on an embedded Spark."""
    from warren.spark.pipelines.main import main

    raise SystemExit(main(arguments))
