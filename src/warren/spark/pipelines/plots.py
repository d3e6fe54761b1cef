"""Plots as SVG, drawn here: nothing is fetched. A small script tells what is under the pointer."""

from __future__ import annotations

import datetime
import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 960, 282
#: Below there is room for two lines of the letters of small plots, which are larger.
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 40
#: More points than pixels help nobody.
POINTS = 900
#: Fewer points than this are drawn as dots too: a line of one is not to be seen.
DOTS = 40
#: Longer names are cut beside a bar.
NAME_CHARACTERS = 36
#: Steps between the times below a plot, in seconds.
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)
_DAY_S = 86_400
#: Colours of lines; the style has one of each for light and for dark.
COLOURS = 8
Label = str | datetime.datetime


@dataclass(frozen=True, slots=True)
class Scale:
    """From a value to its height in the plot; `ticks` are the values that get a line."""

    ticks: tuple[float, ...]
    low: float
    high: float
    is_log: bool = False

    def y(self, value: float) -> float:
        room = HEIGHT - BOTTOM - TOP
        if self.is_log:
            value, low, high = (math.log10(v) for v in (max(value, self.low), self.low, self.high))
        else:
            low, high = self.low, self.high
        return TOP + room * (1 - (value - low) / (high - low))


def linear(top: float) -> Scale:
    """Up to a round number above `top`, in steps of 1, 2 or 5."""
    top = top if top > 0 else 1.0
    step = 10.0 ** math.floor(math.log10(top / 4))
    step *= next(m for m in (1, 2, 5, 10) if step * m * 4.5 >= top)
    count = max(1, math.ceil(round(top / step, 6)))
    return Scale(tuple(step * i for i in range(count + 1)), 0.0, step * count)


def logarithmic(values: Sequence[float]) -> Scale:
    """From the power of ten below the least to the one above the greatest."""
    found = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(found)))
    high = max(low + 1, math.ceil(math.log10(max(found))))
    powers = range(max(low, high - 6), high + 1)
    return Scale(tuple(10.0**n for n in powers), 10.0 ** powers[0], 10.0**high, True)


