"""Three agreements in one process, with real files: restarts, a killed leader, a failing disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from in_one_process import InOneProcess, Ledger, Place, over, propose_many

from warren.cluster.control_frames import APPLIED, CHANGE_BYTES_MAX
from warren.cluster.member_effects import ApplyDefinition, NodesChanged, Why
from warren.cluster.member_settings import MemberSettings
from warren.cluster.metadata import Node
from warren.cluster.raft.settings import Settings
from warren.cluster.raft_storage import FileRaftStorage
from warren.model.errand import Errand
from warren.node.agreement import ProposalError
from warren.node.agreement_files import AgreementFiles
from warren.node.errors import RefusedError, StartError

#: Snapshots come early, so that there are some.
SHORT_LOGS = MemberSettings(raft=Settings(snapshot_entries=50, entries_kept=10))


def in_a_world(
    story: Callable[[InOneProcess], Awaitable[None]],
    directory: Path | None,
    settings: MemberSettings | None = None,
    joiners: tuple[str, ...] = (),
) -> None:
    async def run() -> None:
        world = InOneProcess(directory, settings=settings, joiners=joiners)
        try:
            await story(world)
        finally:
            await world.stop()

    asyncio.run(run())


def same_everywhere(world: InOneProcess) -> bool:
    first = world.up()[0].ledger.changes
    return all(place.ledger.changes == first for place in world.up())


def test_a_change_is_on_all_nodes_when_its_errand_ends(tmp_path: Path) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        for number, place in enumerate(world.up()):
            index = await over(place.agreement.propose(b"change %d" % number))
            assert isinstance(index, int)
            assert all(b"change %d" % number in p.ledger.changes for p in world.up())
        status = world.leader.agreement.status()
        assert (status.role, status.voters, status.learners) == ("leader", ("a", "b", "c"), ())
        assert status.is_ready
        assert status.has_quorum
        assert status.nodes == {name: Node(1, True) for name in "abc"}
        assert status.proposals == 0
        ids = {place.agreement.cluster_id for place in world.up()}
        assert len(ids) == 1
        assert ids != {""}

    in_a_world(story, tmp_path)


def test_without_a_data_directory() -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        await propose_many(world.places["b"], 100, 10)
        assert same_everywhere(world)

    in_a_world(story, None)


def test_a_change_that_is_too_large_fails(tmp_path: Path) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        with pytest.raises(ProposalError, match="too large") as caught:
            await over(world.places["a"].agreement.propose(bytes(CHANGE_BYTES_MAX + 1)))
        assert caught.value.why is Why.TOO_LARGE
        for place in world.up():
            await over(place.agreement.propose(bytes(CHANGE_BYTES_MAX)))

    in_a_world(story, tmp_path)


@pytest.mark.parametrize("keeps", [True, False])
def test_restart_of_all_nodes(tmp_path: Path, keeps: bool) -> None:
    """With the definitions they had, or with none: they get them back."""

    async def story(world: InOneProcess) -> None:
        await world.start()
        await asyncio.gather(*(propose_many(place, 60, 10) for place in world.up()))
        before = list(world.places["a"].ledger.changes)
        assert len(before) == 180
        await world.stop()
        for place in world.places.values():
            place.start(keep_definitions=keeps)
        for place in world.up():
            await asyncio.wait_for(place.agreement.await_ready(), 60)
            assert place.agreement.incarnation == 2
            assert place.ledger.changes == before
            assert keeps or place.ledger.restored

    in_a_world(story, tmp_path, SHORT_LOGS)


def test_a_node_that_was_away_gets_an_image(tmp_path: Path) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        away = await missing_much(world)
        away.start()
        await asyncio.wait_for(away.agreement.await_ready(), 60)
        assert away.ledger.restored == 1
        assert same_everywhere(world)

    in_a_world(story, tmp_path, SHORT_LOGS)


async def missing_much(world: InOneProcess) -> Place:
    """A node that is away while more is changed than logs keep."""
    away = next(place for place in world.up() if place is not world.leader)
    away.kill()
    await away.agreement.stop()
    await propose_many(world.leader, 200, 20)
    return away


class InSteps(Ledger):
    """Takes an image over in many steps, and counts what it is asked for before it has it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_whole = True
        self.steps = 0

    def restore(self, index: int, image: bytes) -> Iterator[None]:  # type: ignore[override]
        self.is_whole = False
        for _ in range(150):
            time.sleep(0.005)
            self.steps += 1
            yield
        super().restore(index, image)
        self.is_whole = True

    def apply(self, entries: Sequence[ApplyDefinition]) -> None:
        assert self.is_whole
        super().apply(entries)

    def nodes_changed(self, change: NodesChanged) -> None:
        assert self.is_whole
        super().nodes_changed(change)

    def reached(self, index: int) -> None:
        assert self.is_whole


