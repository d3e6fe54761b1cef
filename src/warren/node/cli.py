"""The `warren` command: run a broker."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import warren
from warren.node.notify import notify
from warren.node.pipeline_cli import pipeline
from warren.node.shovel_cli import shovel
from warren.node.showcase.cli import showcase
from warren.node.try_out_cli import cluster

if TYPE_CHECKING:
    from warren.config.settings import Settings
    from warren.node.node import Node

#: Exit codes: the broker could not be run; it was asked for wrongly.
FAILED, WRONG_CONFIGURATION = 1, 2
#: How long a node whose watcher is gone has for its own end.
WATCHED_GOODBYE_S = 10

_pid_file = click.option(
    "--pid-file", type=click.Path(path_type=Path), help="Write the process id here while running."
)
_watch_fd = click.option(
    "--watch-fd", type=int, help="Stop when the other end of this pipe is closed."
)
_ready_fd = click.option(
    "--ready-fd", type=int, help="Write the AMQP URL and a line end to this descriptor when ready."
)


def _data_dir(more: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    # As text: an empty path, from a variable that is not set, say, must not become this directory.
    return click.option("--data-dir", metavar="DIR", help=f"Keep data in this directory. {more}")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(warren.__version__, prog_name="warren")
def main() -> None:
    """Warren: an AMQP 0-9-1 message broker."""


@main.command(short_help="Run a broker for development, in memory.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=5672,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="AMQP port; 0 takes a free one.",
)
@click.option(
    "--http-port",
    default=15672,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the management API; 0 takes a free one.",
)
@click.option(
    "--metrics-port",
    default=15692,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the metrics for Prometheus; 0 takes a free one.",
)
@click.option(
    "--log-level",
    default="warning",
    show_default=True,
    type=click.Choice(["debug", "info", "notice", "warning", "error", "critical", "none"]),
    help="What is logged to the terminal.",
)
@_data_dir("Without it, all is in memory.")
@_ready_fd
@_pid_file
def dev(
    host: str,
    port: int,
    http_port: int,
    metrics_port: int,
    log_level: str,
    data_dir: str | None,
    ready_fd: int | None,
    pid_file: Path | None,
) -> None:
    """Run a broker for development: in memory, guest/guest, this machine only."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    overrides = {
        "listeners.tcp.default": address,
        "log.console.level": log_level,
        **_data_dir_override(data_dir),
        "management.tcp.ip": "127.0.0.1",
        "management.tcp.port": str(http_port),
        "prometheus.tcp.ip": "127.0.0.1",
        "prometheus.tcp.port": str(metrics_port),
    }
    # A server's configuration file, named in the environment, may ask for wider listeners.
    env = {name: os.environ[name] for name in os.environ if "_CONFIG_FILE" not in name}
    settings = _settings(None, env, overrides)

    def greet(node: Node) -> str:
        from warren.node.greeting import (
            development_greeting,
            guest_hint,
            login_url,
            operating_notes,
        )

        url = login_url(settings, host, node.port)
        click.echo(development_greeting(url, node))
        hint = guest_hint(node)
        for note in [*([hint] if hint is not None else []), *operating_notes(node)]:
            click.echo(f"  Note   {note}")
        return url

    _run(settings, greet, ready_fd, pid_file, in_memory=data_dir is None, forgiving=True)


@main.command(short_help="Run a broker as configured.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="A rabbitmq.conf file, or a directory of them; else what WARREN_CONFIG_FILE names.",
)
@_data_dir("Goes before what the configuration names.")
@click.option("--in-memory", is_flag=True, help="Keep no data: a restart forgets everything.")
@_ready_fd
@_watch_fd
@_pid_file
def serve(
    config: Path | None,
    data_dir: str | None,
    in_memory: bool,
    ready_fd: int | None,
    watch_fd: int | None,
    pid_file: Path | None,
) -> None:
    """Run a broker as configured; without a configuration, as RabbitMQ's defaults say."""
    if in_memory and data_dir is not None:
        raise click.UsageError("--in-memory keeps no data: leave it or --data-dir out")
    settings = _settings(config, os.environ, _data_dir_override(data_dir))

    def report(node: Node) -> str:
        from warren.node.data_directory import shown_data_dir
        from warren.node.greeting import (
            addresses,
            guest_hint,
            operating_notes,
            plain_url,
            process_age_s,
        )
        from warren.telemetry.log import logger

        click.echo(
            f"warren {warren.__version__}  ready in {process_age_s():.2f} s on {addresses(node)}, "
            f"data: {shown_data_dir(node.data_dir)}"
        )
        hint = guest_hint(node)
        if hint is not None:
            logger("connection").info(hint)
        for note in operating_notes(node):
            logger("management").warning(note)
        return plain_url(node)

    _run(settings, report, ready_fd, pid_file, in_memory, watch_fd=watch_fd)


def _data_dir_override(data_dir: str | None) -> dict[str, str]:
    return {} if data_dir is None else {"data_dir": data_dir}


def _settings(
    config: Path | None, env: Mapping[str, str], overrides: Mapping[str, str]
) -> Settings:
    from warren.config.errors import ConfigError
    from warren.config.load import load_settings

    try:
        return load_settings(config, env, overrides)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        raise SystemExit(WRONG_CONFIGURATION) from error