def lines(
    names: Sequence[str],
    labels: Sequence[Label],
    series: Sequence[Sequence[float | None]],
    marks: Sequence[tuple[float, str]] = (),
    *,
    bands: Sequence[tuple[float, float, str]] = (),
    unit: str = "",
    log: bool = False,
) -> str:
    """Lines over one axis, which `labels` tell: times, or words.

    `marks` are (place, text) and `bands` (from, to, text), in places of the axis; None is a gap.
    """
    count = len(labels)
    if count == 0:
        return '<p class="soft">nothing to plot</p>'
    known = [value for values in series for value in values if value is not None]
    scale = logarithmic(known) if log else linear(max(known, default=0.0))

    def x(i: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((i + 0.5) / count)

    drawn = [_grid(scale), _times(labels, x), *[_band(x, *one) for one in bands]]
    for i, values in enumerate(series):
        drawn.append(_line(names[i], values, i % COLOURS, x, scale))
    drawn += [_mark(x(at), text, row) for row, (at, text) in enumerate(marks)]
    drawn.append(f'<line class="cross" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    told = {
        "x": [_full(label) for label in labels],
        "names": list(names),
        "rows": [[None if v is None else round(v, 3) for v in values] for values in series],
        "left": LEFT,
        "span": WIDTH - LEFT - RIGHT,
        "width": WIDTH,
    }
    picture = "; ".join(names) + (f", {unit}" if unit else "")
    return (
        f'<figure class="plot">{_keys(names, unit)}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(picture)}">'
        f'{"".join(drawn)}</svg><div class="tip" hidden></div>'
        f'<script type="application/json">{_safe(told)}</script></figure>'
    )


def _safe(told: object) -> str:
    """JSON that cannot end the element it stands in, whatever queues are called."""
    return json.dumps(told).replace("<", "\\u003c")


def _line(
    name: str,
    values: Sequence[float | None],
    colour: int,
    x: Callable[[float], float],
    scale: Scale,
) -> str:
    """One polyline for each stretch without a gap; of too many points the highest ones."""
    step = max(1, -(-len(values) // POINTS))
    stretches: list[list[tuple[float, float]]] = [[]]
    for at in range(0, len(values), step):
        here = [value for value in values[at : at + step] if value is not None]
        if here:
            stretches[-1].append((x(at), scale.y(max(here))))
        elif stretches[-1]:
            stretches.append([])
    drawn = []
    for points in filter(None, stretches):
        text = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        drawn.append(
            f'<polyline class="c{colour}" points="{text}"><title>{html.escape(name)}</title>'
            "</polyline>"
        )
        if len(values) <= DOTS or len(points) == 1:
            dot = f'<circle class="d{colour}" r="2.6"'
            drawn += [f'{dot} cx="{px:.1f}" cy="{py:.1f}"/>' for px, py in points]
    return "".join(drawn)


def _grid(scale: Scale) -> str:
    found = []
    for value in scale.ticks:
        y = scale.y(value)
        found.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short_number(value)}</text>'
        )
    return "".join(found)


def short_number(value: float) -> str:
    """As it stands at an axis: 1.5 M, 20 k, 300, 0.05."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / (1e3 if letter == ' k' else size):g}{letter}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _times(labels: Sequence[Label], x: Callable[[float], float]) -> str:
    places = _round_times(labels) if isinstance(labels[0], datetime.datetime) else _evenly(labels)
    return "".join(
        f'<text x="{x(i):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{html.escape(text)}</text>'
        for i, text in places
    )


def _evenly(labels: Sequence[Label]) -> list[tuple[int, str]]:
    step = max(1, -(-len(labels) // 12))
    return [(i, str(labels[i])) for i in range(0, len(labels), step)]


def _round_times(labels: Sequence[Label]) -> list[tuple[int, str]]:
    times = [label for label in labels if isinstance(label, datetime.datetime)]
    span_s = max(1.0, (times[-1] - times[0]).total_seconds())
    step_s = next((s for s in _STEPS_S if span_s / s <= 8), _DAY_S * math.ceil(span_s / _DAY_S / 8))
    form = "%H:%M:%S" if step_s < 60 else "%H:%M" if step_s < _DAY_S else "%d %b"
    found = []
    for i, at in enumerate(times):
        since_s = int(at.timestamp())
        before_s = int(times[i - 1].timestamp()) if i else since_s - 1
        if since_s // step_s != before_s // step_s:
            found.append((i, at.strftime(form)))
    return found or [(0, times[0].strftime("%H:%M:%S"))]


def _full(label: Label) -> str:
    return label.strftime("%d %b %H:%M:%S") if isinstance(label, datetime.datetime) else label


def _band(x: Callable[[float], float], begin: float, end: float, text: str) -> str:
    width = max(2.0, x(end) - x(begin))
    return (
        f'<rect class="band" x="{x(begin):.1f}" y="{TOP}" width="{width:.1f}" '
        f'height="{HEIGHT - BOTTOM - TOP}"><title>{html.escape(text)}</title></rect>'
    )


def _mark(at: float, text: str, row: int) -> str:
    # Neighbours would write over one another: each has a line of its own, four in turn.
    y = TOP + 12 + (row % 4) * 15
    side = f'x="{at + 5:.1f}"' if at < WIDTH - 180 else f'x="{at - 5:.1f}" text-anchor="end"'
    return (
        f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text class="said" {side} y="{y}">{html.escape(text)}</text>'
    )


def _keys(names: Sequence[str], unit: str) -> str:
    keys = "".join(
        f'<span class="key"><i class="b{i % COLOURS}"></i>{html.escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<figcaption>{keys}<span class="unit">{html.escape(unit)}</span></figcaption>'


def bars(names: Sequence[str], values: Sequence[float]) -> str:
    """A bar for each name, under one another."""
    if not names:
        return '<p class="soft">nothing to plot</p>'
    top = max(values) or 1.0
    step, text = 26, 260
    drawn = []
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        width = (WIDTH - text - 100) * value / top
        middle, label = i * step + 17, html.escape(_short(name))
        drawn.append(
            f'<text x="{text - 8}" y="{middle}" text-anchor="end">{label}</text>'
            f'<rect class="d0" x="{text}" y="{i * step + 4}" width="{max(1.0, width):.1f}" '
            f'height="{step - 8}" rx="4"><title>{html.escape(name)}</title></rect>'
            f'<text class="said" x="{text + width + 8:.1f}" y="{middle}">{value:,.0f}</text>'
        )
    height = len(names) * step + 4
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(drawn)}</svg>'


def columns(labels: Sequence[str], names: Sequence[str], series: Sequence[Sequence[float]]) -> str:
    """How often each of `labels` was, as upright bars, those of several names side by side."""
    if not labels:
        return '<p class="soft">nothing to plot</p>'
    scale = linear(max((max(values) for values in series if values), default=0.0))
    room = (WIDTH - LEFT - RIGHT) / len(labels)
    each = room * 0.84 / max(1, len(series))
    drawn = [_grid(scale)]
    for k, values in enumerate(series):
        for i, value in enumerate(values):
            if value:
                y, left = scale.y(value), LEFT + room * (i + 0.08) + k * each
                drawn.append(
                    f'<rect class="d{k % COLOURS}" x="{left:.1f}" y="{y:.1f}" rx="1.5" '
                    f'width="{max(1.0, each - 1):.1f}" height="{HEIGHT - BOTTOM - y:.1f}">'
                    f"<title>{html.escape(names[k])}, {html.escape(labels[i])}: {value:,.0f}"
                    "</title></rect>"
                )
    step = max(1, -(-len(labels) // 12))
    drawn += [
        f'<text x="{LEFT + room * i:.1f}" y="{HEIGHT - 8}">{html.escape(labels[i])}</text>'
        for i in range(0, len(labels), step)
    ]
    return (
        f'<figure class="plot">{_keys(names, "messages")}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(drawn)}</svg></figure>'
    )


def cells(rows: Sequence[tuple[str, Sequence[tuple[str, str]]]], tones: dict[str, str]) -> str:
    """A row of small squares for each name: (tone, text) each; `tones` says what they mean."""
    keys = "".join(
        f'<span class="key"><i class="cell {tone}"></i>{html.escape(text)}</span>'
        for tone, text in tones.items()
    )
    drawn = [f'<figcaption class="keys">{keys}</figcaption>']
    for name, squares in rows:
        made = "".join(
            f'<i class="cell {tone}" title="{html.escape(text)}"></i>' for tone, text in squares
        )
        drawn.append(f'<div class="cells"><b>{html.escape(name)}</b><div>{made}</div></div>')
    return "".join(drawn)


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"
