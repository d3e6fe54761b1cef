"""Reads a queue again and again, as fast as it is given: a process of its own, for benchmarks."""

from __future__ import annotations

import sys

from warren.spark.blocks import Block
from warren.spark.client import Client
from warren.spark.options import read_options


def main(url: str, queue: str, start: str) -> None:
    client = Client(read_options({"endpoints": url}))
    first = begin = int(start)
    print("reading", flush=True)
    while True:
        block = Block(client.read_range(queue, {"from": first, "rows": 20_000}))
        first = block.end if block.rows else begin


if __name__ == "__main__":
    main(*sys.argv[1:])
