"""`warren shovel`: moves the messages of queues from one broker to another, once or for good."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import click

from warren.client.connection import ClientError
from warren.shovel.settings import BadShovel, ShovelSettings, parse_shovel
from warren.shovel.worker import Worker

#: Queues that are moved at the same time.
AT_ONCE = 4
SHOW_S = 1.0


@click.command("shovel", short_help="Move messages between brokers, and lose none.")
@click.option("--from", "source", required=True, metavar="URI", help="amqp://user:pw@host/vhost")
@click.option("--to", "target", required=True, metavar="URI", help="amqp://user:pw@host/vhost")
@click.option("--queue", "queues", multiple=True, help="A queue to be moved; may be repeated.")
@click.option("--to-queue", help="Another name for it at the destination.")
@click.option(
    "--definitions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Move all queues that this export names, each in its own virtual host.",
)
@click.option("--follow", is_flag=True, help="Go on moving what comes, until interrupted.")
@click.option("--prefetch", type=int, default=1000, show_default=True)
def shovel(
    source: str,
    target: str,
    queues: tuple[str, ...],
    to_queue: str | None,
    definitions: Path | None,
    follow: bool,
    prefetch: int,
) -> None:
    """Move messages between brokers: each is confirmed there before it is gone here.

    Queues that the destination lacks are made, durable; import the definitions first where they
    need arguments or bindings.
    """
    if bool(queues) == bool(definitions):
        raise click.UsageError("name the queues with --queue, or --definitions with all of them")
    if to_queue is not None and len(queues) != 1:
        raise click.UsageError("--to-queue goes with one --queue")
    try:
        if definitions is not None:
            jobs = _jobs_of(definitions, source, target, prefetch)
        else:
            jobs = [
                (queue, _settings(source, target, queue, to_queue or queue, prefetch))
                for queue in queues
            ]
    except BadShovel as error:
        raise click.UsageError(str(error)) from error
    with contextlib.suppress(KeyboardInterrupt):
        failed = asyncio.run(_run(jobs, follow))
        if failed:
            sys.exit(1)


def _settings(source: str, target: str, queue: str, to: str, prefetch: int) -> ShovelSettings:
    return parse_shovel(
        {
            "src-uri": source,
            "dest-uri": target,
            "src-queue": queue,
            "dest-queue": to,
            "src-prefetch-count": prefetch,
            "src-delete-after": "queue-length",
        }
    )


def _in_vhost(uri: str, vhost: str) -> str:
    return urlunsplit(urlsplit(uri)._replace(path="/" + quote(vhost, safe="")))


def _jobs_of(
    path: Path, source: str, target: str, prefetch: int
) -> list[tuple[str, ShovelSettings]]:
    """All queues of an export. Raises BadShovel."""
    try:
        listed: list[dict[str, Any]] = json.loads(path.read_bytes())["queues"]
        named = [(str(row.get("vhost", "/")), str(row["name"])) for row in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadShovel(f"{path} is no export of definitions: {error}") from error
    return [
        (
            name if vhost == "/" else f"{vhost}: {name}",
            _settings(_in_vhost(source, vhost), _in_vhost(target, vhost), name, name, prefetch),
        )
        for vhost, name in named
    ]


async def _run(jobs: list[tuple[str, ShovelSettings]], follow: bool) -> int:
    """All of them, some at a time; how many failed."""
    room = asyncio.Semaphore(len(jobs) if follow else AT_ONCE)

    async def one(shown: str, settings: ShovelSettings) -> bool:
        async with room:
            return await _move(shown, settings, follow)

    outcomes = await asyncio.gather(*(one(*job) for job in jobs))
    return outcomes.count(False)


async def _move(shown: str, settings: ShovelSettings, follow: bool) -> bool:
    if follow:
        settings = replace(settings, delete_after=None)
    moved = 0
    while True:
        worker = Worker(shown, "", settings, keep_trying=follow)
        watching = asyncio.get_running_loop().create_task(_show(shown, worker, moved))
        try:
            await worker.run()
        except ClientError as error:
            click.echo(f"{shown}: {moved + worker.status.forwarded} moved, then: {error}", err=True)
            return False
        finally:
            watching.cancel()
        moved += worker.status.forwarded
        if not worker.status.forwarded:
            # Nothing was there any more when it began.
            click.echo(f"{shown}: {moved} messages moved")
            return True


async def _show(shown: str, worker: Worker, before: int) -> None:
    """Plain lines now and then: several queues are moved at once."""
    last = None
    while True:
        await asyncio.sleep(SHOW_S)
        status = worker.status
        line = f"{shown}: {before + status.forwarded} moved"
        if status.remaining:
            line += f", {status.remaining} to go"
        if status.reason:
            line += f" ({status.reason})"
        if line != last:
            click.echo(line, err=True)
            last = line
