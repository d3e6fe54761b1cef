"""Directories that a command line names: local ones only, and looked at before Spark starts."""

from __future__ import annotations

import argparse
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

from warren.spark.errors import WarrenError

#: How long a node may take to be there: it may be starting, too.
ENDPOINT_S = 3.0


def local_path(text: str) -> Path:
    """A directory that was named, as a path or as a file: URI. Raises WarrenError for others."""
    scheme, colon, rest = text.partition(":")
    if not colon or "/" in scheme or len(scheme) < 2:
        return Path(text).absolute()
    if scheme == "file":
        return Path("/" + rest.lstrip("/"))
    raise WarrenError(
        f"{text} is no local path: pipelines write to file systems that driver and executors have "
        f"mounted. Mount what is behind {scheme}: there, or copy the directory when it is whole"
    )


def check_places(given: argparse.Namespace) -> None:
    """Raises WarrenError when a directory is no local one, or cannot be written to."""
    for name in ("archive", "firehose_archive", "run", "out"):
        if text := getattr(given, name, None):
            local_path(text)
    for text in getattr(given, "journal", None) or ():
        if not (place := local_path(text)).is_dir():
            raise WarrenError(f"there is no event journal in {place}: name a node's directory")
    written = ["out", "run"]
    if given.name in {"archive", "typed"}:
        local_path(given.to)
        # What is compacted is there, or there is nothing to compact.
        written += [] if getattr(given, "compact", False) else ["to"]
    for name in written:
        if text := getattr(given, name, None):
            _probe(local_path(text), name)


def check_endpoints(given: argparse.Namespace) -> None:
    """Raises WarrenError when a broker is to be asked and no node is there.

    Only a job that has begun waits for a failover: one with a wrong address is not to wait for it.
    """
    queues = getattr(given, "queues", None) or getattr(given, "queue_pattern", None)
    publishes = given.name == "replay" and not given.plan_only
    asks = publishes or queues or getattr(given, "firehose", None)
    if not asks or getattr(given, "compact", False):
        return
    endpoints = [one.strip() for one in given.endpoints.split(",") if one.strip()]
    until_s = time.monotonic() + ENDPOINT_S
    while not any(_is_open(endpoint) for endpoint in endpoints):
        if time.monotonic() >= until_s:
            raise WarrenError(
                f"no node answers at {', '.join(endpoints)}: start one, or name the HTTP APIs of "
                "yours with --endpoints http://host:15672"
            )
        time.sleep(ENDPOINT_S / 10)


def _is_open(endpoint: str) -> bool:
    parts = urlsplit(endpoint)
    default = 15671 if parts.scheme == "https" else 15672
    try:
        with socket.create_connection((parts.hostname or "", parts.port or default), ENDPOINT_S):
            return True
    except (OSError, ValueError):
        return False


def _probe(place: Path, option: str) -> None:
    """An audit of a large journal takes its time: it is not to fail in the end only."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        probe = place / ".probe"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise WarrenError(
            f"{place} cannot be written to: {error.strerror}; choose another place with --{option}"
        ) from error
