"""Peers that are cut off without a word, as a network that is cut does it."""

from __future__ import annotations

import asyncio

from peer_nodes import CONTROL, DATA, join, node, run, until

from warren.net.peers.settings import PeerOptions


def test_a_cut_is_silent_on_both_sides_and_mends() -> None:
    async def scenario() -> None:
        a, b, c = node("a"), node("b"), node("c")
        await join(a, b, c)
        # Only one side knows; the other must notice by the silence alone.
        a.network.block("b")
        a.network.send("b", CONTROL, b"into the void")
        b.network.send("a", CONTROL, b"into the void")
        await asyncio.sleep(0.1)
        assert b.is_up("a")
        await until(lambda: not a.is_up("b") and not b.is_up("a"))
        await until(lambda: a.network.link_from("b") is None and b.network.link_from("a") is None)
        await asyncio.sleep(0.8)
        assert not b.is_up("a")
        assert a.notes.count("refused", "b") == b.notes.count("refused", "a") == 0
        assert a.notes.control == b.notes.control == []
        assert a.is_up("c")
        assert c.is_up("a")
        assert b.is_up("c")
        assert a.notes.count("up", "b", 1) == 1
        assert {peer.name for peer in a.network.status() if peer.blocked} == {"b"}
        a.network.unblock("b")
        await until(lambda: a.is_up("b") and b.is_up("a"))
        assert a.network.send("b", CONTROL, b"again")
        await until(lambda: b.notes.control)

    run(scenario)


def test_a_short_cut_loses_nothing() -> None:
    async def scenario() -> None:
        a, b = node("a", options=PeerOptions()), node("b", options=PeerOptions())
        await join(a, b)
        a.network.block("b")
        a.link("b").send(DATA, b"one")
        b.network.send("a", CONTROL, b"two")
        await asyncio.sleep(0.3)
        assert b.notes.frames == []
        assert a.notes.control == []
        a.network.unblock("b")
        await until(lambda: b.notes.frames and a.notes.control)
        assert a.notes.count("down", "b") == b.notes.count("down", "a") == 0

    run(scenario)


def test_a_node_that_is_blocked_before_it_calls() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        a.network.block("b")
        a.network.set_peers({"b": b.address})
        b.network.set_peers({"a": a.address})
        await asyncio.sleep(0.7)
        assert a.notes.events == b.notes.events == []
        a.network.unblock("b")
        await until(lambda: a.is_up("b") and b.is_up("a"))

    run(scenario)


def test_both_sides_block() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        a.network.block("b")
        b.network.block("a")
        await until(lambda: not a.is_up("b") and not b.is_up("a"))
        a.network.unblock("b")
        await asyncio.sleep(0.4)
        assert not a.is_up("b")
        b.network.unblock("a")
        await until(lambda: a.is_up("b") and b.is_up("a"))

    run(scenario)


def test_a_blocked_peer_can_be_closed_down() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        a.network.block("b")
        a.network.close()
        await until(lambda: b.notes.count("down", "a"))

    run(scenario)
