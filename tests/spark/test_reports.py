"""Reports: one file that fetches nothing, whose plots tell what happened and when."""

from __future__ import annotations

import datetime
import re
from html.parser import HTMLParser

from warren.spark.pipelines import plots, report

BEGAN = datetime.datetime(2026, 11, 18, 12, 0, tzinfo=datetime.UTC)
TIMES = [BEGAN + datetime.timedelta(seconds=n) for n in range(30)]


class Nesting(HTMLParser):
    """Every element that is opened is closed, but for those that need not be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_report_is_one_file_that_fetches_nothing() -> None:
    drawn = report.lines(
        ("p50", "p99"),
        TIMES,
        [[float(n) for n in range(30)], [None if 9 < n < 20 else n * 40.0 for n in range(30)]],
        [(12.0, "b becomes master")],
        bands=[(10.0, 20.0, "nothing was confirmed")],
        unit="ms",
        log=True,
    )
    squares = report.cells([("orders", [("ok", "fine"), ("lost", "2 wrong")])], {"ok": "well"})
    rows = report.table(["queue", "lost", "at"], [("orders", 2, BEGAN), ("mail", 0, None)])
    figures = report.tiles([("lost", "2", "wrong")])
    bars = report.columns(["1", "10"], ["a", "b"], [[1.0, 0.0], [3.0, 5.0]])
    parts = [report.section("Plot", "Text.", one) for one in (drawn, squares, rows, bars)]
    page = report.page("Audit", "note", "2 LOST: 10 confirmed", False, parts, figures)
    found = Nesting()
    found.feed(page)
    assert found.open == []
    # A line with a gap is two.
    assert found.names.count("polyline") == 3
    assert not re.search(r"(src|href)=|url\(|@import|https?:", page)
    assert "prefers-color-scheme:dark" in page
    assert ">12:00:05<" in page
    assert "b becomes master" in page
    assert 'class="n wrong">2<' in page


def test_names_cannot_break_a_page() -> None:
    name = "</script><b>'\"&"
    page = report.page(
        name,
        name,
        name,
        True,
        [
            report.section(name, name, report.lines((name,), (name,), [[1.0]])),
            report.bars([name], [1.0]),
            report.cells([(name, [("ok", name)])], {"ok": name}),
            report.table([name], [(name,)]),
        ],
    )
    found = Nesting()
    found.feed(page)
    assert found.open == []
    assert "</script><b>" not in page


def test_axes_are_round() -> None:
    assert plots.linear(0).high == 1.0
    for top in (0.3, 1, 7, 99, 101, 540, 12_345, 9_999_999):
        scale = plots.linear(top)
        assert top <= scale.high <= top * 1.6
        assert 2 <= len(scale.ticks) <= 11
    assert plots.logarithmic([0.5, 90]).ticks == (0.1, 1.0, 10.0, 100.0)
    assert [plots.short_number(n) for n in (0, 0.5, 300, 2000, 20_000, 1.5e6)] == [
        "0", "0.5", "300", "2,000", "20 k", "1.5 M",
    ]  # fmt: skip


def test_times_below_a_plot_are_round() -> None:
    labels = dict(plots._round_times(TIMES))
    assert labels[5] == "12:00:05"
    hours = [BEGAN + datetime.timedelta(minutes=7 * n) for n in range(60)]
    assert {label[-2:] for label in dict(plots._round_times(hours)).values()} <= {
        f"{n:02d}" for n in range(60)
    }
