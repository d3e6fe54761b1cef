"""The route that parts nodes for a try-out: through the control socket, to the node's control."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warren.config import load_settings
from warren.management.cluster_control import not_a_member
from warren.node.local_nodes import Control, LocalNode, LocalNodeError, control
from warren.node.node import Node
from warren.node.standalone import StandaloneControl

PEER = LocalNode(2, "no.de 2@localhost", Path(), 1, 2, 3, 4)


class Linked(StandaloneControl):
    """A control with links to block."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.blocked: list[str] = []

    async def block_link(self, peer: str, blocked: bool) -> None:
        if peer != PEER.name:
            raise not_a_member(peer)
        if blocked and peer not in self.blocked:
            self.blocked.append(peer)
        if not blocked and peer in self.blocked:
            self.blocked.remove(peer)

    def blocked_links(self) -> list[str]:
        return self.blocked


def with_node(linked: bool, act: Callable[[Control], Any]) -> Any:
    """Runs `act` in another thread against the control socket of a node."""

    async def run(path: Path) -> Any:
        keys = {"listeners.tcp.default": "127.0.0.1:0"}
        for part in ("management", "prometheus"):
            keys |= {f"{part}.tcp.ip": "127.0.0.1", f"{part}.tcp.port": "0"}
        node = Node(load_settings(None, {}, keys), name="n@here", watch_memory=False)
        if linked:
            node.cluster_control = Linked(node)
        node.start()
        try:
            await node.start_operating(path).ready()
            return await asyncio.to_thread(act, control(PEER, path))
        finally:
            await node.stop(0)

    with tempfile.TemporaryDirectory(prefix="warren-") as folder:
        return asyncio.run(run(Path(folder, "n.sock")))


def test_a_node_by_itself_has_no_links() -> None:
    def act(ask: Control) -> None:
        with pytest.raises(LocalNodeError, match="not clustered"):
            ask.block(PEER)
        assert ask.unblock_all() == []

    with_node(False, act)


def test_links_are_blocked_and_let_through() -> None:
    def act(ask: Control) -> None:
        ask.block(PEER)
        ask.block(PEER)
        assert ask.get("/warren/links") == {"blocked": [PEER.name]}
        assert ask.unblock_all() == [PEER.name]
        assert ask.get("/warren/links") == {"blocked": []}
        with pytest.raises(LocalNodeError, match="not in the cluster"):
            ask.want("PUT", "/warren/links/x@y", {"blocked": True})
        for body in ({}, {"blocked": "perhaps"}, {"blocked": None}):
            with pytest.raises(LocalNodeError):
                ask.want("PUT", "/warren/links/x@y", body)

    with_node(True, act)


def test_a_node_that_is_no_try_out_is_not_killed() -> None:
    def act(ask: Control) -> None:
        assert ask.get("/warren/cluster/status")["try_out"] is None
        with pytest.raises(LocalNodeError, match="killed in try-outs only"):
            ask.want("POST", "/warren/cluster/kill", {"node": "n@here"})

    with_node(False, act)