def test_an_image_in_steps_holds_nobody_up(
    tmp_path: Path, judge_time: Callable[[float, float], None]
) -> None:
    """Raft goes on meanwhile, and nobody is told that something is applied which is not."""

    async def story(world: InOneProcess) -> None:
        await world.start()
        away = await missing_much(world)
        slow = away.ledger = InSteps()
        away.start()
        longest_s, looked_s = 0.0, time.monotonic()
        while not away.agreement.status().is_ready:
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.monotonic() - looked_s)
            looked_s = time.monotonic()
            if not slow.is_whole and slow.steps > 50 and not meanwhile:
                meanwhile.append(world.leader.agreement.propose(b"meanwhile"))
        await over(meanwhile[0])
        assert slow.is_whole
        assert slow.steps == 150
        assert slow.restored == 1
        assert same_everywhere(world)
        judge_time(longest_s, 0.05)

    meanwhile: list[Errand] = []
    in_a_world(story, tmp_path, SHORT_LOGS)


def test_a_node_that_stops_has_the_whole_image(tmp_path: Path) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        away = await missing_much(world)
        slow = away.ledger = InSteps()
        away.start()
        await world.until(lambda: slow.steps > 10)
        await away.agreement.stop()
        assert slow.is_whole
        assert slow.steps == 150

    in_a_world(story, tmp_path, SHORT_LOGS)


def test_changes_are_given_up_without_a_majority(tmp_path: Path) -> None:
    """Those that were not sent to anybody are never made."""
    soon = replace(MemberSettings(), give_up_ms=1_000)

    async def story(world: InOneProcess) -> None:
        await world.start()
        follower = next(place for place in world.up() if place is not world.leader)
        for place in list(world.up()):
            if place is not follower:
                place.kill()
                await place.agreement.stop()
        with pytest.raises(ProposalError, match="no majority") as caught:
            await over(follower.agreement.propose(b"never"))
        assert caught.value.why is Why.NO_MAJORITY
        assert follower.agreement.status().proposals == 0
        for place in world.places.values():
            if not place.is_up:
                place.start()
        await over(follower.agreement.propose(b"again"))
        # The others may count as down still: then they hear of it a moment later.
        await world.until(lambda: all(p.ledger.changes == [b"again"] for p in world.up()))

    in_a_world(story, tmp_path, soon)


def test_the_next_change_after_the_death_of_the_leader(
    tmp_path: Path, judge_time: Callable[[float, float], None]
) -> None:
    """Under a second from the death to the next change that is done, with one under way."""

    async def story(world: InOneProcess) -> None:
        await world.start()
        for _ in range(2):
            leader = world.leader
            survivor = next(place for place in world.up() if place is not leader)
            begin = time.monotonic()
            errands = [survivor.agreement.propose(b"%d" % number) for number in range(20)]
            leader.kill()
            for errand in errands:
                await over(errand)
            await over(survivor.agreement.propose(b"after"))
            took = time.monotonic() - begin
            judge_time(took, 1.0)
            assert survivor.agreement.status().nodes[leader.name].is_alive is False
            await leader.agreement.stop()
            leader.start()
            await asyncio.wait_for(leader.agreement.await_ready(), 60)
            assert same_everywhere(world)

    in_a_world(story, tmp_path)


def test_a_stopping_leader_hands_over(
    tmp_path: Path, judge_time: Callable[[float, float], None]
) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        leader = world.leader
        begin = time.monotonic()
        await leader.stop()
        judge_time(time.monotonic() - begin, 1.0)
        await world.until(lambda: any(place.agreement.member.is_leader for place in world.up()))
        judge_time(time.monotonic() - begin, 1.5)
        await over(world.leader.agreement.propose(b"x"))

    in_a_world(story, tmp_path)


