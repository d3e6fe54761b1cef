"""A broker as a process of its own: says its two addresses, and ends with its input."""

from __future__ import annotations

import sys

from warren.testing import Broker

if __name__ == "__main__":
    with Broker(http=True, data_dir=sys.argv[1]) as broker:
        print(broker.http_url, broker.url, flush=True)
        sys.stdin.read()
