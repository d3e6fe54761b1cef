"""A report in one HTML file: nothing is fetched, light and dark as the reader has it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from warren.spark.pipelines.output import as_text
from warren.spark.pipelines.plots import bars, cells, columns, lines

_STYLE = """
:root{color-scheme:light dark;--ink:#18222d;--soft:#5d6b79;--line:#e1e6ec;--back:#f4f6f8;
--card:#fff;--good:#157347;--bad:#b3261e;--warn:#a15c00;--c0:#2563c9;--c1:#12875a;--c2:#c96a10;--c3:#7a4fd0;
--c4:#c22a64;--c5:#0b7f93;--c6:#8a6d00;--c7:#5f6b7a}
@media(prefers-color-scheme:dark){:root{--ink:#e7edf3;--soft:#96a4b2;--line:#2a343f;--back:#0f151b;
--card:#182029;--good:#3fb97c;--bad:#ff7a70;--warn:#e3a13c;--c0:#6ea8ff;--c1:#45c795;--c2:#f2a04e;
--c3:#b294ff;--c4:#ff7fac;--c5:#4fc7db;--c6:#d8bb48;--c7:#9aa7b4}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);
background:var(--back);margin:0 auto;max-width:74rem;padding:2.2rem 1.2rem 4rem}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .2rem;letter-spacing:-.01em}
h2{font-size:1.1rem;margin:2.2rem 0 .1rem}p{margin:.2rem 0 .6rem}.soft{color:var(--soft)}
.verdict{display:flex;gap:.9rem;align-items:center;background:var(--card);
border:1px solid var(--line);border-left:.4rem solid;border-radius:.6rem;
padding:1rem 1.2rem;margin:1.2rem 0 .9rem}
.verdict b{display:block;font-size:1.3rem;line-height:1.3}.verdict span{color:var(--soft)}
.verdict i{font:700 1.3rem/2.2rem system-ui;width:2.2rem;height:2.2rem;border-radius:50%;flex:none;
color:var(--card);text-align:center}.verdict::first-letter{text-transform:uppercase}
.good{border-left-color:var(--good)}.good i{background:var(--good)}
.bad{border-left-color:var(--bad)}.bad i{background:var(--bad)}.bad b{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.7rem}
.tile{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.7rem .9rem}
.tile b{display:block;font-size:1.3rem;line-height:1.25;letter-spacing:-.01em;
font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:.85rem}.tile.wrong b{color:var(--bad)}
.tile.right b{color:var(--good)}
.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.9rem 1rem;
overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.83rem}
th,td{text-align:left;padding:.3rem .5rem;border-bottom:1px solid var(--line);white-space:nowrap}
tr:last-child td{border-bottom:0}tr:hover td{background:color-mix(in srgb,var(--c0) 7%,transparent)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}th{color:var(--soft);font-weight:600}
td.wrong{color:var(--bad);font-weight:700}
figure{margin:0;position:relative}svg{display:block;width:100%;height:auto}
figcaption{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;font-size:.86rem;margin-bottom:.3rem}
.unit{margin-left:auto;color:var(--soft)}.key i{display:inline-block;width:.85rem;height:.25rem;
margin-right:.4rem;vertical-align:middle;border-radius:.1rem}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}svg text.said{fill:var(--ink)}
.grid{stroke:var(--line)}.mark{stroke:var(--bad);stroke-dasharray:4 3}
.band{fill:var(--bad);opacity:.16}polyline{fill:none;stroke-width:1.7;stroke-linejoin:round}
.cross{stroke:var(--soft);visibility:hidden}
.tip{position:absolute;top:1.9rem;background:var(--card);border:1px solid var(--line);
border-radius:.4rem;padding:.35rem .6rem;font-size:.82rem;pointer-events:none;white-space:nowrap;
box-shadow:0 3px 12px #0003}.tip b{display:block}.tip td{padding:0 .35rem 0 0;border:0}
.keys{margin-bottom:.8rem}i.cell,.key i.cell{display:inline-block;width:.85rem;height:.85rem;
border-radius:.18rem;margin:0 .12rem .12rem 0}.key i.cell{margin-right:.4rem}
.cells{display:flex;gap:.9rem;margin:.35rem 0;line-height:1rem}
.cells b{flex:0 0 9rem;font-weight:600;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.ok{background:color-mix(in srgb,var(--good) 45%,var(--card))}.seen{background:var(--c0)}
.odd{background:var(--warn)}.lost{background:var(--bad)}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:0 1.2rem}
.two h2{font-size:1rem;margin-top:1.2rem}.two svg{overflow:visible}.two svg text{font-size:20px}
.two polyline{stroke-width:3}
@media print{body{background:#fff}.card,.tile,.verdict{break-inside:avoid}}
""" + "".join(
    f".c{i}{{stroke:var(--c{i})}}.d{i}{{fill:var(--c{i})}}.b{i}{{background:var(--c{i})}}"
    for i in range(8)
)
#: What is under the pointer, in words.
_SCRIPT = """
document.querySelectorAll('figure.plot').forEach(f=>{const j=f.querySelector('script');if(!j)return;
const d=JSON.parse(j.textContent),s=f.querySelector('svg'),
c=s.querySelector('.cross'),t=f.querySelector('.tip'),n=d.x.length;
const hide=()=>{t.hidden=true;c.style.visibility='hidden'};
s.addEventListener('pointermove',e=>{const r=s.getBoundingClientRect(),
p=(e.clientX-r.left)*d.width/r.width,i=Math.floor((p-d.left)/d.span*n);if(i<0||i>=n)return hide();
const x=d.left+d.span*(i+.5)/n;c.setAttribute('x1',x);c.setAttribute('x2',x);
c.style.visibility='visible';t.replaceChildren();const b=document.createElement('b');
b.textContent=d.x[i];t.append(b);d.names.forEach((m,k)=>{const v=d.rows[k][i];if(v===null)return;
const l=document.createElement('div');l.textContent=m+': '+v.toLocaleString('en');t.append(l)});
t.hidden=false;const q=(x/d.width)*r.width;
t.style.left=Math.max(0,q>r.width/2?q-t.offsetWidth-12:q+12)+'px'});
s.addEventListener('pointerleave',hide)})
"""
#: Columns whose numbers, when there are some, are what is wrong.
_WRONG = frozenset({"lost", "unflagged", "missing", "refused"})


def page(
    title: str, note: str, verdict: str, good: bool, parts: Sequence[str], figures: str = ""
) -> str:
    """The whole file; `figures` as `tiles` makes them."""
    tone, sign = ("good", "✓") if good else ("bad", "✗")
    first, rest = [*re.split(r"[:;] ", verdict, maxsplit=1), ""][:2]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f'<h1>{html.escape(title)}</h1><p class="soft">{html.escape(note)}</p>'
        f'<div class="verdict {tone}"><i>{sign}</i><div><b>{html.escape(_upper(first))}</b>'
        f"<span>{html.escape(_upper(rest))}</span></div></div>{figures}{''.join(parts)}"
        f"<script>{_SCRIPT}</script></html>\n"
    )


def tiles(figures: Sequence[tuple[str, str, str]]) -> str:
    """The numbers to see first: (what, number, '' or 'right' or 'wrong')."""
    made = "".join(
        f'<div class="tile {tone}"><b>{html.escape(number)}</b>'
        f"<span>{html.escape(what)}</span></div>"
        for what, number, tone in figures
    )
    return f'<div class="tiles">{made}</div>'


def section(title: str, text: str, body: str) -> str:
    return (
        f'<section><h2>{html.escape(title)}</h2><p class="soft">{html.escape(text)}</p>'
        f'<div class="card">{body}</div></section>'
    )


def side_by_side(parts: Sequence[str]) -> str:
    """Sections in two columns, where the window is wide enough."""
    return f'<div class="two">{"".join(parts)}</div>' if len(parts) > 1 else "".join(parts)


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return '<span class="soft">none</span>'
    numeric = [
        any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows)
        for i in range(len(names))
    ]

    def cell(i: int, value: Any) -> str:
        tones = ["n"] if numeric[i] else []
        if names[i] in _WRONG and value and not isinstance(value, bool):
            tones.append("wrong")
        mark = f' class="{" ".join(tones)}"' if tones else ""
        return f"<td{mark}>{html.escape(as_text(value))}</td>"

    right = ' class="n"'
    head = "".join(
        f"<th{right if number else ''}>{html.escape(name.replace('_', ' '))}</th>"
        for name, number in zip(names, numeric, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(cell(i, value) for i, value in enumerate(row))}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


__all__ = [
    "bars", "cells", "columns", "lines", "page", "section", "side_by_side", "table", "tiles",
]  # fmt: skip
