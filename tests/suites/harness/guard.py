"""Refuses to start a suite that could reach another machine.

amqpstorm's tests fall back to a public broker for each variable that is not set, so the guard asks
the unpacked source itself which variables there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from harness.endpoint import require_loopback
from harness.suite import Suite

_READS_VARIABLE = re.compile(r"""environ(?:\.get\(|\[)\s*['"](\w+)['"]""")


class UnsafeSuiteError(Exception):
    """The suite may leave this machine and is not run."""


def check_environment(suite: Suite, source: Path, environment: Mapping[str, str]) -> None:
    """Check that every address the suite reads is set, and set to loopback.

    Raises: UnsafeSuiteError naming the first variable that is not.
    """
    required = set(suite.guarded_variables)
    if suite.guarded_file is not None:
        required |= set(_READS_VARIABLE.findall((source / suite.guarded_file).read_text()))
    for name in sorted(required):
        if not environment.get(name):
            raise UnsafeSuiteError(f"{suite.name}: {name} is not set; refusing to run")
    for name in suite.guarded_variables:
        value = environment[name]
        host = urlsplit(value).hostname if "://" in value else value
        try:
            require_loopback(host or "")
        except ValueError as error:
            raise UnsafeSuiteError(f"{suite.name}: {name}: {error}") from error
