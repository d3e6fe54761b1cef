"""The example from zero to a plot runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb

SCRIPT = Path(__file__).parents[2] / "examples" / "from_zero_to_a_plot.py"


def test_from_zero_to_a_plot(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--orders", "300", "--to", str(tmp_path / "shop")],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "300 rows in" in run.stdout
    page = (tmp_path / "shop" / "orders.html").read_text()
    assert "300 orders" in page
    assert page.count("<polyline") == 3
    files = tmp_path / "shop" / "lake" / "data" / "**" / "*.parquet"
    ((count,),) = duckdb.sql(f"select count(distinct seq) from read_parquet('{files}')").fetchall()
    assert count == 300
