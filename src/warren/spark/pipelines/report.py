"""A report in one HTML file: nothing is fetched, the plots are SVG drawn here."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from warren.spark.pipelines.output import as_text

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2733;--soft:#667788;--line:#dde3ea;--back:#fbfcfd;
--card:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa7b4;--line:#2c3742;--back:#12181f;
--card:#1a222b}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:0 auto;
max-width:64rem;padding:2rem 1rem}
h1{font-size:1.6rem;margin:0 0 .2rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}p{margin:.4rem 0}
.soft{color:var(--soft)}.verdict{border-radius:.6rem;padding:1rem 1.2rem;margin:1.2rem 0;color:#fff;
font-size:1.2rem;font-weight:600}.good{background:#1a7f4b}.bad{background:#b42318}
.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1rem;
overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}th{color:var(--soft);font-weight:600}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}
.key{display:inline-block;margin-right:1rem}
.key i{display:inline-block;width:.8rem;height:.2rem;margin-right:.35rem;vertical-align:middle}
"""
_COLOURS = ("#2f6fde", "#1a9d6c", "#d9822b", "#8b5cf6", "#d6336c", "#0c8599")
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 240, 60, 24
#: More points than pixels help nobody.
POINTS = 900
#: Longer names are cut beside a bar.
NAME_CHARACTERS = 36


def page(title: str, note: str, verdict: str, good: bool, parts: Sequence[str]) -> str:
    """The whole file."""
    tone = "good" if good else "bad"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f'<h1>{html.escape(title)}</h1><p class="soft">{html.escape(note)}</p>'
        f'<div class="verdict {tone}">{html.escape(verdict)}</div>{"".join(parts)}</html>\n'
    )


def section(title: str, text: str, body: str) -> str:
    return (
        f'<h2>{html.escape(title)}</h2><p class="soft">{html.escape(text)}</p>'
        f'<div class="card">{body}</div>'
    )


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return "none"
    numeric = [isinstance(value, int | float) for value in rows[0]]

    def line(tag: str, cells: Sequence[str]) -> str:
        marked = [
            f'<{tag} class="n">{cell}</{tag}>' if number else f"<{tag}>{cell}</{tag}>"
            for cell, number in zip(cells, numeric, strict=True)
        ]
        return f"<tr>{''.join(marked)}</tr>"

    body = "".join(line("td", [html.escape(as_text(value)) for value in row]) for row in rows)
    return f"<table>{line('th', [html.escape(n.replace('_', ' ')) for n in names])}{body}</table>"


def lines(
    names: Sequence[str],
    labels: Sequence[str],
    series: Sequence[Sequence[float]],
    marks: Sequence[tuple[int, str]] = (),
) -> str:
    """Lines over one axis: `labels` tell what stands where; `marks` are (place, text)."""
    count = len(labels)
    if count == 0:
        return "nothing to plot"
    step = max(1, -(-count // POINTS))
    top = max((max(values) for values in series if values), default=0.0) or 1.0

    def x(i: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * (i / max(1, count - 1))

    def y(value: float) -> float:
        return 10 + (HEIGHT - BOTTOM - 10) * (1 - value / top)

    drawn = [_grid(top, y), _times(labels, x)]
    for i, (values, colour) in enumerate(zip(series, _COLOURS * 2, strict=False)):
        points = " ".join(
            f"{x(at):.1f},{y(max(values[at : at + step])):.1f}" for at in range(0, count, step)
        )
        drawn.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}">'
            f"<title>{html.escape(names[i])}</title></polyline>"
        )
    for at, text in marks:
        drawn.append(
            f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="10" y2="{HEIGHT - BOTTOM}" '
            f'stroke="#b42318" stroke-dasharray="4 3"/>'
            f'<text x="{x(at) + 4:.1f}" y="20">{html.escape(text)}</text>'
        )
    keys = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{html.escape(name)}</span>'
        for name, colour in zip(names, _COLOURS * 2, strict=False)
    )
    return (
        f'<div>{keys}</div><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img">'
        f"{''.join(drawn)}</svg>"
    )


def bars(names: Sequence[str], values: Sequence[float]) -> str:
    """A bar for each name, under one another."""
    if not names:
        return "nothing to plot"
    top = max(values) or 1.0
    step, text = 24, 260
    drawn = []
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        width = (WIDTH - text - 90) * value / top
        middle = i * step + 16
        label = html.escape(_short(name))
        drawn.append(
            f'<text x="{text - 8}" y="{middle}" text-anchor="end">{label}</text>'
            f'<rect x="{text}" y="{i * step + 4}" width="{width:.1f}" height="{step - 8}" rx="3" '
            f'fill="{_COLOURS[0]}"><title>{html.escape(name)}</title></rect>'
            f'<text x="{text + width + 6:.1f}" y="{middle}">{value:,.0f}</text>'
        )
    height = len(names) * step + 4
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img">{"".join(drawn)}</svg>'


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"


def _grid(top: float, y: Any) -> str:
    found = []
    for share in (0.0, 0.5, 1.0):
        value = top * share
        shown = f"{value:,.0f}" if top >= 10 else f"{value:.2f}"
        found.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="var(--line)"/><text x="{LEFT - 6}" y="{y(value) + 4:.1f}" '
            f'text-anchor="end">{shown}</text>'
        )
    return "".join(found)


def _times(labels: Sequence[str], x: Any) -> str:
    last = len(labels) - 1
    places = sorted({0, last // 2, last})
    anchors = {0: "start", last: "end"}
    return "".join(
        f'<text x="{x(i):.1f}" y="{HEIGHT - 6}" text-anchor="{anchors.get(i, "middle")}">'
        f"{html.escape(labels[i])}</text>"
        for i in places
    )
