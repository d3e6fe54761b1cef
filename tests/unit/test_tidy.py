"""The rules of this tree that a program can check: sizes, twins, words that must not stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "warren"
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
#: Folders whose files are ours to keep tidy; what is built or downloaded lies elsewhere.
FOLDERS = ("src", "tests", "bench", "docs")
TEXTS = {".py", ".pyx", ".pxd", ".pyi", ".md", ".toml", ".c", ".h", ".txt", ".sh", ".conf"}
SKIPPED = {"__pycache__", "build", "results", "baseline", ".cache"}
#: Put together here so that this file does not hold them itself.
OPEN_MATTERS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
MACHINE_PATHS = re.compile(r"(?<![\w./])/(?:" + "|".join(("work", "root", "home")) + r")/")
_DEFINITION = re.compile(r"( *)(?:async )?(?:def|cdef|cpdef)\b(?! class\b)[^=]*?\w\(")


def files(*suffixes: str) -> list[Path]:
    """Our files with these endings, or all our texts."""
    wanted = set(suffixes) or TEXTS
    found = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "Makefile", "pyproject.toml")]
    for folder in FOLDERS:
        found += sorted((ROOT / folder).rglob("*"))
    return [
        path
        for path in found
        if path.is_file()
        and (path.suffix in wanted or (not suffixes and path.name == "Makefile"))
        and not SKIPPED.intersection(path.relative_to(ROOT).parts)
        # The compiler leaves its C beside the sources.
        and not (path.suffix == ".c" and path.with_suffix(".pyx").exists())
    ]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_functions(text: str) -> Iterator[tuple[int, str, int]]:
    """(line, name, length) of every function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name, (node.end_lineno or 0) - node.lineno + 1


def compiled_functions(text: str) -> Iterator[tuple[int, str, int]]:
    """The same for Cython, by indentation: a block ends at the next line that is not deeper."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _DEFINITION.match(line)
        if match is None:
            continue
        last = number
        closed = False
        for at in range(number, len(lines)):
            inside = lines[at].strip()
            indent = len(lines[at]) - len(lines[at].lstrip())
            # A signature may go over several lines, the last of which ends with a colon.
            if closed and inside and indent <= len(match.group(1)):
                break
            closed = closed or inside.split("#")[0].rstrip().endswith(":")
            if inside:
                last = at
        yield number + 1, inside_name(line), last - number + 1


def inside_name(line: str) -> str:
    found = re.search(r"(\w+)\s*\(", line)
    return found.group(1) if found else line.strip()


def test_files_are_short() -> None:
    lengths = {path: path.read_text().count("\n") for path in files(".py", ".pyx", ".pxd", ".pyi")}
    long = [f"{shown(p)}: {n} lines" for p, n in lengths.items() if n > FILE_LINES_MAX]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    long = []
    for path in files(".py", ".pyx"):
        find = python_functions if path.suffix == ".py" else compiled_functions
        long += [
            f"{shown(path)}:{line}: {name} is {length} lines"
            for line, name, length in find(path.read_text())
            if length > FUNCTION_LINES_MAX
        ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (OPEN_MATTERS, "an open matter belongs into an issue"),
        (MACHINE_PATHS, "a path of one machine means nothing on another"),
    ],
)
def test_words_that_must_not_stay(rule: re.Pattern[str], why: str) -> None:
    found = [
        f"{shown(path)}:{number}: {line.strip()[:80]}"
        for path in files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if rule.search(line)
    ]
    assert not found, f"{why}\n" + "\n".join(found)


def test_compiled_modules_have_types() -> None:
    bare = [shown(p) for p in SOURCE.rglob("*.pyx") if not p.with_suffix(".pyi").exists()]
    assert not bare, bare


def test_types_have_a_compiled_module() -> None:
    left_over = [shown(p) for p in SOURCE.rglob("*.pyi") if not p.with_suffix(".pyx").exists()]
    assert not left_over, left_over


def test_packages_and_modules_say_what_they_are_for() -> None:
    silent = [
        shown(path)
        for path in SOURCE.rglob("*.py")
        if ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not silent, silent
    silent = [shown(p) for p in SOURCE.rglob("*.pyx") if not p.read_text().startswith('"""')]
    assert not silent, silent


def test_every_folder_of_sources_is_a_package() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert not [shown(folder) for folder in folders if not (folder / "__init__.py").exists()]


def test_compiled_functions_are_measured_well() -> None:
    lines = ["cdef class A(B):", "    cdef int f(self,", "               int n) except -1:"]
    lines += ["        x", "", "        y", "", "    z", "cdef int n = g(1)"]
    assert list(compiled_functions("\n".join(lines))) == [(2, "f", 5)]
