"""The metadata under faults: all members end with the same state, made by real commands."""

from __future__ import annotations

from random import Random

from sim.clients import Client
from sim.cluster import Cluster
from sim.faults import Nemesis
from sim.run import recover, settings_for
from warren.cluster.metadata import Metadata
from warren.cluster.metadata_commands import (
    Command,
    CreateView,
    Expand,
    Handover,
    Kind,
    NodeDown,
    NodeUp,
    Put,
    Register,
    Shrink,
    encode_command,
)
from warren.cluster.sessions import Sessions, StateMachine

#: Three nodes and two queues, so that there is something to change.
BEGINNING: tuple[Command, ...] = (
    *(Register(node, 1, False) for node in "abc"),
    CreateView("q1", ("a", "b", "c")),
    CreateView("q2", ("c", "b")),
)


class MetadataSessions(Sessions):
    """Sessions in front of the metadata instead of the simulator's ledger."""

    def __init__(self, machine: StateMachine) -> None:
        super().__init__(Metadata())


class Operator(Client):
    """Proposes commands, some of which fit the present state."""

    def command(self, sequence: int) -> bytes:
        if sequence <= len(BEGINNING):
            return encode_command(BEGINNING[sequence - 1])
        return encode_command(command_for(Random(f"{self.name}/{sequence}")))


def command_for(dice: Random) -> Command:
    """The same command for the same request, however often it is tried."""
    node, queue = dice.choice("abc"), dice.choice(("q1", "q2"))
    epoch, incarnation = dice.randint(1, 9), dice.randint(1, 4)
    commands: list[Command] = [
        Put(dice.choice(list(Kind)), dice.choice("xyz"), dice.randbytes(3), None),
        Put(Kind.EXCHANGE, dice.choice("xyz"), dice.randbytes(3), dice.choice((0, None))),
        Register(node, incarnation, dice.random() < 0.2),
        NodeDown(node, incarnation),
        NodeUp(node, incarnation),
        CreateView(queue, tuple(dice.sample("abc", 3))),
        Shrink(queue, epoch, node),
        Expand(queue, epoch, node),
        Handover(queue, epoch, node),
    ]
    return dice.choice(commands)


def test_all_members_have_the_same_metadata() -> None:
    epochs = records = 0
    for seed in range(12):
        dice = Random(seed)
        cluster = Cluster(
            seed, 3, spares=1, settings=settings_for(dice), sessions_class=MetadataSessions
        )
        operators = [Operator(cluster, f"o{number}", 10_000, 4) for number in range(2)]
        nemesis = Nemesis(cluster, 150_000, members_change=True)
        cluster.start()
        for starter in (*operators, nemesis):
            starter.start()
        cluster.run_ms(5_000)
        nemesis.stop()
        cluster.heal()
        for operator in operators:
            operator.stop()
        recover(cluster)
        states = []
        for member in cluster.members():
            machine = member.machine.machine
            assert isinstance(machine, Metadata)
            states.append(machine)
        assert len({state.digest() for state in states}) == 1
        epochs += sum(view.epoch for view in states[0].views().values())
        records += sum(len(states[0].records(kind)) for kind in Kind)
    assert epochs > 50
    assert records > 50
