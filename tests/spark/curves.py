"""Draws what `bench_pipelines.py --curves` has measured: `make curves`.

    docs/pipelines/curves.json -> docs/pipelines/curves.png

Both axes are logarithmic: what takes twice as long for twice as much goes up by as much as it goes
to the right. The plots are those of the reports, and Chromium takes the picture.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from warren.spark.pipelines import report

sys.path.insert(0, str(Path(__file__).parent.parent / "ui"))

from browser import HOW_TO_INSTALL, find_chromium

FOLDER = Path(__file__).parents[2] / "docs" / "pipelines"
#: Points of the axis for each power of ten; sizes are put at the nearest.
STEPS = 2
WINDOW = "1000,860"
#: Nothing is fetched, and nobody else's settings are used.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-device-scale-factor=1.5"),
)


def places(curves: dict[str, dict[str, float]]) -> list[int]:
    """The sizes of all curves, each once, in order."""
    return sorted({int(size) for points in curves.values() for size in points})


def page(curves: dict[str, dict[str, float]]) -> str:
    sizes = places(curves)
    labels = [f"{size / 1e6:g} M" for size in sizes]
    seconds = [[points.get(str(size)) for size in sizes] for points in curves.values()]
    rates = [
        [size / 1e3 / points[str(size)] if str(size) in points else None for size in sizes]
        for points in curves.values()
    ]
    parts = [
        report.section(
            "How long it takes",
            "Seconds, by events of a journal or messages.",
            report.lines(list(curves), labels, seconds, unit="s, logarithmic", log=True),
        ),
        report.section(
            "How fast that is",
            "Thousands of events or messages a second.",
            report.lines(list(curves), labels, rates, unit="k/s, logarithmic", log=True),
        ),
    ]
    fastest = max(value for row in rates for value in row if value is not None)
    verdict = f"{places(curves)[-1] / 1e6:g} M: up to {fastest:,.0f} k/s"
    return report.page("Pipelines on two cores", "", verdict, True, parts)


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit(HOW_TO_INSTALL)
    curves = json.loads((FOLDER / "curves.json").read_text())
    with tempfile.TemporaryDirectory(prefix="warren-curves") as scratch:
        drawn = Path(scratch, "curves.html")
        drawn.write_text(page(curves))
        words = [chromium, *FLAGS, f"--user-data-dir={scratch}/profile", f"--window-size={WINDOW}"]
        picture = FOLDER / "curves.png"
        subprocess.run(
            [*words, f"--screenshot={picture}", drawn.as_uri()],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    print(f"the curves: {picture}")


if __name__ == "__main__":
    main()
