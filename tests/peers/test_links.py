"""Links between networks of one process: frames, up and down, dialling again, replacement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from peer_nodes import CONTROL, DATA, FAST, HOST, RING, free_port, join, node, run, until

from warren.net.peers.settings import PeerOptions


@pytest.mark.parametrize("factory", [None, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_frames_go_both_ways(factory: object) -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b", incarnation=4)
        await join(a, b)
        assert a.notes.count("up", "b", 4) == 1
        assert a.network.send("b", CONTROL, b"vote")
        a.link("b").send(DATA, b"publish")
        a.link("b").send(RING, b"replicate")
        await until(lambda: len(b.notes.frames) == 2 and b.notes.control)
        assert b.notes.control == [("a", CONTROL, b"vote")]
        assert b.notes.frames == [("a", DATA, b"publish"), ("a", RING, b"replicate")]
        # The home answers on the connection that it accepted.
        b.came("a").send(DATA, b"deliver")
        b.came("a").send(CONTROL, b"reply")
        await until(lambda: a.notes.frames and a.notes.control)
        assert a.notes.frames == [("b", DATA, b"deliver")]
        assert a.notes.control == [("b", CONTROL, b"reply")]

    run(scenario, factory)


def test_three_nodes_and_their_status() -> None:
    async def scenario() -> None:
        nodes = [node(name) for name in "abc"]
        await join(*nodes)
        a, b, c = nodes
        for target in ("a", "c"):
            assert b.network.send(target, CONTROL, target.encode())
        await until(lambda: a.notes.control and c.notes.control)
        assert (a.notes.control[0][2], c.notes.control[0][2]) == (b"a", b"c")
        assert set(a.network.addresses) == {"b", "c"}
        status = {peer.name: peer for peer in a.network.status()}
        assert set(status) == {"b", "c"}
        assert status["b"].connected
        assert status["b"].address == f"{HOST}:{b.port}"
        assert status["b"].accepted_from
        assert status["b"].incarnation == 1
        assert status["b"].since
        assert status["b"].bytes_in > 100
        assert status["b"].bytes_out > 100
        assert status["b"].pending == 0
        assert status["b"].silent_ms is not None
        assert status["b"].silent_ms < 1000
        assert status["b"].last_refusal is None
        assert not status["b"].blocked

    run(scenario)


def test_frames_of_all_sizes_arrive_whole() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        largest = (1 << 20) + 63
        sizes = [0, 1, 255, 4096, 262_139, 262_140, largest, 7, largest, 100_000, 3]
        for number, size in enumerate(sizes):
            a.link("b").send(DATA, bytes([number]) * size)
        await until(lambda: len(b.notes.frames) == len(sizes))
        assert [payload for _, _, payload in b.notes.frames] == [
            bytes([number]) * size for number, size in enumerate(sizes)
        ]
        with pytest.raises(OverflowError):
            a.link("b").send(DATA, bytes(largest + 1))

    run(scenario)


def test_long_control_frames_come_in_pieces() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        sizes = [5, 1 << 20, (1 << 20) + 1, 4 << 20, (16 << 20) - 1, 0]
        for number, size in enumerate(sizes):
            while not a.network.send("b", CONTROL, bytes([number]) * size):
                await asyncio.sleep(0.01)
        await until(lambda: len(b.notes.control) == len(sizes))
        assert [(p[:1], len(p)) for _, _, p in b.notes.control] == [
            (bytes([number])[:size], size) for number, size in enumerate(sizes)
        ]
        assert not a.network.send("b", CONTROL, bytes((16 << 20) + 1))

    run(scenario)


def test_silence_is_filled_with_pings() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        heard_ms = a.network.last_heard_ms("b") or 0
        await asyncio.sleep(0.7)
        assert (a.network.last_heard_ms("b") or 0) > heard_ms + 400
        assert a.notes.count("down", "b") == 0
        assert a.network.last_heard_ms("nobody") is None

    run(scenario)


def test_a_peer_that_goes_is_told_at_once_and_dialled_again(
    judge_time: Callable[[float, float], None],
) -> None:
    async def scenario() -> None:
        slow = PeerOptions()
        a, b = node("a", options=slow), node("b", options=slow)
        await join(a, b)
        b.network.close()
        began = time.monotonic()
        await until(lambda: a.notes.count("down", "b"))
        judge_time(time.monotonic() - began, 0.4)
        assert a.notes.events.index(("lost", "gateway", "b")) < a.notes.events.index(("down", "b"))
        await until(lambda: a.notes.count("refused", "b") >= 2)
        assert not a.network.send("b", CONTROL, b"lost")
        again = node("b", incarnation=2, port=b.port)
        await until(lambda: a.notes.count("up", "b", 2))
        again.network.set_peers({"a": a.address})
        await until(lambda: again.is_up("a"))

    run(scenario)


def test_a_call_from_the_peer_shortens_the_pause() -> None:
    async def scenario() -> None:
        patient = PeerOptions(redial_first_ms=20_000, redial_max_ms=20_000)
        a = node("a", options=patient)
        port = free_port()
        a.network.set_peers({"b": (HOST, port)})
        await until(lambda: a.notes.count("refused", "b"))
        b = node("b", port=port)
        b.network.set_peers({"a": a.address})
        await until(lambda: a.is_up("b"), timeout_s=15)

    run(scenario)


def test_peers_change_at_run_time() -> None:
    async def scenario() -> None:
        a, b, c = node("a"), node("b"), node("c")
        a.network.set_peers({"a": a.address, "b": b.address})
        await until(lambda: a.is_up("b"))
        a.network.set_peers({"c": c.address})
        assert a.notes.count("down", "b") == 1
        await until(lambda: a.is_up("c") and b.notes.count("lost", "home", "a"))
        moved = node("c", incarnation=2)
        a.network.set_peers({"c": moved.address})
        await until(lambda: a.notes.count("up", "c", 2))
        await until(lambda: c.network.link_from("a") is None)

    run(scenario)


def test_a_second_call_replaces_the_first() -> None:
    async def scenario() -> None:
        b = node("b")
        first = node("a", listen=False)
        first.network.set_peers({"b": b.address})
        await until(lambda: first.is_up("b"))
        b.notes.events.clear()
        second = node("a", listen=False, incarnation=2)
        second.network.set_peers({"b": b.address})
        await until(lambda: second.is_up("b") and first.notes.count("down", "b"))
        assert b.notes.events[:2] == [("lost", "home", "a"), ("sink", "home", "a")]
        assert b.came("a").incarnation == 2
        assert len(b.network.addresses) == 1

    run(scenario)


def test_a_newer_incarnation_ends_the_link_to_the_older() -> None:
    async def scenario() -> None:
        a, old = node("a"), node("b")
        await join(a, old)
        new = node("b", incarnation=2, listen=False)
        new.network.set_peers({"a": a.address})
        await until(lambda: new.is_up("a"))
        assert a.notes.count("down", "b") == 1

    run(scenario)


def test_the_owner_ends_links() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        a.network.drop("b")
        assert not a.is_up("b")
        assert a.network.link_from("b") is None
        assert a.notes.count("down", "b") == 1
        await until(lambda: a.is_up("b") and b.is_up("a") and a.network.link_from("b"))

    run(scenario)


@pytest.mark.parametrize("kind", [CONTROL, DATA])
@pytest.mark.parametrize("fault", [ValueError("nonsense"), KeyError("ours")])
def test_a_fault_ends_one_link_only(
    kind: int, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        a, b, c = node("a"), node("b"), node("c")
        await join(a, b, c)
        b.notes.fault = fault
        link = a.link("b")
        link.send(kind, b"x")
        await until(lambda: link.closed)
        b.notes.fault = None
        assert c.is_up("b")
        assert c.notes.count("down", "b") == 0
        await until(lambda: a.is_up("b"))
        lines = [r for r in caplog.records if r.name == "peers.b" and r.levelname != "INFO"]
        assert len(lines) == 1
        assert bool(lines[0].exc_info) is not isinstance(fault, ValueError)

    run(scenario)


def test_frames_written_after_the_end_are_dropped() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        link = a.link("b")
        a.network.drop("b")
        link.send(DATA, b"x" * 1000)
        assert link.pending_bytes == 0

    run(scenario)


def test_a_late_clock_is_no_silence() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        # Both stand still for longer than a silence may be; nobody was silent.
        time.sleep(0.6)
        await asyncio.sleep(0.2)
        assert a.notes.count("down", "b") == b.notes.count("down", "a") == 0

    run(scenario)


def test_a_node_that_is_held_up_can_say_that_it_is_there() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        link = a.link("b")
        for _ in range(4):
            before = link.bytes_out
            time.sleep(2 * FAST.ping_ms / 1000)
            a.network.keep_alive()
            # Five bytes of a ping, and that at once: the loop did not turn.
            assert link.bytes_out == before + 5
        # What belongs to a turn is not torn out of it.
        link.send(DATA, b"x")
        time.sleep(2 * FAST.ping_ms / 1000)
        before = link.bytes_out
        a.network.keep_alive()
        assert link.bytes_out == before
        await until(lambda: b.notes.frames)

    run(scenario)


def test_everything_ends_with_the_network() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        a.network.close()
        assert a.notes.count("lost", "gateway", "b") == a.notes.count("lost", "home", "b") == 1
        assert a.network.status() == []
        await until(lambda: b.notes.count("down", "a"))

    run(scenario)
