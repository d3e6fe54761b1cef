"""`tests/step.py`: limits, second chances, and that neither hides anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STEP = Path(__file__).parents[1] / "step.py"
PYTEST = [str(Path(sys.executable).parent / "pytest"), "-q", "-p", "no:warren"]


def go(folder: Path, *words: str) -> tuple[int, str]:
    """A copy of it in a tree of its own: exit status, and what it printed."""
    copy = folder / "tests" / "step.py"
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(STEP.read_bytes())
    done = subprocess.run(
        [sys.executable, str(copy), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout


def write_tests(folder: Path, text: str) -> None:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")


#: Fails as long as it is not run alone a second time.
FLAKY = """
from pathlib import Path
import pytest

def test_flaky():
    mark = Path(__file__).with_name("mark")
    was_there = mark.exists()
    mark.touch()
    assert was_there

def test_sound():
    pass
"""


def test_one_that_passes_when_run_again_is_named(tmp_path: Path) -> None:
    write_tests(tmp_path, FLAKY)
    assert go(tmp_path, "--begin") == (0, "")
    status, shown = go(tmp_path, "--second-chance", "mine", "60", *PYTEST, "-n", "2", "test_it.py")
    assert status == 0, shown
    assert "1 failed, 1 passed" in shown
    assert "!!! passed only when run again (1):\n!!!   test_it.py::test_flaky\n" in shown
    _, summary = go(tmp_path, "--summary")
    assert "!!!   test_it.py::test_flaky" in summary
    assert "=== mine " in summary


def test_without_a_second_chance_it_fails(tmp_path: Path) -> None:
    write_tests(tmp_path, FLAKY)
    status, shown = go(tmp_path, "mine", "60", *PYTEST, "test_it.py")
    assert status == 1
    assert "again" not in shown
    assert "FAILED (status 1)" in shown


def test_one_that_fails_twice_fails_the_step(tmp_path: Path) -> None:
    write_tests(tmp_path, FLAKY + "\ndef test_broken():\n    raise ValueError\n")
    status, shown = go(tmp_path, "--second-chance", "mine", "60", *PYTEST, "test_it.py")
    assert status == 1
    assert "!!!   test_it.py::test_flaky" in shown
    assert "!!!   test_it.py::test_broken" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "import nothing_of_this_name\n",
        "\n".join(f"def test_{n}():\n    assert False" for n in range(9)),
    ],
    ids=["a file that cannot be read", "very many"],
)
def test_what_gets_no_second_chance(tmp_path: Path, text: str) -> None:
    write_tests(tmp_path, text)
    status, shown = go(tmp_path, "--second-chance", "mine", "60", *PYTEST, "test_it.py")
    assert status != 0
    assert "once more" not in shown


def test_a_hang_ends_with_its_traceback(tmp_path: Path) -> None:
    write_tests(tmp_path, "import time\n\ndef test_stands_still():\n    time.sleep(600)\n")
    status, shown = go(tmp_path, "mine", "12", *PYTEST, "-p", "no:timeout", "test_it.py")
    assert status == 124
    assert "TOO LONG" in shown
    assert "in test_stands_still" in shown


def test_what_a_step_came_to_is_kept(tmp_path: Path) -> None:
    status, _ = go(tmp_path, "mine", "60", sys.executable, "-c", "raise SystemExit(3)")
    assert status == 3
    (line,) = (tmp_path / "build" / "steps.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["name"], entry["status"], entry["passed_again"]) == ("mine", 3, [])
