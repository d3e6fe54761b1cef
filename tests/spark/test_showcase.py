"""What `make demo` runs: nodes, load, a master that is killed, the audit of what happened."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import duckdb


def test_the_demonstration_says_that_nothing_was_lost(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "warren", "showcase", "--demo", "--no-archive", "--seconds", "4"]
    done = subprocess.run(
        [*words, "--dir", str(tmp_path / "show")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killing warren1@localhost, the master of 'orders'" in done.stdout
    told = re.search(r"nothing confirmed was lost: ([\d,]+) confirmed", done.stdout)
    assert told is not None, done.stdout
    files = f"{tmp_path}/show/audit/audit_queue/*.parquet"
    ((confirmed, lost),) = duckdb.sql(f"select confirmed, lost from '{files}'").fetchall()
    assert (f"{confirmed:,}", lost) == (told[1], 0)
    assert confirmed > 1_000
    assert "<svg" in (tmp_path / "show" / "audit" / "audit.html").read_text()
    # Nothing of Java's own talk.
    assert done.stderr == ""
