"""The definitions file of RabbitMQ, as a type: what an export holds and how it is spelled."""

from __future__ import annotations

from typing import Any

import msgspec


class UserRow(msgspec.Struct):
    """A user; `tags` is a list since 3.9 and was a comma-separated text before."""

    name: str
    password_hash: str | None = None
    password: str | None = None
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: list[str] | str = []
    limits: dict[str, int] | list[Any] = {}


class VHostRow(msgspec.Struct):
    """A virtual host; newer exports hold its description and tags twice."""

    name: str
    description: str | None = None
    tags: list[str] | str | None = None
    metadata: dict[str, Any] = {}
    limits: dict[str, int] | list[Any] = {}


class PermissionRow(msgspec.Struct):
    """What a user may do in a virtual host."""

    user: str
    configure: str
    write: str
    read: str
    vhost: str | None = None


class TopicPermissionRow(msgspec.Struct):
    """Which routing keys of a topic exchange a user may use."""

    user: str
    exchange: str
    write: str
    read: str
    vhost: str | None = None


class ParameterRow(msgspec.Struct):
    """Virtual host limits and operator policies are kept as parameters."""

    component: str
    name: str
    value: Any
    vhost: str | None = None


class GlobalParameterRow(msgspec.Struct):
    """A setting of the whole cluster."""

    name: str
    value: Any


class PolicyRow(msgspec.Struct, rename={"apply_to": "apply-to"}):
    """A user policy."""

    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"
    vhost: str | None = None


class OperatorPolicyValue(msgspec.Struct, rename={"apply_to": "apply-to"}):
    """The value of an `operator_policy` parameter."""

    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "queues"


class QueueRow(msgspec.Struct):
    """A queue; `type` says again what `x-queue-type` says."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}
    type: str | None = None
    vhost: str | None = None


class ExchangeRow(msgspec.Struct):
    """An exchange."""

    name: str
    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}
    vhost: str | None = None


class BindingRow(msgspec.Struct):
    """A binding."""

    source: str
    destination: str
    destination_type: str = "queue"
    routing_key: str = ""
    arguments: dict[str, Any] = {}
    vhost: str | None = None


class Definitions(msgspec.Struct):
    """A whole file; what Warren has no use for is left aside."""

    users: list[UserRow] = []
    vhosts: list[VHostRow] = []
    permissions: list[PermissionRow] = []
    topic_permissions: list[TopicPermissionRow] = []
    parameters: list[ParameterRow] = []
    global_parameters: list[GlobalParameterRow] = []
    policies: list[PolicyRow] = []
    queues: list[QueueRow] = []
    exchanges: list[ExchangeRow] = []
    bindings: list[BindingRow] = []
