"""Several agreements in one process, with links that are no sockets, and files that are files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from warren.cluster.member_effects import ApplyDefinition, NodesChanged, ViewsChanged
from warren.cluster.member_settings import MemberSettings
from warren.model.errand import Errand
from warren.node.agreement import Agreement, AgreementConfig
from warren.node.failure import Failure

NAMES = ("a", "b", "c")


class Ledger:
    """Definitions that remember every change in order."""

    def __init__(self) -> None:
        self.changes: list[bytes] = []
        self.index = 0
        self.events: list[NodesChanged] = []
        self.ready: list[bool] = []
        self.restored = 0
        self.views: list[ViewsChanged] = []
        self.leads = False

    def apply(self, entries: Sequence[ApplyDefinition]) -> None:
        for entry in entries:
            assert entry.index > self.index
            self.index = entry.index
            self.changes.append(entry.change)

    def restore(self, index: int, image: bytes) -> None:
        assert index > self.index
        self.index = index
        self.changes = image.split(b"\n")[:-1]
        self.restored += 1

    def image(self) -> bytes:
        return b"".join([change + b"\n" for change in self.changes])

    def happened(self, event: str, **details: object) -> None:
        """Nobody here asks for it."""

    def nodes_changed(self, change: NodesChanged) -> None:
        self.events.append(change)

    def reached(self, index: int) -> None:
        """Nobody here waits for entries."""

    def views_changed(self, change: ViewsChanged) -> None:
        self.views.append(change)

    def leads_changed(self, leads: bool) -> None:
        self.leads = leads

    def cluster_known(self, cluster_id: str) -> None:
        pass

    def ready_changed(self, ready: bool) -> None:
        self.ready.append(ready)


class Place:
    """One node: its agreement and its end of the links."""

    def __init__(self, world: InOneProcess, name: str) -> None:
        self.world = world
        self.name = name
        self.ledger = Ledger()
        self.failure = Failure()
        self.agreement: Agreement
        self.is_up = False
        self.cut: set[str] = set()

    def start(self, keep_definitions: bool = True) -> None:
        if not keep_definitions:
            self.ledger = Ledger()
        self.failure = Failure()
        self.agreement = Agreement(self.world.config(self.name), self.ledger, self.ledger.index)
        self.agreement.start(self, lambda action: action(), self.failure)
        self.is_up = True
        for other in self.world.up():
            if other is not self:
                other.agreement.on_up(self.name, self.agreement.incarnation)
                self.agreement.on_up(other.name, other.agreement.incarnation)

    def kill(self) -> None:
        """As the process would end: links break, and then nobody listens."""
        self.is_up = False
        self.agreement.abandon()
        for other in self.world.up():
            other.agreement.on_down(self.name)
            other.agreement.on_refused(self.name)

    async def stop(self) -> None:
        await self.agreement.stop()
        if self.is_up:
            self.kill()

    def send(self, peer: str, kind: int, payload: bytes) -> bool:
        other = self.world.places[peer]
        if not other.is_up or peer in self.cut:
            return False
        asyncio.get_running_loop().call_soon(self._arrive, other, other.agreement, kind, payload)
        return True

    def _arrive(self, other: Place, agreement: Agreement, kind: int, payload: bytes) -> None:
        if other.is_up and self.is_up:
            agreement.on_control(self.name, kind, payload)


class InOneProcess:
    """A cluster."""

    def __init__(
        self,
        directory: Path | None,
        names: tuple[str, ...] = NAMES,
        settings: MemberSettings | None = None,
        joiners: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.names = names
        self.settings = settings or MemberSettings()
        self.places = {name: Place(self, name) for name in (*names, *joiners)}

    def config(self, name: str) -> AgreementConfig:
        data_dir = None
        if self.directory is not None:
            data_dir = self.directory / name
            data_dir.mkdir(exist_ok=True)
        founds = name in self.names
        return AgreementConfig(
            name,
            founders=self.names if founds else (),
            seeds=() if founds else self.names,
            data_dir=data_dir,
            settings=self.settings,
        )

    def up(self) -> list[Place]:
        return [place for place in self.places.values() if place.is_up]

    async def start(self, *names: str) -> None:
        for name in names or self.names:
            self.places[name].start()
        for name in names or self.names:
            await asyncio.wait_for(self.places[name].agreement.await_ready(), 60)

    async def stop(self) -> None:
        for place in self.places.values():
            if hasattr(place, "agreement"):
                if place.is_up:
                    place.kill()
                await place.agreement.stop()

    @property
    def leader(self) -> Place:
        return next(place for place in self.up() if place.agreement.member.is_leader)

    async def until(self, holds: Callable[[], bool], limit_s: float = 30.0) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < deadline, "it does not come about"
            await asyncio.sleep(0.002)


async def over(errand: Errand) -> object:
    """The errand's value, when it is over."""
    done = asyncio.get_running_loop().create_future()
    errand.when_done(lambda: done.set_result(None))
    await asyncio.wait_for(done, 60)
    return errand.result()


async def propose_many(place: Place, count: int, outstanding: int, size: int = 100) -> None:
    """So many changes, so many of them on their way at any time."""
    finished = asyncio.get_running_loop().create_future()
    sent = ended = 0

    def next_one() -> None:
        nonlocal sent
        sent += 1
        text = f"{place.name}/{sent} ".encode().ljust(size, b"x")
        place.agreement.propose(text).when_done(one_ended)

    def one_ended() -> None:
        nonlocal ended
        ended += 1
        if sent < count:
            next_one()
        elif ended == count:
            finished.set_result(None)

    for _ in range(min(outstanding, count)):
        next_one()
    await finished
