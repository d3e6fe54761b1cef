"""How many frames a link carries over loopback, both ends in one process: run it by hand."""

from __future__ import annotations

import asyncio
import sys
import time

from peer_nodes import DATA, Node, join, node, run, until

from warren.net.peers.settings import PeerOptions

BURST = 1000


async def pump(a: Node, b: Node, size: int, seconds: float) -> None:
    """Sends bursts while there is room, and prints what arrived."""
    link, sink = a.link("b"), b.notes.home_sinks[-1]
    payload = bytes(size)
    burst = max(1, min(BURST, (1 << 20) // size))
    before, began = sink.frames, time.perf_counter()
    turns = sink.turns
    while time.perf_counter() - began < seconds:
        if link.pending_bytes < 4 << 20:
            for _ in range(burst):
                link.send(DATA, payload)
        await asyncio.sleep(0)
    await until(lambda: link.pending_bytes == 0)
    took = time.perf_counter() - began
    frames = sink.frames - before
    print(
        f"{size:>8} B: {frames / took:>10,.0f} frames/s, {frames * size / took / 1e6:>7,.0f} MB/s,"
        f" {frames / max(1, sink.turns - turns):,.0f} frames a read"
    )


async def measure() -> None:
    a, b = node("a", options=PeerOptions()), node("b", options=PeerOptions())
    a.notes.keep_frames = b.notes.keep_frames = False
    await join(a, b)
    for size in (256, 4096, 65536, 1 << 20):
        await pump(a, b, size, float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)


if __name__ == "__main__":
    run(measure)
