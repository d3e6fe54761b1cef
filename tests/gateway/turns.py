"""What both worlds of nodes in memory do at the end of a node's turn."""

from __future__ import annotations

from collections.abc import Sequence

from pair import Client

from warren.engine.engine import Engine


def end_turn(engine: Engine, clients: Sequence[Client]) -> None:
    """Whoever waited goes on, and effects are carried out."""
    while engine.resuming:
        actions = list(engine.resuming)
        engine.resuming.clear()
        for action in actions:
            action()
        for client in clients:
            client.send(b"")
    if engine.effects.pending:
        engine.run_effects()
    engine.turn.end()
