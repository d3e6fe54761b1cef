"""A real broker inside a test: `Broker()`, `Cluster()`, and pytest fixtures in `pytest_plugin`.

Importing this package loads nothing: pytest does so in every run, also in those that need no
broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.testing.broker import Broker, BrokerFault, QueueSnapshot
    from warren.testing.cluster import Cluster, ClusterFault, CtlFailed

__all__ = ["Broker", "BrokerFault", "Cluster", "ClusterFault", "CtlFailed", "QueueSnapshot"]

_OF_CLUSTERS = {"Cluster", "ClusterFault", "CtlFailed"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'warren.testing' has no attribute '{name}'")
    if name in _OF_CLUSTERS:
        from warren.testing import cluster

        return getattr(cluster, name)
    from warren.testing import broker

    return getattr(broker, name)
