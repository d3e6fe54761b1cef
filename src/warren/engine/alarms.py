"""Alarms: while memory or disk is short, publishers are not read and are told so.

A connection counts as a publisher from its first attempt to publish while an alarm is in force, not
before: one that only acknowledges goes on being read, since that is what frees memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.session.connection import Connection

#: `memory` or `disk`; of another node of the cluster with its name.
Resource = str


def set_alarm(engine: Engine, resource: Resource, raised: bool, measured: str = "") -> None:
    """The node has measured: raise or clear an alarm. Publishers meet it at their next publish.

    `measured` are the numbers, for the log.
    """
    if raised == (resource in engine.alarms):
        return
    shown = f" ({measured})" if measured else ""
    if raised:
        engine.alarms.add(resource)
        engine.log.warning("%s alarm%s: publishers are blocked until it clears", resource, shown)
        if resource == "memory":
            for vhost in engine.vhosts.values():
                vhost.routes.forget_all()
    else:
        engine.alarms.discard(resource)
        engine.log.info("%s alarm cleared%s", resource, shown)
        if not engine.alarms:
            for connection in list(engine.connections):
                _unblock(connection)
    engine.emit(f"alarm.{'set' if raised else 'cleared'}", resource=resource)


def block_publisher(engine: Engine, connection: Connection) -> None:
    """Told once until all alarms are over; what it has sent already is still taken."""
    if connection.blocked:
        return
    connection.blocked = True
    if connection.capabilities.get("connection.blocked"):
        connection.send(0, "connection.blocked", f"low on {' & '.join(sorted(engine.alarms))}")
    connection.outlet.link.set_blocked(True)


def _unblock(connection: Connection) -> None:
    if not connection.blocked:
        return
    connection.blocked = False
    if connection.capabilities.get("connection.blocked"):
        connection.send(0, "connection.unblocked")
    connection.outlet.link.set_blocked(False)
