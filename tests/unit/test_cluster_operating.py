"""The small parts behind the operators of a cluster: bad input, and what is kept between starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from warren.cluster.member_liveness import Liveness
from warren.cluster.metadata import Node
from warren.cluster.metadata_commands import NodeDown
from warren.config import load_settings
from warren.management.peers import PeerAnswer, PeerSilent, Question
from warren.node import next_start
from warren.node.agreement_files import AgreementFiles
from warren.node.errors import StartError
from warren.node.link_addresses import LinkAddresses, parse_address
from warren.node.next_start import NextStart
from warren.node.peer_facts import NodeFacts, PeerFacts
from warren.node.peer_questions import AHEAD, ANSWER, ASK, PIECE, WHOLE, PeerQuestions
from warren.node.start_again import without_option


def test_a_reset_forgets_all_but_the_incarnation(tmp_path: Path) -> None:
    files = AgreementFiles(tmp_path)
    assert [files.begin_life(), files.begin_life()] == [1, 2]
    files.keep_cluster_id("ours")
    for name in ("log", "salvage", "agreement/raft"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "file").write_text("x")
    plan = NextStart(True, ("a@b",), {"a@b": "b:1"})
    next_start.plan(tmp_path, plan)
    kept = msgspec.structs.replace(plan, wipe=False)
    assert next_start.carry_out(tmp_path) == kept
    assert not list((tmp_path / "log").iterdir())
    assert not (tmp_path / "salvage").exists()
    # A start that was cut short is done again, and wipes nothing more.
    (tmp_path / "log" / "new").write_text("x")
    assert next_start.carry_out(tmp_path) == kept
    assert (tmp_path / "log" / "new").exists()
    again = AgreementFiles(tmp_path)
    assert again.begin_life() == 3
    assert again.identity.cluster_id == ""
    next_start.done(tmp_path)
    assert next_start.carry_out(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"wipe":1}', '{"wipe":true,"x":1}', "\xff"])
def test_a_plan_that_cannot_be_read_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    (tmp_path / "agreement").mkdir()
    (tmp_path / "agreement" / "next").write_text(text, "latin-1")
    with pytest.raises(StartError, match="left as it is"):
        next_start.carry_out(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.1:25672", ("10.0.0.1", 25672)),
        ("[::1]:1", ("::1", 1)),
        ("host:0", None),
        ("host:65536", None),
        ("host:٣", None),
        (":1", None),
        ("host", None),
        ("", None),
    ],
)
def test_addresses(text: str, found: tuple[str, int] | None) -> None:
    assert parse_address(text) == found


def test_where_a_node_is_as_configured_as_told_or_by_its_name(tmp_path: Path) -> None:
    keys = {"cluster.listen": "25700", "cluster.nodes.a@x": "10.0.0.9:1"}
    settings = load_settings(None, {}, keys)
    addresses = LinkAddresses(settings, "me@here", tmp_path)
    addresses.told({"a@x": "h:2", "b@x": "h:3", "c@x": "nonsense", "me@here": "h:4"}, "b@x")
    assert addresses.of("a@x") == ("10.0.0.9", 1)
    assert addresses.of("b@x") == ("h", 3)
    assert addresses.of("c@x") == ("x", 25700)
    # Of others a node knows what it heard; of itself it knows best.
    addresses.told({"b@x": "other:9"}, "a@x")
    assert addresses.of("b@x") == ("h", 3)
    addresses.told({"b@x": "moved:9"}, "b@x")
    again = LinkAddresses(settings, "me@here", tmp_path)
    assert again.of("b@x") == ("moved", 9)
    assert again.known(25700)["me@here"] == "here:25700"


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x90", msgspec.msgpack.encode([True] * 9)])
def test_facts_and_questions_that_no_node_sends(payload: bytes) -> None:
    facts = PeerFacts(lambda: NodeFacts(True, "", "", (), (), {}), lambda *_: None)
    with pytest.raises(ValueError, match="cannot be read"):
        facts.told("a", payload)
    assert facts.of("a") is None
    questions = PeerQuestions(lambda *_: True, lambda: ([], []))
    for take in (questions.on_ask, questions.on_answer):
        with pytest.raises(ValueError, match="cannot be read"):
            take("a", payload)


def test_questions_are_answered_once_by_who_was_asked() -> None:
    async def run() -> None:
        sent: list[tuple[str, int, bytes]] = []

        def send(*frame: object) -> bool:
            sent.append(frame)  # type: ignore[arg-type]
            return True

        questions = PeerQuestions(send, lambda: (["a"], []))
        asking = asyncio.create_task(questions.ask("a", Question("GET", "/nodes"), 5))
        await asyncio.sleep(0)
        ((to, kind, payload),) = sent
        assert (to, kind) == ("a", ASK)
        number, _ = msgspec.msgpack.decode(payload)
        answer = msgspec.msgpack.encode((number, PeerAnswer(200, b"1")))
        questions.on_answer("b", answer)
        questions.on_answer("a", answer)
        questions.on_answer("a", answer)
        assert await asking == PeerAnswer(200, b"1")
        questions.on_answer("a", answer)
        with pytest.raises(PeerSilent, match="within"):
            await questions.ask("a", Question("GET", "/nodes"), 0.01)
        lost = asyncio.create_task(questions.ask("a", Question("GET", "/nodes"), 5))
        await asyncio.sleep(0)
        questions.gone("a")
        with pytest.raises(PeerSilent, match="cannot be reached"):
            await lost
        # Before the API is up nobody is kept waiting.
        sent.clear()
        questions.on_ask("a", payload)
        await asyncio.sleep(0.01)
        ((to, kind, payload),) = sent
        assert (to, kind, msgspec.msgpack.decode(payload)[1][0]) == ("a", ANSWER, 503)

    asyncio.run(run())


def test_a_long_answer_comes_in_pieces() -> None:
    """Two of them at once, and one that is asked for too late."""

    async def run() -> None:
        ends: dict[str, PeerQuestions] = {}
        sizes: list[int] = []

        def send_as(here: str, there: str) -> Callable[[str, int, bytes], bool]:
            def send(_to: str, kind: int, payload: bytes) -> bool:
                sizes.append(len(payload))
                take = ends[there].on_ask if kind == ASK else ends[there].on_answer
                asyncio.get_running_loop().call_soon(take, here, payload)
                return True

            return send

        ends["a"] = PeerQuestions(send_as("a", "b"), lambda: (["b"], []))
        ends["b"] = PeerQuestions(send_as("b", "a"), lambda: (["a"], []))
        bodies = {"/long": bytes(range(256)) * (100_000), "/other": b"x" * (9 << 20)}

        async def answer(question: Question) -> PeerAnswer:
            return PeerAnswer(200, bodies[question.path])

        ends["b"].answerer = answer
        asked = [ends["a"].ask("b", Question("GET", path), 5) for path in bodies]
        assert [one.body for one in await asyncio.gather(*asked)] == list(bodies.values())
        assert max(sizes) < 9 << 20
        assert not ends["b"]._kept
        ends["b"].on_ask("a", msgspec.msgpack.encode((77, Question(PIECE, "1/0"))))
        with pytest.raises(ValueError, match="not said well"):
            ends["b"].on_ask("a", msgspec.msgpack.encode((78, Question(PIECE, "x"))))

    asyncio.run(run())


def test_a_long_question_goes_ahead_in_pieces() -> None:
    """Two of them at once; what lacks a piece is not answered as if it were whole."""

    async def run() -> None:
        ends: dict[str, PeerQuestions] = {}
        sizes: list[int] = []

        def send_as(here: str, there: str) -> Callable[[str, int, bytes], bool]:
            def send(_to: str, kind: int, payload: bytes) -> bool:
                sizes.append(len(payload))
                take = ends[there].on_ask if kind == ASK else ends[there].on_answer
                asyncio.get_running_loop().call_soon(take, here, payload)
                return True

            return send

        ends["a"] = PeerQuestions(send_as("a", "b"), lambda: (["b"], []))
        ends["b"] = PeerQuestions(send_as("b", "a"), lambda: (["a"], []))

        async def answer(question: Question) -> PeerAnswer:
            return PeerAnswer(201, question.path.encode() + question.body)

        ends["b"].answerer = answer
        bodies = {"/long": bytes(range(256)) * 100_000, "/two": b"x" * (16 << 20), "/no": b"y"}
        asked = [ends["a"].ask("b", Question("POST", p, body=b), 5) for p, b in bodies.items()]
        told = await asyncio.gather(*asked)
        assert [one.body for one in told] == [p.encode() + b for p, b in bodies.items()]
        assert {one.status for one in told} == {201}
        assert max(sizes) < 9 << 20
        assert not ends["b"]._ahead

        async def say(method: str, path: str, body: bytes = b"") -> int:
            return (await ends["a"].ask("b", Question(method, path, body=body), 5)).status

        whole = msgspec.msgpack.encode(Question("POST", "/long"))
        assert await say(WHOLE, "99/5", whole) == 503
        assert await say(AHEAD, "99/5", b"12345") == 503
        assert await say(AHEAD, "99/0", b"12345") == 200
        assert await say(AHEAD, "99/4", b"12345") == 503
        assert await say(WHOLE, "99/10", whole) == 503
        with pytest.raises(ValueError, match="not said well"):
            ends["b"].on_ask("a", msgspec.msgpack.encode((78, Question(AHEAD, "x"))))
        for number in range(8):
            assert await say(AHEAD, f"{number}/0", b"z" * (8 << 20)) == 200
        assert await say(AHEAD, "8/0", b"z") == 503

    asyncio.run(run())


def test_one_that_says_it_has_stopped_is_down_until_its_next_life() -> None:
    liveness = Liveness("me", 1, 2000, 0)
    liveness.up("a", 5, 0)
    assert liveness.verdict("a", Node(5, True), 1) is None
    liveness.stopped("a", 5)
    assert liveness.verdict("a", Node(5, True), 1) == NodeDown("a", 5, stopped=True)
    liveness.heard("a", 2)
    assert liveness.verdict("a", Node(5, False), 3) is None
    assert liveness.verdict("a", Node(6, True), 3) is None


def test_a_command_line_without_an_option() -> None:
    words = ["serve", "--ready-fd", "5", "--config", "--ready-fd=7", "x"]
    assert without_option(words, "--ready-fd") == ["serve", "--config", "x"]
