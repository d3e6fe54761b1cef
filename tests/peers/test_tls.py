"""Mutual TLS between nodes."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
from peer_nodes import CONTROL, DATA, FAST, join, node, run, until

from warren.net.peers.settings import PeerOptions, PeerTls


def contexts(authority: trustme.CA, trusted: trustme.CA) -> PeerTls:
    certificate = authority.issue_cert("127.0.0.1")
    made = []
    for purpose in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(purpose)
        context.verify_mode = ssl.CERT_REQUIRED
        certificate.configure_cert(context)
        trusted.configure_trust(context)
        made.append(context)
    return PeerTls(*made)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize("factory", [None, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_frames_over_tls(authority: trustme.CA, factory: object) -> None:
    async def scenario() -> None:
        tls = contexts(authority, authority)
        options = PeerOptions(window_bytes=1 << 20)
        a, b = node("a", tls=tls, options=options), node("b", tls=tls, options=options)
        await join(a, b)
        for number in range(50):
            a.link("b").send(DATA, bytes([number]) * 100_000)
        a.network.send("b", CONTROL, b"vote")
        await until(lambda: len(b.notes.frames) == 50 and b.notes.control)
        assert [payload[0] for _, _, payload in b.notes.frames] == list(range(50))
        b.came("a").send(DATA, b"deliver")
        await until(lambda: a.notes.frames)
        b.network.close()
        await until(lambda: a.notes.count("down", "b") and a.notes.count("refused", "b"))

    run(scenario, factory)


def test_a_backlog_over_tls_is_overtaken(authority: trustme.CA) -> None:
    async def scenario() -> None:
        tls = contexts(authority, authority)
        a, b = node("a", tls=tls), node("b", tls=tls)
        await join(a, b)
        for _ in range(50):
            b.came("a").send(DATA, bytes(1 << 20))
        await until(lambda: a.notes.frames)
        before = len(a.notes.frames)
        b.came("a").send(CONTROL, b"vote")
        await until(lambda: a.notes.control)
        assert len(a.notes.frames) - before < 25
        await until(lambda: len(a.notes.frames) == 50)

    run(scenario)


def test_a_cut_over_tls(authority: trustme.CA) -> None:
    async def scenario() -> None:
        tls = contexts(authority, authority)
        a, b = node("a", tls=tls), node("b", tls=tls)
        await join(a, b)
        a.network.block("b")
        await asyncio.sleep(0.1)
        assert b.is_up("a")
        await until(lambda: not a.is_up("b") and not b.is_up("a"))
        a.network.unblock("b")
        await until(lambda: a.is_up("b") and b.is_up("a"))

    run(scenario)


def test_a_stranger_has_no_certificate(authority: trustme.CA) -> None:
    async def scenario() -> None:
        a = node("a", tls=contexts(trustme.CA(), authority))
        b = node("b", tls=contexts(authority, authority))
        plain = node("c")
        for stranger in (a, plain):
            stranger.network.set_peers({"b": b.address})
        await asyncio.sleep(2 * FAST.greeting_timeout_ms / 1000)
        assert not a.is_up("b")
        assert not plain.is_up("b")
        assert b.notes.events == []

    run(scenario)


def test_tls_must_be_mutual(authority: trustme.CA) -> None:
    good = contexts(authority, authority)
    with pytest.raises(ValueError, match="both sides"):
        PeerTls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), good.client)