def _fail(error: Exception) -> NoReturn:
    click.echo(f"warren: {error}", err=True)
    raise SystemExit(FAILED) from error


def _run(
    settings: Settings,
    on_ready: Callable[[Node], str],
    ready_fd: int | None,
    pid_file: Path | None,
    in_memory: bool,
    forgiving: bool = False,
    watch_fd: int | None = None,
) -> None:
    """Run a node until a signal asks it to stop; `on_ready` speaks up and tells the URL."""
    from warren.base.runtime import control_socket
    from warren.node.errors import StartError
    from warren.node.failure import NodeFailed, give_up
    from warren.node.logs import set_up_logs
    from warren.node.start_again import Again
    from warren.telemetry.log import logger

    async def run(data_dir: Path | None) -> None:
        from warren.node.node import Node

        node = Node(settings, data_dir=data_dir)
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        node.on_restart = lambda: again.after_answer(loop, stopping)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        _watch(watch_fd, stopping)
        node.start()
        try:
            operating = node.start_operating(control_socket(node.name), forgiving)
            operating.context.on_stop = stopping.set
        except StartError:
            await node.stop()
            raise
        if node.cluster is not None:
            await _first(node.cluster.opened.wait(), stopping.wait(), node.failure.wait())
        # What is there by now stays: the collector need not look through it while clients wait.
        gc.freeze()
        url = on_ready(node) if node.is_open else ""
        sys.stdout.flush()
        if url:
            _tell_ready(ready_fd, url)
            again.has_told_ready = True
        notify("READY=1")
        await _first(stopping.wait(), node.failure.wait())
        notify("STOPPING=1")
        if node.failure.error is None:
            await node.stop()
        if node.failure.error is not None:
            raise give_up(node)

    again = Again(ready_fd, watch_fd)
    path = pid_file or (Path(settings.node.pid_file) if settings.node.pid_file else None)
    try:
        set_up_logs(settings.log)
        if settings.without_effect:
            logger("connection").warning(
                "accepted without effect yet: %s", ", ".join(settings.without_effect)
            )
        for warning in settings.warnings:
            logger("cluster").warning(warning)
        # The directory first: whoever does not get it must leave the other's pid file alone.
        with _held_data_dir(settings, in_memory) as data_dir, _kept_pid_file(path):
            _run_in_loop(run(data_dir))
    except StartError as error:
        _fail(error)
    except NodeFailed as error:
        _end_at_once(error)
    if again.wanted:
        again.execute()


def _watch(watch_fd: int | None, stopping: asyncio.Event) -> None:
    """Stop when whoever holds the pipe's other end is gone, however it went."""
    if watch_fd is None:
        return
    from warren.node.errors import StartError

    loop = asyncio.get_running_loop()

    def heard() -> None:
        if not os.read(watch_fd, 4096):
            loop.remove_reader(watch_fd)
            stopping.set()
            # Nobody is left who would end a node that does not manage it.
            signal.alarm(WATCHED_GOODBYE_S)

    try:
        loop.add_reader(watch_fd, heard)
    except (OSError, ValueError) as error:
        raise StartError(f"--watch-fd {watch_fd}: {error}") from error


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Until one of them is over; the others are given up."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _end_at_once(error: Exception) -> NoReturn:
    """Without the interpreter's own end: it may wait for a thread that a failing disk holds up."""
    import logging

    click.echo(f"warren: {error}", err=True)
    sys.stdout.flush()
    logging.shutdown()
    os._exit(FAILED)


@contextlib.contextmanager
def _held_data_dir(settings: Settings, in_memory: bool) -> Iterator[Path | None]:
    """The node's data directory, locked meanwhile; None in memory. Raises StartError."""
    if in_memory:
        yield None
        return
    from warren.node.data_directory import open_data_directory, resolve_data_dir
    from warren.node.settings import node_name

    path = resolve_data_dir(settings, node_name(settings))
    directory = open_data_directory(path)
    yield path
    # Only after a good end: else the log's thread may still write, and the lock ends with it.
    directory.close()


def _run_in_loop(run: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        factory = asyncio.new_event_loop
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run)


def _tell_ready(ready_fd: int | None, url: str) -> None:
    if ready_fd is None:
        return
    from warren.node.errors import StartError

    try:
        os.write(ready_fd, f"{url}\n".encode())
        if ready_fd > sys.stderr.fileno():
            os.close(ready_fd)
    except BrokenPipeError:
        # Whoever waited has given up; clients may still come.
        return
    except OSError as error:
        raise StartError(f"--ready-fd {ready_fd}: {error.strerror}") from error


@contextlib.contextmanager
def _kept_pid_file(path: Path | None) -> Iterator[None]:
    from warren.node.errors import StartError

    if path is None:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{os.getpid()}\n")
    except OSError as error:
        raise StartError(f"cannot write the pid file {path}: {error.strerror}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


main.add_command(cluster)
main.add_command(pipeline)
main.add_command(shovel)
main.add_command(showcase)

if __name__ == "__main__":
    main()
