"""Directories that a command line names: local ones only, and looked at before Spark starts."""

from __future__ import annotations

import argparse
from pathlib import Path

from warren.spark.errors import WarrenError


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
