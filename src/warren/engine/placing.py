"""Where queues live: choosing a home for a new one, and asking the home of one elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.engine.errands import Asked, answer_to
from warren.model.errors import Postponed

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.model.errand import Errand
    from warren.model.policy import EffectiveArguments
    from warren.model.queue_arguments import QueueDeclaration


def choose_home(
    engine: Engine, _vhost: VHost, declaration: QueueDeclaration, effective: EffectiveArguments
) -> str:
    """The node a new queue is to live on, by its `queue-master-locator`."""
    here = engine.settings.node_name
    if engine.cluster is None or declaration.exclusive:
        return here
    nodes = engine.cluster.nodes_in_service() or engine.cluster.living_nodes() or [here]
    listed = effective.ha_params if isinstance(effective.ha_params, tuple) else ()
    if found := [name for name in listed if name in nodes]:
        # Elsewhere its master would have to move there at once.
        nodes, here = found, here if here in found else found[0]
    locator = effective.queue_master_locator or engine.settings.queue_master_locator
    if locator == "random":
        return nodes[engine.cluster.pick(len(nodes))]
    if locator == "min-masters" or here not in nodes:
        return min(nodes, key=lambda node: (engine.queues_at[node], node != here, node))
    return here


def make_remote(engine: Engine, *arguments: Any) -> AmqpQueue:
    """What stands for a queue whose home is another node."""
    assert engine.cluster is not None
    return engine.cluster.make_remote(*arguments)


def ask(
    engine: Engine,
    queue: AmqpQueue,
    verb: str,
    errand: Errand | None,
    arguments: tuple[Any, ...] = (),
) -> Any:
    """What the queue's home answers to a verb; raises Postponed until it has."""
    return ask_node(engine, queue.home, verb, errand, (queue.vhost.name, queue.name, *arguments))


def ask_node(
    engine: Engine, node: str, verb: str, errand: Errand | None, arguments: tuple[Any, ...]
) -> Any:
    """What another node answers to a verb; raises Postponed until it has."""
    answer = answer_to(errand, verb)
    if answer is not None:
        return answer
    assert engine.cluster is not None
    request = engine.cluster.request(node, verb, arguments)
    request.memo = Asked(verb)
    raise Postponed(errand=request)
