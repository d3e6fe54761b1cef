"""`warren showcase`: a node that somebody kills from the web UI comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from free_ports import free_first_port

from warren.node.showcase import show
from warren.node.showcase.nodes import ShowcaseNodes

WAIT_S = 60.0


async def until(nodes: ShowcaseNodes, alive: int) -> None:
    end_s = time.monotonic() + WAIT_S
    while len(nodes.alive) != alive:
        assert time.monotonic() < end_s, f"{alive} nodes"
        await asyncio.sleep(0.05)


def test_a_killed_node_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "AWAY_S", 0.1)
    wishes = show.Wishes(tmp_path, None, 100, None, archive=False, kill_after_s=None)

    async def run(nodes: ShowcaseNodes) -> None:
        guard = asyncio.create_task(show.Show(nodes, wishes)._start_again())
        told = await asyncio.to_thread(nodes.ask, "GET", "/warren/cluster/status")
        assert told["try_out"] == show.TRY_OUT
        victim = nodes.nodes[1]
        body = {"node": victim.name}
        await asyncio.to_thread(nodes.ask, "POST", "/warren/cluster/kill", body)
        await until(nodes, 2)
        assert victim not in nodes.alive
        await until(nodes, 3)
        guard.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await guard

    port = free_first_port(3)
    with ShowcaseNodes(tmp_path, port, show.configuration(), lambda _node: None) as nodes:
        asyncio.run(run(nodes))
