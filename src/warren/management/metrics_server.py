"""The metrics endpoint: a port of its own, open to whoever can reach it, as Prometheus expects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from warren.management.context import Context
from warren.management.metrics import page_of_broker, page_of_families

CONTENT_TYPE = "text/plain; version=0.0.4"

Page = Callable[[web.Request], Awaitable[bytes]]


def make_metrics_app(context: Context) -> web.Application:
    """`/metrics`, `/metrics/per-object` and `/metrics/detailed`, below the configured path."""
    base = "/" + context.settings.prometheus.path.strip("/")
    everywhere = context.settings.prometheus.per_object

    async def aggregated(_request: web.Request) -> bytes:
        return await page_of_broker(context, everywhere)

    async def per_object(_request: web.Request) -> bytes:
        return await page_of_broker(context, True)

    async def detailed(request: web.Request) -> bytes:
        vhosts = set(request.query.getall("vhost", [])) or None
        return await page_of_families(context, request.query.getall("family", []), vhosts)

    app = web.Application()
    pages: dict[str, Page] = {
        base: aggregated,
        f"{base}/per-object": per_object,
        f"{base}/detailed": detailed,
    }
    for path, page in pages.items():
        app.router.add_get(path, _sent(page), allow_head=False)
        app.router.add_head(path, _head)
    return app


async def _head(_request: web.Request) -> web.Response:
    return web.Response(status=204)


def _sent(page: Page) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.Response(body=await page(request))
        response.headers["Content-Type"] = CONTENT_TYPE
        response.enable_compression()
        return response

    return answer
