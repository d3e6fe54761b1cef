"""One request as its handler sees it, and what handlers give back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web

from warren.management.caller import Caller
from warren.management.context import Actor, Context
from warren.management.encode import read_object
from warren.management.errors import bad_request, not_found
from warren.management.peers import PeerRequest

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.vhost import VHost
    from warren.routing.exchange import Exchange

#: Who may call: anyone; any management user; who may enter the virtual host in the path; who may
#: see it; monitors; policymakers; administrators.
Access = Literal["open", "user", "vhost", "visible", "monitor", "policymaker", "administrator"]

#: Set on the application behind the unix socket: its file's mode decides who may connect.
TRUSTED = web.AppKey("trusted", bool)
#: The default exchange has no name, and a path needs one.
DEFAULT_EXCHANGE = "amq.default"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer other than 200 with a JSON body."""

    status: int
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


#: A value to be sent as JSON, a Reply, or a whole response of the HTTP library.
Answer = object
Handler = Callable[["Call"], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the table of routes."""

    method: str
    path: str
    access: Access
    handler: Handler


@dataclass(slots=True)
class Call:
    """A request that has been let in."""

    context: Context
    caller: Caller
    request: web.Request
    path: Mapping[str, str]

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    async def body(self) -> dict[str, Any]:
        """The JSON object in the body. Raises 400."""
        return read_object(await self.request.read())

    @property
    def is_trusted(self) -> bool:
        """Whether it came through the control socket, which only the node's own user can open."""
        return bool(self.request.app.get(TRUSTED, False))

    @property
    def is_from_peer(self) -> bool:
        """Whether another node asks, which wants to know of this node only."""
        return isinstance(self.request, PeerRequest)

    def flag(self, name: str, default: bool = False) -> bool:
        """A yes or no in the query."""
        value = self.query.get(name)
        return default if value is None else value.lower() in {"true", "1", ""}

    @property
    def vhost(self) -> VHost:
        """The virtual host that the path names. Raises 404."""
        return self.context.vhost(self.path["vhost"])

    @property
    def actor(self) -> Any:
        """The caller in that virtual host, for the verbs of the engine."""
        return Actor(self.caller.name, self.vhost)

    def queue(self, name: str = "name") -> AmqpQueue:
        """The queue that the path names. Raises 404."""
        found = self.vhost.queues.get(self.path[name])
        if found is None:
            raise not_found()
        return found

    def exchange(self, name: str = "name") -> Exchange:
        """The exchange that the path names. Raises 404."""
        found = self.vhost.exchanges.get(exchange_name(self.path[name]))
        if found is None:
            raise not_found()
        return found

    def visible_vhosts(self) -> list[VHost]:
        """All virtual hosts the caller may see, or the one in the path."""
        if "vhost" in self.path:
            return [self.vhost]
        vhosts = self.context.engine.vhosts
        return [vhosts[name] for name in sorted(vhosts) if self.caller.sees_vhost(name)]


def check_access(call: Call, route: Route) -> None:
    """Raises 401 unless the route is open to the caller, 404 for an unknown virtual host."""
    caller = call.caller
    caller.check_management()
    vhost = call.path.get("vhost")
    if route.access == "administrator":
        caller.check_administrator()
    elif route.access == "monitor":
        caller.check_monitor()
    elif route.access == "policymaker":
        caller.check_policymaker(vhost)
    elif route.access in {"vhost", "visible"} and vhost is not None:
        call.context.vhost(vhost)
        if route.access == "vhost":
            caller.check_vhost(vhost)
        else:
            caller.check_vhost_visible(vhost)


def exchange_name(in_path: str) -> str:
    """The name of an exchange as the broker knows it."""
    return "" if in_path == DEFAULT_EXCHANGE else in_path


def field_of(body: Mapping[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    """A field of a body, of one type; without a default it has to be there. Raises 400."""
    if name not in body or (body[name] is None and default is not ...):
        if default is ...:
            raise bad_request(f"{{key_missing,{name}}}")
        return default
    value = body[name]
    if kind is dict and value == []:
        # To RabbitMQ's clients an empty list is an empty object as well.
        return {}
    if kind is bool and isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if kind is int and isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise bad_request(f"{name} is of the wrong type")
    return value
