"""A broker as a process of its own: says its two addresses, and ends with its input."""

from __future__ import annotations

import json
import sys

from warren.testing import Broker

if __name__ == "__main__":
    config = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    with Broker(http=True, data_dir=sys.argv[1], config=config) as broker:
        print(broker.http_url, broker.url, flush=True)
        sys.stdin.read()
