"""The broker under test and its operator: Warren in a thread, or any broker with RabbitMQ's API.

`WARREN_TEST_URL` (amqp://user:password@host:port) and `WARREN_TEST_MANAGEMENT` (http://host:port)
point the same tests at a broker that runs already, which is how Warren is compared with RabbitMQ.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import quote
from urllib.request import Request, urlopen

from warren.model.policy import Policy
from warren.node.node import Node
from warren.testing.broker import Broker

T = TypeVar("T")


class Operator(Protocol):
    """What tests ask of whoever runs the broker."""

    def add_vhost(self, name: str) -> None: ...
    def delete_vhost(self, name: str) -> None: ...
    def add_user(self, name: str, password: str, tags: list[str]) -> None: ...
    def delete_user(self, name: str) -> None: ...
    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> None: ...
    def permit_topic(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None: ...
    def limit_vhost(self, vhost: str, **limits: int) -> None: ...
    def limit_user(self, user: str, **limits: int) -> None: ...
    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: dict[str, Any],
        priority: int = 0,
        apply_to: str = "all",
        operator: bool = False,
    ) -> None: ...
    def clear_policy(self, vhost: str, name: str, operator: bool = False) -> None: ...
    def trace(self, vhost: str, on: bool) -> None: ...


class LiveNode:
    """A Warren node in a thread with a loop of its own."""

    host = Broker.host

    def __init__(self, config: Mapping[str, object]) -> None:
        self.broker = Broker(config=config).start()
        self.node: Node = self.broker.call(lambda node: node)
        self.operator: Operator = NodeOperator(self)

    @property
    def port(self) -> int:
        return self.broker.port

    @property
    def tls_port(self) -> int:
        """The port of the first TLS listener."""
        return next(listener.port for listener in self.node.listeners if listener.is_tls)

    def call(self, action: Callable[[], T]) -> T:
        """Run something in the node's loop; its result."""
        return self.broker.call(lambda _node: action())

    def stop(self) -> None:
        self.broker.stop()


class NodeOperator:
    """Acts on the node's engine and directory directly."""

    def __init__(self, live: LiveNode) -> None:
        self._call = live.call
        self._engine = live.node.engine
        self._directory = live.node.directory

    def add_vhost(self, name: str) -> None:
        self._call(lambda: self._engine.add_vhost(name))
        self.permit("guest", name, ".*", ".*", ".*")

    def delete_vhost(self, name: str) -> None:
        self._call(lambda: self._engine.delete_vhost(name))

    def add_user(self, name: str, password: str, tags: list[str]) -> None:
        self._call(lambda: self._directory.add_user(name, password, tags))

    def delete_user(self, name: str) -> None:
        self._call(lambda: self._directory.delete_user(name))

    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        self._call(lambda: self._directory.set_permissions(user, vhost, configure, write, read))
        self._call(self._engine.permissions_changed)

    def permit_topic(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        self._call(
            lambda: self._directory.set_topic_permissions(user, vhost, exchange, write, read)
        )
        self._call(self._engine.permissions_changed)

    def limit_vhost(self, vhost: str, **limits: int) -> None:
        named = {key.replace("_", "-"): value for key, value in limits.items()}
        self._call(lambda: self._directory.set_vhost_limits(vhost, named))

    def limit_user(self, user: str, **limits: int) -> None:
        named = {key.replace("_", "-"): value for key, value in limits.items()}
        self._call(lambda: self._directory.set_user_limits(user, named))

    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: dict[str, Any],
        priority: int = 0,
        apply_to: str = "all",
        operator: bool = False,
    ) -> None:
        policy = Policy(vhost, name, pattern, definition, priority, apply_to)
        self._call(lambda: self._engine.set_policy(policy, operator))

    def clear_policy(self, vhost: str, name: str, operator: bool = False) -> None:
        assert self._call(lambda: self._engine.clear_policy(vhost, name, operator))

    def trace(self, vhost: str, on: bool) -> None:
        self._call(lambda: self._engine.set_tracing(vhost, on))


class ManagementOperator:
    """Acts through RabbitMQ's HTTP API."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url.rstrip("/")
        self._user = user
        self._authorization = "Basic " + b64encode(f"{user}:{password}".encode()).decode()

    def _do(self, method: str, *path: str, body: Any = None) -> None:
        address = "/".join(quote(part, safe="") for part in path)
        request = Request(
            f"{self._url}/api/{address}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": self._authorization, "Content-Type": "application/json"},
        )
        with urlopen(request, timeout=10):
            pass

    def add_vhost(self, name: str) -> None:
        self._do("PUT", "vhosts", name, body={})
        self.permit(self._user, name, ".*", ".*", ".*")

    def delete_vhost(self, name: str) -> None:
        self._do("DELETE", "vhosts", name)

    def add_user(self, name: str, password: str, tags: list[str]) -> None:
        self._do("PUT", "users", name, body={"password": password, "tags": ",".join(tags)})

    def delete_user(self, name: str) -> None:
        self._do("DELETE", "users", name)

    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        body = {"configure": configure, "write": write, "read": read}
        self._do("PUT", "permissions", vhost, user, body=body)

    def permit_topic(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        body = {"exchange": exchange, "write": write, "read": read}
        self._do("PUT", "topic-permissions", vhost, user, body=body)

    def limit_vhost(self, vhost: str, **limits: int) -> None:
        for key, value in limits.items():
            name = key.replace("_", "-")
            self._do("PUT", "vhost-limits", vhost, name, body={"value": value})

    def limit_user(self, user: str, **limits: int) -> None:
        for key, value in limits.items():
            name = key.replace("_", "-")
            self._do("PUT", "user-limits", user, name, body={"value": value})

    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: dict[str, Any],
        priority: int = 0,
        apply_to: str = "all",
        operator: bool = False,
    ) -> None:
        kind = "operator-policies" if operator else "policies"
        body = {
            "pattern": pattern,
            "definition": definition,
            "priority": priority,
            "apply-to": apply_to,
        }
        self._do("PUT", kind, vhost, name, body=body)

    def clear_policy(self, vhost: str, name: str, operator: bool = False) -> None:
        self._do("DELETE", "operator-policies" if operator else "policies", vhost, name)

    def trace(self, vhost: str, on: bool) -> None:
        self._do("PUT", "vhosts", vhost, body={"tracing": on})
