"""The showcase itself: the nodes, the workload and the archive together, and how they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warren.node.local_nodes import LocalNode, LocalNodeError
from warren.node.showcase.load import Consumer, Ledger, Publisher
from warren.node.showcase.nodes import ShowcaseNodes

EXCHANGE, QUEUE = "shop", "orders"
POLICY = "ha-all"
#: How often the status line is renewed on a terminal, and elsewhere.
LINE_S, PLAIN_LINE_S = 1.0, 10.0
#: How long confirms and deliveries may take when the load has ended.
DRAIN_S = 60.0
#: How often the journal notes what queues hold.
JOURNAL_S = 2
ARCHIVE_STOP_S = 30.0
#: A node that somebody has killed from the web UI is started again when the failover was seen.
AWAY_S = 20.0
TRY_OUT = f"The showcase starts it again by itself, {AWAY_S:g} seconds later."


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for on the command line."""

    directory: Path
    first_port: int | None
    rate: int
    seconds: float | None
    archive: bool
    kill_after_s: float | None


class Status:
    """The one line that tells how everything is."""

    def __init__(self, nodes: ShowcaseNodes, ledger: Ledger) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._before = (time.monotonic(), 0)
        self._is_terminal = sys.stdout.isatty()
        self._shown_s = 0.0
        #: Of the archive that runs beside it.
        self.lake: Path | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LINE_S)
            self._show(*await asyncio.to_thread(self._place))

    def _place(self) -> tuple[str, str]:
        """Where the queue is, at length and in short.

        Asked for aside, since a node that is gone takes its time.
        """
        try:
            row = self._nodes.ask("GET", f"/queues/%2F/{QUEUE}")
            synced = len(row.get("synchronised_slave_nodes") or ())
            mirrors = len(row.get("slave_nodes") or ())
            master = row["node"].partition("@")[0]
        except (LocalNodeError, KeyError, TypeError):
            return "nobody answers", "nobody answers"
        archived = ""
        if self.lake is not None:
            rows = archived_rows(self.lake)
            archived = f", {rows:,} archived" if rows else ", the archive starts"
        long = f"master {master}, {synced} of {mirrors} mirrors in sync"
        return long + archived, f"master {master} + {synced}/{mirrors}{archived}"

    def _show(self, place: str, short: str) -> None:
        now_s, before = time.monotonic(), self._before
        rate = (self._ledger.received - before[1]) / max(0.001, now_s - before[0])
        self._before = (now_s, self._ledger.received)
        ledger = self._ledger
        line = (
            f"{ledger.confirmed:,} confirmed, {ledger.received:,} consumed ({rate:,.0f}/s), "
            f"confirm p99 {ledger.p99_ms():.0f} ms, {place}"
        )
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            if len(line) > width:
                line = (
                    f"{rate:,.0f}/s, {ledger.confirmed:,} confirmed, p99 {ledger.p99_ms():.0f} ms, "
                    f"{short}"
                )
            sys.stdout.write(f"\r\x1b[2K{line[:width]}")
        elif now_s - self._shown_s >= PLAIN_LINE_S:
            self._shown_s = now_s
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """A line that stays."""
        sys.stdout.write(f"\r\x1b[2K{text}\n" if self._is_terminal else f"{text}\n")
        sys.stdout.flush()


def archived_rows(lake: Path) -> int:
    """How many messages are in whole batches of an archive."""
    return sum(json.loads(one.read_text())["rows"] for one in lake.glob("_batches/*.json"))


def configuration() -> dict[str, object]:
    """For all nodes: the journal is written where its library is installed."""
    always: dict[str, object] = {"cluster.try_out": TRY_OUT}
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return always
    return always | {
        "journal.enabled": True,
        "journal.interval": JOURNAL_S,
        "log.console.level": "info",
    }


