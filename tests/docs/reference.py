"""Writes the pages that list all routes and all commands: `python tests/docs/reference.py`."""

from __future__ import annotations

from pathlib import Path

from warren.ctl.main import GROUPS, commands
from warren.management.openapi import describe
from warren.management.server import ROUTES

ORIGIN = "Made from the code by `tests/docs/reference.py`; see also [operating.md](operating.md)."
DOCS = Path(__file__).parents[2] / "docs"


def http_page() -> str:
    """docs/http-api.md."""
    lines = [
        "# Routes of the management API",
        "",
        ORIGIN,
        "",
        "| method | path | who | what |",
        "|---|---|---|---|",
    ]
    described = describe(ROUTES)["paths"]
    for route in sorted(ROUTES, key=lambda route: (route.path, route.method)):
        what = described[f"/api{route.path}"][route.method.lower()]["summary"]
        lines.append(f"| {route.method} | `/api{route.path}` | {route.access} | {what} |")
    return "\n".join(lines) + "\n"


def ctl_page() -> str:
    """docs/warrenctl.md."""
    lines = [
        "# Commands of warrenctl",
        "",
        ORIGIN,
    ]
    modules = {command.name: command.run.__module__ for command in commands()}
    for title, module in GROUPS:
        lines += ["", f"## {title}", "", "| command | what it does |", "|---|---|"]
        for command in commands():
            if modules[command.name].endswith(f".{module}"):
                own = "".join(f" [--{name}]" for name in command.options)
                words = f" {command.words}" if command.words else ""
                shown = f"{command.name}{own}{words}".replace("|", "\\|")
                lines.append(f"| `{shown}` | {command.about} |")
    return "\n".join(lines) + "\n"


PAGES = {"http-api.md": http_page, "warrenctl.md": ctl_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
