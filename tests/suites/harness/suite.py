"""What the harness has to know about one foreign suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.certificates import Certificates
from harness.endpoint import Endpoint

Environment = Callable[[Endpoint, Certificates], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Patch:
    """A replacement in one file of the unpacked copy; it must match, or the version has changed."""

    path: str
    old: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True)
class Suite:
    """One client's tests: where they come from, how they are told where the broker is."""

    name: str
    #: The name on the package index and the version that is proven.
    project: str
    version: str
    #: What pytest is given, relative to the root of the unpacked source archive.
    targets: tuple[str, ...]
    environment: Environment
    #: What `--fast` gives to pytest; empty when the suite is not part of it.
    fast: tuple[str, ...] = ()
    patches: tuple[Patch, ...] = ()
    #: Our own files laid into the copy: path in the copy -> name under `overlays/`, `None` = empty.
    overlays: Mapping[str, str | None] = field(default_factory=dict)
    #: Certificates laid into the copy: path in the copy -> field of `Certificates`.
    certificates: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    #: For suites whose test files disturb one another within one interpreter.
    process_per_file: bool = False
    #: Variables the suite reads that hold or lead to a host; each must be set to loopback.
    guarded_variables: tuple[str, ...] = ()
    #: The file whose defaults lead off the machine: each variable it reads must be set.
    guarded_file: str | None = None
    test_timeout_s: int = 60
    suite_timeout_s: int = 900
