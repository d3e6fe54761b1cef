"""The same jobs by spark-submit, where nothing of the broker is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyspark
from journal_rows import plain_life, without

from warren.spark.journal_files import SCHEMA, write_segment

SOURCE = Path(__file__).parents[2] / "src"


def zip_of(place: Path) -> Path:
    """As docs/pipelines.md says: the package's first file and `warren/spark`."""
    path = place / "warren.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.write(SOURCE / "warren" / "__init__.py", "warren/__init__.py")
        for file in sorted((SOURCE / "warren" / "spark").rglob("*")):
            if file.suffix in {".py", ".properties"}:
                made.write(file, str(file.relative_to(SOURCE)))
    return path


def bare_python(place: Path) -> Path:
    """A Python that has what is installed, but for packages that are worked on, such as ours."""
    packages = Path(pyspark.__file__).parents[1]
    path = place / "bare-python"
    path.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    path.chmod(0o755)
    return path


def test_an_audit_by_spark_submit(tmp_path: Path) -> None:
    rows = without(plain_life(3_000), "ack", {17, 2_000})
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(v, f.type) for v, f in zip(columns, SCHEMA, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    (tmp_path / "events").mkdir()
    write_segment(table, tmp_path / "events" / "1-000001.parquet")
    main = tmp_path / "main.py"
    main.write_text((SOURCE / "warren/spark/pipelines/__main__.py").read_text())
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    words = [str(submit), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    words += ["--conf", "spark.driver.host=127.0.0.1", "--py-files", str(zip_of(tmp_path))]
    words += [str(main), "audit", "--journal", f"file://{tmp_path}/events"]
    # Times are UTC wherever it runs.
    env = {
        **os.environ,
        "TZ": "Asia/Kolkata",
        "PYSPARK_PYTHON": str(bare_python(tmp_path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [*words, "--out", f"file://{tmp_path}/out"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=tmp_path,
        env=env,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 LOST: 3,000 confirmed" in done.stdout
    found = duckdb.sql(f"select seq from '{tmp_path}/out/audit_lost/*.parquet' order by 1")
    assert found.fetchall() == [(17,), (2_000,)]
    page = (tmp_path / "out" / "audit.html").read_text()
    assert "2026-11-18 12:00:00 to 12:00:0" in page
