"""The HTTP server of the management API, on the node's own event loop.

Every route is a row of a table. A request is let in here, once for all routes: who asks, whether
the route is open to them, and how a refusal is worded; then its handler has it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from warren.auth.directory import CredentialsRefused
from warren.auth.users import OPERATOR, User
from warren.management import (
    dead_letter_causes,
    remote_queues,
    routes_access,
    routes_batches,
    routes_bulk,
    routes_cluster,
    routes_cursors,
    routes_declare,
    routes_following,
    routes_messages,
    routes_mirrors,
    routes_moving,
    routes_node,
    routes_objects,
    routes_own,
    routes_pausing,
    routes_policies,
    routes_rebalance,
    routes_runtime,
    routes_salvage,
    routes_shovels,
    routes_web_ui,
)
from warren.management.call import TRUSTED, Answer, Call, Reply, Route, check_access
from warren.management.caller import Caller
from warren.management.context import Context
from warren.management.control_socket import listen_at
from warren.management.encode import to_json
from warren.management.errors import REFUSALS, ApiError, as_api_error, not_found
from warren.management.listing import HEADERS, send_json
from warren.management.openapi import describe
from warren.management.peers import PeerAnswer, PeerRequest, Question
from warren.management.sessions import TokenRefused
from warren.management.web_ui import WebUi
from warren.telemetry.log import logger


async def get_openapi(_call: Call) -> Answer:
    """This description of the API."""
    return describe(ROUTES)


ROUTES: tuple[Route, ...] = (
    *routes_node.ROUTES,
    *routes_objects.ROUTES,
    *routes_declare.ROUTES,
    *routes_access.ROUTES,
    *routes_policies.ROUTES,
    *routes_pausing.ROUTES,
    *routes_bulk.ROUTES,
    *routes_messages.ROUTES,
    *routes_moving.ROUTES,
    *routes_following.ROUTES,
    *dead_letter_causes.ROUTES,
    *routes_shovels.ROUTES,
    *routes_runtime.ROUTES,
    *routes_own.ROUTES,
    *routes_mirrors.ROUTES,
    *routes_rebalance.ROUTES,
    *routes_salvage.ROUTES,
    *routes_cluster.ROUTES,
    *routes_cursors.ROUTES,
    *routes_batches.ROUTES,
    *routes_web_ui.ROUTES,
    Route("GET", "/openapi.json", "open", get_openapi),
)
#: What only other nodes ask.
PEER_ROUTES: tuple[Route, ...] = (
    *remote_queues.ROUTES,
    *routes_mirrors.PEER_ROUTES,
    *routes_rebalance.PEER_ROUTES,
    *routes_salvage.PEER_ROUTES,
)
REALM = 'Basic realm="RabbitMQ Management"'
CSP = "script-src 'self'; object-src 'self'"
#: Wrong passwords from one address before answers to it become slow, and how slow.
FREE_FAILURES, FAILURE_DELAY_S, FAILURE_DELAY_MAX_S = 5, 0.1, 2.0
#: An address that has failed is forgotten after this time.
FAILURES_KEPT_S = 300.0
FAILURES_MAX = 10_000
#: What other servers log for a client that did not wait for its answer.
CLIENT_GONE = 499
#: How long a stopping server waits for requests that are being answered.
GOODBYE_S = 0.5

Aio = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Doorman:
    """Tells who a request comes from, and slows down whoever guesses passwords."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._failures: dict[str, tuple[int, float]] = {}

    async def admit(self, request: web.Request) -> Caller:
        """Raises 401 with the body that RabbitMQ gives."""
        directory = self._context.engine.directory
        if request.app.get(TRUSTED, False):
            return Caller(User(OPERATOR, tags=("administrator",)), directory)
        header = request.headers.get("Authorization")
        if header is None:
            raise ApiError(401, "", None)
        address = request.remote or ""
        if header[:7].lower() == "bearer ":
            return Caller(self._bearer(header[7:].strip(), address), directory)
        name, password = _credentials(header)
        await self._slow_down(address)
        try:
            user = directory.authenticate(name, password, _is_loopback(address), "Basic")
        except CredentialsRefused as error:
            self._note_failure(address)
            logger("management").warning("%s: HTTP login failed: %s", address, error.reason)
            raise ApiError(401, "not_authorized", "Login failed") from None
        self._failures.pop(address, None)
        return Caller(user, directory)

    def _bearer(self, token: str, address: str) -> User:
        """Whose session it is. A seal cannot be guessed, so nobody is slowed down for it."""
        directory = self._context.engine.directory
        try:
            user = self._context.sessions.user(token, directory)
            return directory.authenticate(user.name, None, _is_loopback(address), "Bearer")
        except (TokenRefused, CredentialsRefused):
            raise ApiError(401, "not_authorized", "Login failed") from None

    async def _slow_down(self, address: str) -> None:
        count, since_s = self._failures.get(address, (0, 0.0))
        if count and time.monotonic() - since_s > FAILURES_KEPT_S:
            del self._failures[address]
        elif count > FREE_FAILURES:
            over = min(count - FREE_FAILURES, 10)
            await asyncio.sleep(min(FAILURE_DELAY_MAX_S, FAILURE_DELAY_S * 2**over))

    def _note_failure(self, address: str) -> None:
        if len(self._failures) >= FAILURES_MAX:
            self._failures.clear()
        count, _ = self._failures.get(address, (0, 0.0))
        self._failures[address] = (count + 1, time.monotonic())


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, given = header.partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        name, colon, password = base64.b64decode(given.strip(), validate=True).partition(b":")
        if not colon:
            raise ValueError
    except (binascii.Error, ValueError):
        raise ApiError(401, "not_authorized", "Login failed") from None
    return name.decode("utf-8", "surrogateescape"), password.decode("utf-8", "surrogateescape")


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def _refusal(error: ApiError) -> web.Response:
    headers = dict(HEADERS)
    if error.status == 401:
        headers["WWW-Authenticate"] = REALM
    if error.reason is None:
        del headers["Content-Type"]
        return web.Response(status=error.status, headers=headers)
    body = to_json({"error": error.error, "reason": error.reason})
    return web.Response(status=error.status, body=body, headers=headers)


