"""The `warren` command: run a broker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

import warren
from warren.config.errors import ConfigError
from warren.config.load import load_settings
from warren.config.settings import Settings
from warren.telemetry.log import configure_logging

STARTED_S = time.monotonic()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(warren.__version__, prog_name="warren")
def main() -> None:
    """Warren: an AMQP 0-9-1 message broker with mirrored queues."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=5672, show_default=True, help="AMQP port; 0 takes a free one.")
@click.option(
    "--log-level", default="warning", show_default=True, help="debug, info, warning, error."
)
def dev(host: str, port: int, log_level: str) -> None:
    """Run a broker for development: memory only, guest/guest, loopback."""
    overrides = {"listeners.tcp.default": f"{host}:{port}", "log.console.level": log_level}
    settings = _settings(None, overrides)
    _run(settings, lambda port: _greet(host, port))


@main.command()
@click.option(
    "--config", type=click.Path(exists=True, path_type=Path), help="A rabbitmq.conf file."
)
def serve(config: Path | None) -> None:
    """Run a broker as configured."""
    _run(_settings(config, {}), lambda port: click.echo(f"warren is ready on port {port}"))


def _settings(config: Path | None, overrides: dict[str, str]) -> Settings:
    try:
        return load_settings(config, os.environ, overrides)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        raise SystemExit(2) from error


def _greet(host: str, port: int) -> None:
    seconds = time.monotonic() - STARTED_S
    click.echo(f"warren {warren.__version__}  ready in {seconds:.2f} s")
    click.echo(f"  AMQP   amqp://guest:guest@{host}:{port}/")


def _run(settings: Settings, on_ready: Callable[[int], None]) -> None:
    configure_logging(
        settings.log.console_level,
        settings.log.levels,
        settings.log.console_formatter,
        settings.log.console,
        sys.stderr,
    )

    async def run() -> None:
        from warren.node.node import Node

        node = Node(settings)
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        node.start()
        on_ready(node.port)
        await stopping.wait()
        await node.stop()

    try:
        import uvloop
    except ImportError:
        asyncio.run(run())
    else:
        uvloop.run(run())


if __name__ == "__main__":
    main()