async def prepare(nodes: ShowcaseNodes) -> None:
    """The policy, the exchange and the queue, whose master is the first node."""
    from warren.client.address import parse_address
    from warren.client.connection import connect

    definition = {"ha-mode": "all", "ha-sync-mode": "automatic"}
    body = {"pattern": f"^{QUEUE}$", "definition": definition, "apply-to": "queues"}
    nodes.ask("PUT", f"/policies/%2F/{POLICY}", body)
    connection = await connect(parse_address(f"{nodes.nodes[0].url}/%2F"), "showcase")
    await connection.call(
        "exchange.declare", 0, EXCHANGE, "topic", False, True, False, False, False, {}
    )
    await connection.call("queue.declare", 0, QUEUE, False, True, False, False, False, {})
    await connection.call("queue.bind", 0, QUEUE, EXCHANGE, "#", False, {})
    await connection.close()


def start_archive(nodes: ShowcaseNodes, lake: Path) -> subprocess.Popen[bytes]:
    """The archive pipeline as a process of its own."""
    command = [sys.executable, "-m", "warren", "pipeline", "--memory", "512m", "archive"]
    command += ["--endpoints", ",".join(node.management_url for node in nodes.nodes)]
    command += ["--queues", QUEUE, "--to", str(lake), "--follow"]
    with (nodes.directory / "archive.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
        )


def stop_archive(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(ARCHIVE_STOP_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Show:
    """One run, from the nodes' being ready to the end of the workload."""

    def __init__(self, nodes: ShowcaseNodes, wishes: Wishes) -> None:
        self.nodes = nodes
        self.wishes = wishes
        self.ledger = Ledger()
        self.status = Status(nodes, self.ledger)
        self.killed: LocalNode | None = None
        #: How long nothing was confirmed after the kill.
        self.pause_s = 0.0
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until it is over, or Ctrl-C."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        await prepare(self.nodes)
        # Clients begin at the second node: the first is the one that is killed.
        urls = [node.url for node in (*self.nodes.nodes[1:], self.nodes.nodes[0])]
        publisher = Publisher(urls, EXCHANGE, self.wishes.rate, self.ledger)
        tasks = [
            loop.create_task(publisher.run()),
            loop.create_task(Consumer(urls, QUEUE, self.ledger).run()),
            loop.create_task(self.status.run()),
            loop.create_task(self._start_again()),
        ]
        try:
            if self.wishes.kill_after_s is not None:
                await self._kill_master(self.wishes.kill_after_s)
            await self._wait(self.wishes.seconds)
            publisher.stop.set()
            if self.wishes.seconds is not None:
                await self._drain(tasks[0])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_again(self) -> None:
        """What was killed by somebody else, from the web UI, say."""
        while True:
            await asyncio.sleep(LINE_S)
            gone = [node for node in self.nodes.nodes if node not in self.nodes.alive]
            for node in gone:
                if node == self.killed:
                    continue
                self.status.say(f"{node.name} has ended; it is started again in {AWAY_S:g} s")
                await asyncio.sleep(AWAY_S)
                try:
                    await asyncio.to_thread(self.nodes.start_again, node)
                except LocalNodeError as error:
                    self.status.say(str(error))
                else:
                    self.status.say(f"{node.name} is back")

    async def _wait(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _kill_master(self, after_s: float) -> None:
        await self._wait(after_s)
        if self._stopping.is_set():
            return
        row = await asyncio.to_thread(self.nodes.ask, "GET", f"/queues/%2F/{QUEUE}")
        node = self.nodes.by_name(row["node"])
        self.status.say(f"killing {node.name}, the master of '{QUEUE}', as a crash would ...")
        self.ledger.gap_s = 0.0
        before = self.ledger.confirmed
        self.nodes.kill(node)
        self.killed = node
        await self._until(lambda: self.ledger.confirmed > before + self.wishes.rate)
        self.pause_s = self.ledger.gap_s
        self.status.say(f"confirms go on; the longest pause was {self.pause_s * 1000:,.0f} ms")

    async def _drain(self, publishing: asyncio.Task[None]) -> None:
        """All is confirmed, and all that is confirmed has come."""
        await self._until(publishing.done)
        await self._until(lambda: not self.ledger.missing)
        # The journals note once more what queues hold.
        await self._wait(2.5 * JOURNAL_S)

    async def _until(self, is_so: Callable[[], Any]) -> None:
        until_s = time.monotonic() + DRAIN_S
        while not is_so() and time.monotonic() < until_s and not self._stopping.is_set():
            await asyncio.sleep(0.1)