class ManagementServer:
    """Built by the node, started and stopped with it."""

    def __init__(self, context: Context, routes: Iterable[Route] = ROUTES) -> None:
        self.context = context
        self._routes = tuple(routes)
        self._doorman = Doorman(context)
        self._web_ui = WebUi(context.settings.management)
        self._runners: list[web.AppRunner] = []
        self._socket_path: Path | None = None

    # -- one request -------------------------------------------------------------------------------

    def _wrap(self, route: Route) -> Aio:
        async def admit(request: web.Request) -> Call:
            if route.access == "open":
                caller = Caller(User(""), self.context.engine.directory)
            else:
                caller = await self._doorman.admit(request)
            return Call(self.context, caller, request, request.match_info)

        async def answer(request: web.Request) -> web.StreamResponse:
            if route.method != "GET" and self._is_from_another_site(request):
                return _refusal(ApiError(403, "forbidden", "Refused: sent by another web site"))
            return await self._guarded(request, route, admit)

        return answer

    async def answer_peer(self, question: Question) -> PeerAnswer:
        """Another node asks for a user whom it has let in, or for its operator."""
        directory = self.context.engine.directory
        request: Any = PeerRequest(question, app={TRUSTED: question.user is None})
        routes = (*PEER_ROUTES, *self._routes)
        found = find_route(routes, question.method, question.path)
        if found is None:
            return PeerAnswer(404, b"")
        route, path = found

        async def admit(request: web.Request) -> Call:
            if question.user is None:
                user = User(OPERATOR, tags=("administrator",))
            elif directory.has_user(question.user):
                user = directory.user(question.user)
            else:
                raise ApiError(401, "not_authorized", "Login failed")
            return Call(self.context, Caller(user, directory), request, path)

        response = await self._guarded(request, route, admit)
        body = response.body if isinstance(response, web.Response) else None
        return PeerAnswer(response.status, body if isinstance(body, bytes) else b"")

    async def _guarded(
        self, request: web.Request, route: Route, admit: Callable[[web.Request], Awaitable[Call]]
    ) -> web.StreamResponse:
        """The answer of a route, or how it refuses."""
        await self.context.settled()
        try:
            return await self._answer(request, route, await admit(request))
        except ApiError as error:
            return _refusal(error)
        except REFUSALS as error:
            return _refusal(as_api_error(error))
        except web.HTTPRequestEntityTooLarge:
            return _refusal(ApiError(413, "payload_too_large", "Payload too large"))
        except web.HTTPException:
            raise
        except ConnectionResetError:
            # Who asked has gone, as whoever listens to events does in the end; nobody reads this.
            return web.Response(status=CLIENT_GONE)
        except Exception:  # noqa: BLE001 - one request that fails is no reason for another to
            logger("management").exception("a fault of ours: %s %s", route.method, request.path)
            return _refusal(ApiError(500, "internal_server_error", "a fault of the broker"))

    async def _answer(self, request: web.Request, route: Route, call: Call) -> web.StreamResponse:
        if route.access != "open":
            check_access(call, route)
        result = await route.handler(call)
        if route.method != "GET":
            # Whoever hears that something was done may rely on it.
            await self.context.written()
        if isinstance(result, web.StreamResponse):
            return result
        if result is None:
            result = Reply(204)
        if isinstance(result, Reply):
            if result.body is None:
                headers = {**HEADERS, **result.headers}
                del headers["Content-Type"]
                return web.Response(status=result.status, headers=headers)
            response = await send_json(request, to_json(result.body))
            if not response.prepared:
                response.set_status(result.status)
                response.headers.update(result.headers)
            return response
        return await send_json(request, to_json(result))

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        """Everything that is no route."""
        methods = sorted({r.method for r in self._routes if _fits(r, request, self._prefix)})
        if methods:
            return web.Response(status=405, headers={"Allow": ", ".join(methods)})
        return _refusal(not_found())

    # -- the application ---------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        prefix = self.context.settings.management.path_prefix.strip("/")
        return f"/{prefix}/api" if prefix else "/api"

    def make_app(self, trusted: bool = False) -> web.Application:
        """The routes, each with and without a slash at its end."""
        limit = self.context.settings.management.body_bytes_max
        app = web.Application(client_max_size=limit)
        app[TRUSTED] = trusted
        for route in self._routes:
            handler = self._wrap(route)
            for path in (route.path, f"{route.path}/"):
                app.router.add_route(route.method, self._prefix + path, handler)
                if route.method == "GET":
                    app.router.add_route("HEAD", self._prefix + path, handler)
        if not trusted:
            self._web_ui.add_routes(app, self._prefix.removesuffix("/api"))
        app.router.add_route("OPTIONS", "/{rest:.*}", self._preflight)
        app.router.add_route("*", "/{rest:.*}", self._unknown)
        app.on_response_prepare.append(self._add_headers)
        return app

    async def _preflight(self, request: web.Request) -> web.StreamResponse:
        response = web.Response(status=200)
        origin = request.headers.get("Origin", "")
        if self._allows(origin):
            settings = self.context.settings.management
            methods = "HEAD, GET, PUT, POST, DELETE, OPTIONS"
            response.headers["Access-Control-Allow-Methods"] = methods
            response.headers["Access-Control-Max-Age"] = str(settings.cors_max_age_s)
            asked = request.headers.get("Access-Control-Request-Headers")
            if asked:
                response.headers["Access-Control-Allow-Headers"] = asked
        return response

    def _allows(self, origin: str) -> bool:
        allowed = self.context.settings.management.cors_allow_origins
        return bool(origin) and ("*" in allowed or origin in allowed)

    def _is_from_another_site(self, request: web.Request) -> bool:
        """Whether a page of somebody else's made a browser send this.

        Browsers remember names and passwords and add them to what any page sends here.
        """
        origin = request.headers.get("Origin", "")
        if self._allows(origin):
            return False
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None:
            return site not in {"same-origin", "none"}
        # Old browsers; others than browsers send no origin.
        return bool(origin) and origin.partition("://")[2] != request.headers.get("Host", "")

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        settings = self.context.settings.management
        headers = response.headers
        headers["Server"] = "Warren"
        headers.setdefault("Content-Security-Policy", settings.csp_policy or CSP)
        headers.setdefault("Vary", "origin")
        if settings.hsts_policy:
            headers["Strict-Transport-Security"] = settings.hsts_policy
        origin = request.headers.get("Origin", "")
        if self._allows(origin):
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Allow-Credentials"] = "true"

    # -- its life ----------------------------------------------------------------------------------

    async def serve(
        self, app: web.Application, listening: socket.socket, tls: ssl.SSLContext | None = None
    ) -> None:
        """Answer whoever connects to a socket with an application of this node."""
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=GOODBYE_S)
        await runner.setup()
        self._runners.append(runner)
        await web.SockSite(runner, listening, ssl_context=tls).start()

    async def listen_unix(self, path: Path, listening: socket.socket | None = None) -> None:
        """Serve the socket that needs no password; only this user may connect. Raises OSError."""
        listening = listening if listening is not None else listen_at(path)
        self._socket_path = path
        runner = web.AppRunner(self.make_app(trusted=True), access_log=None)
        await runner.setup()
        self._runners.append(runner)
        await _ControlSite(runner, listening).start()

    async def stop(self) -> None:
        """Close all listeners."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)


class _ControlSite(web.BaseSite):
    """Serves a unix socket that listens already; aiohttp's own makes one."""

    def __init__(self, runner: web.AppRunner, listening: socket.socket) -> None:
        super().__init__(runner)
        self._listening = listening

    @property
    def name(self) -> str:
        return str(self._listening.getsockname())

    async def start(self) -> None:
        await super().start()
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._runner.server, sock=self._listening)


def find_route(
    routes: Iterable[Route], method: str, path: str
) -> tuple[Route, dict[str, str]] | None:
    """The route of a quoted path, and what stands in its places."""
    given = path.split("/")
    for route in routes:
        wanted = route.path.split("/")
        pairs = list(zip(wanted, given, strict=False))
        if (
            route.method == method
            and len(given) == len(wanted)
            and all(step.startswith("{") or step == part for step, part in pairs)
        ):
            return route, {
                step[1:-1]: unquote(part, errors="surrogateescape")
                for step, part in pairs
                if step.startswith("{")
            }
    return None


def _fits(route: Route, request: web.Request, prefix: str) -> bool:
    """Whether a path is that of a route, whatever the method."""
    given = request.rel_url.raw_path.removeprefix(prefix).rstrip("/").split("/")
    wanted = route.path.split("/")
    return len(given) == len(wanted) and all(
        step.startswith("{") or step == part for step, part in zip(wanted, given, strict=True)
    )
