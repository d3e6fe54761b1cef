"""Serves the web UI: a few files that were built into the package, held in memory.

They are static and hold nothing of anybody's, so they are open; what they show comes from the API.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from warren.config.settings import ManagementSettings

FOLDER = Path(__file__).parent / "ui"
#: Everything comes from here: no inline scripts or styles, no other site, and not in a frame.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
#: Names of assets hold a hash of what is in them.
FOR_EVER, ASK_FIRST = "public, max-age=31536000, immutable", "no-cache"
NOT_BUILT = (
    "The web UI is not part of this installation: it was not built.\n"
    "In a checkout, 'make webui' builds it; the API is at api/ all the same.\n"
)
INDEX = "index.html"
NOT_MODIFIED, NOT_FOUND = 304, 404


@dataclass(frozen=True, slots=True)
class _File:
    """A file, and as browsers get it."""

    content_type: str
    plain: bytes
    compressed: bytes
    tag: str


class WebUi:
    """The files are read when somebody asks for the first of them."""

    def __init__(self, settings: ManagementSettings, folder: Path = FOLDER) -> None:
        self._settings = settings
        self._folder = folder
        self._files: dict[str, _File] | None = None

    def add_routes(self, app: web.Application, prefix: str) -> None:
        """Below a path without a slash at its end."""
        app.router.add_route("GET", prefix + "/", self._answer)
        app.router.add_route("GET", prefix + "/{file:[\\w.-]+}", self._answer)
        app.router.add_route("GET", prefix + "/{folder:assets}/{file:[\\w.-]+}", self._answer)
        if prefix:
            app.router.add_route("GET", prefix, _to_slash)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self._files is None:
            self._files = await asyncio.to_thread(_read, self._folder)
        folder = request.match_info.get("folder", "")
        name = request.match_info.get("file") or INDEX
        file = self._files.get(f"{folder}/{name}" if folder else name)
        headers = dict(SAFETY)
        if file is None:
            text = NOT_BUILT if name == INDEX else "There is no such file.\n"
            return web.Response(status=NOT_FOUND, text=text, headers=headers)
        headers["Content-Security-Policy"] = self._settings.csp_policy or CSP
        headers["Cache-Control"] = FOR_EVER if folder else ASK_FIRST
        headers["ETag"] = file.tag
        headers["Vary"] = "accept-encoding"
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=NOT_MODIFIED, headers=headers)
        headers["Content-Type"] = file.content_type
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=file.compressed, headers=headers)
        return web.Response(body=file.plain, headers=headers)


async def _to_slash(request: web.Request) -> web.StreamResponse:
    """The page names its files relative to the slash."""
    raise web.HTTPMovedPermanently(request.rel_url.raw_path + "/")


def _read(folder: Path) -> dict[str, _File]:
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            files[path.relative_to(folder).as_posix()] = _file(path)
    return files


def _file(path: Path) -> _File:
    content_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if content_type.startswith("text/") or content_type.endswith("javascript"):
        content_type += "; charset=utf-8"
    plain = path.read_bytes()
    tag = hashlib.sha256(plain).hexdigest()[:24]
    return _File(content_type, plain, gzip.compress(plain, 9, mtime=0), f'"{tag}"')
