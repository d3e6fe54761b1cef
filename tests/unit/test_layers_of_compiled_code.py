"""import-linter does not read Cython: the same layers, held for `.pyx` and `.pxd`."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "warren"
#: Lowest first; packages of one layer do not import each other.
LAYERS = [
    {"base"},
    {"model"},
    {"wire", "telemetry", "config"},
    {"session", "routing", "queue", "gateway", "replication", "cluster", "store", "auth"},
    {"engine"},
    {"net"},
    {"management", "ctl"},
    {"node"},
    {"testing"},
]
RANK = {package: rank for rank, packages in enumerate(LAYERS) for package in packages}
IMPORT = re.compile(r"^\s*(?:from|cimport|import)\s+warren\.(\w+)", re.MULTILINE)
OUTSIDE_WORLD = re.compile(
    r"^\s*(?:from|import)\s+(socket|asyncio|time|random|threading|os|logging)\b", re.MULTILINE
)
SANS_IO = {"session", "routing", "queue", "gateway", "model", "wire"}


def compiled_sources() -> list[Path]:
    found = sorted([*SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxd")])
    assert len(found) > 20
    return found


def test_compiled_code_imports_downwards() -> None:
    offenders = [
        f"{path.relative_to(SOURCE)} imports {imported}"
        for path in compiled_sources()
        for package in path.relative_to(SOURCE).parts[:1]
        for imported in IMPORT.findall(path.read_text())
        if imported != package and RANK[imported] >= RANK.get(package, -1)
    ]
    assert not offenders, "\n".join(offenders)


def test_the_compiled_core_does_no_input_or_output() -> None:
    offenders = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in compiled_sources()
        if path.relative_to(SOURCE).parts[0] in SANS_IO
        for name in OUTSIDE_WORLD.findall(path.read_text())
    ]
    assert not offenders, "\n".join(offenders)
