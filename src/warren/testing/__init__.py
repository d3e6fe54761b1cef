"""A real broker inside a test: `Broker()`, and pytest fixtures in `pytest_plugin`.

Importing this package loads nothing: pytest does so in every run, also in those that need no
broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.testing.broker import Broker, BrokerFault, QueueSnapshot

__all__ = ["Broker", "BrokerFault", "QueueSnapshot"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'warren.testing' has no attribute '{name}'")
    from warren.testing import broker

    return getattr(broker, name)