def test_a_node_joins(tmp_path: Path) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        await propose_many(world.places["a"], 100, 20)
        await world.start("d")
        new = world.places["d"]
        await world.until(lambda: "d" in world.leader.agreement.status().voters)
        await over(new.agreement.propose(b"from d"))
        assert same_everywhere(world)
        assert new.agreement.cluster_id == world.leader.agreement.cluster_id
        assert AgreementFiles(tmp_path / "d")._load().cluster_id == new.agreement.cluster_id

    in_a_world(story, tmp_path, SHORT_LOGS, joiners=("d",))


def test_a_member_without_its_disk_is_not_let_in_again(tmp_path: Path) -> None:
    """It could vote twice in one term."""

    async def story(world: InOneProcess) -> None:
        await world.start()
        lost = next(place for place in world.up() if place is not world.leader)
        lost.kill()
        await lost.agreement.stop()
        names, world.names = world.names, tuple(n for n in world.names if n != lost.name)
        world.directory = tmp_path / "new"
        world.directory.mkdir()
        lost.start(keep_definitions=False)
        error = await asyncio.wait_for(lost.failure.wait(), 60)
        assert isinstance(error, RefusedError)
        assert "forget it" in str(error)
        world.names = names

    in_a_world(story, tmp_path)


def test_a_failing_disk_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        victim = world.leader

        def fail(*_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(victim.agreement._storage, "save", fail)
        errand = victim.agreement.propose(b"lost")
        error = await asyncio.wait_for(victim.failure.wait(), 60)
        assert isinstance(error, OSError)
        assert not errand.is_done
        victim.kill()
        await over(world.up()[0].agreement.propose(b"kept"))

    in_a_world(story, tmp_path)


def test_definitions_that_fail_end_the_node(tmp_path: Path) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        victim = world.places["a"]

        def fail(_entries: object) -> None:
            raise KeyError("a mistake of ours")

        victim.ledger.apply = fail  # type: ignore[method-assign]
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        world.places["b"].agreement.propose(b"x")
        error = await asyncio.wait_for(victim.failure.wait(), 60)
        assert isinstance(error, KeyError)

    in_a_world(story, tmp_path)


def test_a_peer_that_talks_nonsense(tmp_path: Path) -> None:
    async def story(world: InOneProcess) -> None:
        await world.start()
        agreement = world.places["a"].agreement
        for kind, payload in [(APPLIED, b""), (APPLIED, b"\x01\xff"), (16, b"\x01\x90"), (31, b"")]:
            with pytest.raises(ValueError, match=r"a |no "):
                agreement.on_control("b", kind, payload)
        await over(agreement.propose(b"x"))

    in_a_world(story, tmp_path)


def test_identity_that_cannot_be_used(tmp_path: Path) -> None:
    files = AgreementFiles(tmp_path)
    assert files.begin_life() == 1
    files.keep_cluster_id("x")
    assert AgreementFiles(tmp_path).begin_life() == 2
    identity = tmp_path / "agreement" / "identity"
    assert b'"x"' in identity.read_bytes()
    identity.write_bytes(b"{")
    with pytest.raises(StartError, match="cannot be read"):
        AgreementFiles(tmp_path).begin_life()
    identity.unlink()
    FileRaftStorage(str(tmp_path / "agreement" / "raft"))
    (tmp_path / "agreement" / "raft" / "0000000000000001.log").touch()
    with pytest.raises(StartError, match="missing"):
        AgreementFiles(tmp_path).begin_life()


def test_a_node_that_is_not_on_its_own_list(tmp_path: Path) -> None:
    world = InOneProcess(tmp_path)
    place = world.places["a"]
    world.config = lambda name: replace(  # type: ignore[method-assign]
        InOneProcess.config(world, name), founders=("b", "c")
    )
    with pytest.raises(StartError, match="not among"):
        place.start()


def test_three_thousand_changes(tmp_path: Path) -> None:
    """A bound far below what it does, to see it break; `rate.py` measures."""

    async def story(world: InOneProcess) -> None:
        await world.start()
        cpu = time.process_time()
        await asyncio.gather(*(propose_many(place, 1_000, 100) for place in world.up()))
        cpu = (time.process_time() - cpu) / 3_000
        assert same_everywhere(world)
        assert len(set(world.places["a"].ledger.changes)) == 3_000
        assert cpu < 500e-6, f"{cpu * 1e6:.0f} us of CPU for a change"

    in_a_world(story, tmp_path)
