"""Draws what `bench_pipelines.py --curves` has measured: `make curves`.

    docs/pipelines/curves.json -> docs/pipelines/curves.png

Both axes are logarithmic, the sizes being even steps of one: what takes twice as long for twice as
much goes up as it goes to the right. The plots are those of the reports, and Chromium takes the
picture.
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
WINDOW = "1000,1075"
#: Nothing is fetched, and nobody else's settings are used.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-device-scale-factor=1.5"),
)


def page(curves: dict[str, dict[int, float]]) -> str:
    """`curves`: by name the seconds for so many millions."""
    sizes = sorted({size for points in curves.values() for size in points})
    labels = [f"{size} M" for size in sizes]
    seconds = [[points.get(size) for size in sizes] for points in curves.values()]
    rates = [
        [size * 1e3 / points[size] if size in points else None for size in sizes]
        for points in curves.values()
    ]
    parts = [
        report.section(
            "How long it takes",
            "By events of a journal, messages of an archive, messages that a scrub reads.",
            report.lines(list(curves), labels, seconds, unit="seconds, logarithmic", log=True),
        ),
        report.section(
            "How fast that is",
            "The same, in thousands a second.",
            report.lines(list(curves), labels, rates, unit="k/s, logarithmic", log=True),
        ),
    ]
    verdict = ", ".join(
        f"{name} of {max(points)} M in {points[max(points)]:,.1f} s"
        for name, points in curves.items()
    )
    most = f"{sizes[-1]} M at most"
    return report.page("Pipelines on two cores", "", f"{most}: {verdict}", True, parts)


def read_curves(path: Path) -> dict[str, dict[int, float]]:
    """What stands in the file; sizes in millions, of which thirds are not told."""
    found = json.loads(path.read_text())
    return {
        name: {round(int(size) / 1e6): float(took) for size, took in points.items()}
        for name, points in found.items()
    }


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit(HOW_TO_INSTALL)
    curves = read_curves(FOLDER / "curves.json")
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
