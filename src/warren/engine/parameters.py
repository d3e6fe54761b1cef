"""Runtime parameters: values that parts beside the engine give a meaning, kept as definitions are.

Some are of a virtual host and a component, the global ones of the whole cluster. Values are JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warren.engine.engine import Engine

#: The global parameter that clients are told at login.
CLUSTER_NAME = "cluster_name"


def set_parameter(engine: Engine, vhost: str, component: str, name: str, value: Any) -> None:
    """Set or replace a parameter. Raises NotFound when there is no such virtual host."""
    engine.vhost(vhost)
    engine.metadata.parameter_set(vhost, component, name, value)
    engine.parameters[vhost, component, name] = value
    engine.emit("parameter.set", vhost=vhost, component=component, name=name)


def clear_parameter(engine: Engine, vhost: str, component: str, name: str) -> bool:
    """Remove a parameter; False when there is none."""
    if (vhost, component, name) not in engine.parameters:
        return False
    engine.metadata.parameter_cleared(vhost, component, name)
    del engine.parameters[vhost, component, name]
    engine.emit("parameter.cleared", vhost=vhost, component=component, name=name)
    return True


def set_global_parameter(engine: Engine, name: str, value: Any) -> None:
    """Set or replace a parameter of the whole cluster."""
    engine.metadata.global_parameter_set(name, value)
    engine.global_parameters[name] = value


def clear_global_parameter(engine: Engine, name: str) -> bool:
    """Remove a parameter of the whole cluster; False when there is none."""
    if name not in engine.global_parameters:
        return False
    engine.metadata.global_parameter_cleared(name)
    del engine.global_parameters[name]
    return True


def cluster_name(engine: Engine) -> str:
    """What an operator has named the cluster, else what the configuration says."""
    name = engine.global_parameters.get(CLUSTER_NAME)
    return name if isinstance(name, str) else engine.settings.cluster_name
