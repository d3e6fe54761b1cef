"""The options of `format("warren")`, read once and checked; names as in docs/spark.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from warren.spark.errors import OptionError

#: Where a position is said by a word.
EARLIEST, LATEST = "earliest", "latest"
#: A week, in seconds.
CURSOR_EXPIRY_S = 7 * 24 * 3600
#: All that are known, as they are spelled; Spark hands them on in lower case.
KNOWN = (
    "endpoints",
    "vhost",
    "user",
    "password",
    "passwordFile",
    "caFile",
    "queues",
    "queuePattern",
    "cursor",
    "mode",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeBody",
    "readFrom",
    "fetchRows",
    "retries",
    "retryIntervalMs",
    "pollTimeoutMs",
    "tailCacheMs",
    "discoverIntervalMs",
    "cursorExpiry",
    "producer",
    "delivery",
    "exchange",
    "routingKey",
    "onUnroutable",
    "path",
    "checkpointLocation",
    "compat",
    "amqpUrl",
    "queueType",
    "stagingDir",
)
_SPELLED = {name.lower(): name for name in KNOWN}


@dataclass(frozen=True, slots=True)
class Options:
    """See the module's text."""

    given: Mapping[str, str]

    def text(self, name: str, default: str | None = None) -> str:
        """Raises OptionError when it is missing and has no default."""
        value = self.given.get(name.lower(), default)
        if value is None or value == "":
            if default is not None:
                return default
            raise OptionError(f"option '{name}' is required")
        return str(value)

    def number(self, name: str, default: int, least: int = 0) -> int:
        value = self.given.get(name.lower())
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise OptionError(
                f"option '{name}' must be a number of at least {least}, not '{value}'"
            )
        return number

    def flag(self, name: str, default: bool) -> bool:
        value = str(self.given.get(name.lower(), default)).lower()
        if value not in {"true", "false"}:
            raise OptionError(f"option '{name}' must be true or false, not '{value}'")
        return value == "true"

    def has(self, name: str) -> bool:
        return bool(self.given.get(name.lower()))

    def one_of(self, name: str, default: str, *allowed: str) -> str:
        value = self.text(name, default)
        if value not in allowed:
            raise OptionError(f"option '{name}' must be one of {', '.join(allowed)}, not '{value}'")
        return value

    # -- how to get at the broker ------------------------------------------------------------------

    @property
    def endpoints(self) -> list[str]:
        found = [one.strip().rstrip("/") for one in self.text("endpoints").split(",")]
        for one in found:
            parts = urlsplit(one)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise OptionError(
                    "option 'endpoints' must list addresses of the HTTP API such as "
                    f"http://host:15672, separated by commas; '{one}' is none"
                )
        return found

    @property
    def password(self) -> str:
        if self.has("passwordFile"):
            path = Path(self.text("passwordFile"))
            try:
                return path.read_text().rstrip("\n")
            except OSError as error:
                raise OptionError(
                    f"option 'passwordFile': {path} cannot be read: {error.strerror}; executors "
                    "read it too, so it must be there on every machine"
                ) from error
        return self.text("password", "guest")

    @property
    def vhost(self) -> str:
        return self.text("vhost", "/")

    # -- what to read ------------------------------------------------------------------------------

    @property
    def queues(self) -> list[str]:
        """Those that are named; empty with a pattern."""
        if self.has("queues") == self.has("queuePattern"):
            raise OptionError("set one of the options 'queues' and 'queuePattern', and not both")
        names = [name.strip() for name in self.text("queues", ",").split(",")]
        return sorted({name for name in names if name})

    @property
    def mode(self) -> str:
        return self.one_of("mode", "follow", "follow", "drain")

    @property
    def read_from(self) -> str:
        """Who serves ranges of mirrored queues: any replica in sync, one that is not the master if
        there is any, or the master."""
        return self.one_of("readFrom", "any", "any", "mirror", "master")

    def offsets(self, name: str, default: str) -> str | dict[str, int | str]:
        """`earliest`, `latest`, or a position by queue."""
        value = self.text(name, default)
        if value in {EARLIEST, LATEST}:
            return value
        try:
            found: Any = json.loads(value)
            positions = {
                str(queue): one["seq"] if isinstance(one, dict) else one
                for queue, one in found.items()
            }
            if all(one in {EARLIEST, LATEST} or int(one) >= 0 for one in positions.values()):
                return positions
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        raise OptionError(
            f"option '{name}' must be 'earliest', 'latest' or JSON such as "
            f"{{\"orders\": 4711}}, not '{value}'"
        )

    def check_reading(self, *, is_stream: bool) -> None:
        """Raises OptionError for what tasks would else find wrong, each of them four times."""
        self.check_ends(is_stream=is_stream)
        _ = self.read_from, self.partitions_min
        for name in ("maxRecordsPerPartition", "cursorExpiry", "tailCacheMs"):
            self.number(name, 0)
        self.number("fetchRows", 1, 1)
        for name in ("includeBody", "includeHeaders", "failOnDataLoss"):
            self.flag(name, True)

    def check_ends(self, *, is_stream: bool) -> None:
        """Raises OptionError where a read is said to begin or end in a way that cannot be meant."""
        for which, default in (("starting", EARLIEST), ("ending", LATEST)):
            offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
            if self.has(offsets) and self.has(timestamp):
                raise OptionError(f"set one of the options '{offsets}' and '{timestamp}', not both")
            if is_stream and which == "ending" and (self.has(offsets) or self.has(timestamp)):
                given = offsets if self.has(offsets) else timestamp
                raise OptionError(
                    f"option '{given}' is for spark.read: a stream has no end. To read what there "
                    "is and stop, use trigger(availableNow=True)"
                )
            self.timestamp_ms(timestamp)
            positions = self.offsets(offsets, default)
            named = set(self.queues)
            strangers = sorted(set(positions) - named) if isinstance(positions, dict) else []
            if named and strangers:
                raise OptionError(
                    f"option '{offsets}' names queue '{strangers[0]}', which the option 'queues' "
                    "does not"
                )

    def timestamp_ms(self, name: str) -> int | None:
        if not self.has(name):
            return None
        return self.number(name, 0)

    @property
    def partitions_min(self) -> int:
        return self.number("minPartitions", max(2, min(16, os.cpu_count() or 2)), 1)


def read_options(given: Mapping[str, str]) -> Options:
    """Raises OptionError for names that nobody knows: a typing error must not go unseen."""
    for name in given:
        if name.lower() not in _SPELLED:
            raise OptionError(f"there is no option '{name}'; there are {', '.join(sorted(KNOWN))}")
    return Options({name.lower(): value for name, value in given.items()})
