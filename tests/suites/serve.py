"""Runs one broker in the foreground until SIGTERM, for tests that stop and kill their own broker.

The overlays start it in a process group of its own: SIGTERM ends it in good order, SIGKILL to the
group ends it as a power cut would, and starting it again in the same directory is a restart.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

from harness.broker import WARREN, running_broker
from harness.certificates import make_certificates
from harness.endpoint import Endpoint


def main() -> NoReturn:
    """Parse the command line, run the broker, wait to be ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=("warren", "rabbitmq"), required=True)
    parser.add_argument("--warren", type=Path, default=WARREN)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    options = parser.parse_args()
    # A handler, not a blocked signal: the broker would inherit the block and never hear SIGTERM.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    endpoint = Endpoint("127.0.0.1", options.port)
    certificates = make_certificates(options.directory / "certificates")
    with running_broker(
        options.broker,
        endpoint,
        certificates,
        options.directory,
        own_group=False,
        warren=options.warren,
    ):
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
