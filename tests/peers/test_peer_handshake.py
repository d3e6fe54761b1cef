"""The greeting by itself: who is let in, who is not, and that nothing odd gets through."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.net.peers.handshake import (
    CHALLENGE_BYTES,
    CONTENT,
    GREETING_BYTES_MAX,
    HELLO,
    MARK,
    PROOF,
    REFUSAL,
    VERSION,
    Frame,
    Greeting,
    GreetingError,
    Hello,
    Refusal,
    Role,
    decode_hello,
    decode_refusal,
    encode_hello,
    make_proof,
)

Judge = Callable[[Hello], Refusal | None]


def anybody(_hello: Hello) -> Refusal | None:
    return None


def hello(role: Role, name: str, cluster_id: str = "c", challenge: int = 0) -> Hello:
    return Hello(role, cluster_id, name, 7, bytes([challenge or role]) * CHALLENGE_BYTES)


def pair(
    ids: tuple[str, str] = ("c", "c"),
    secrets: tuple[bytes, bytes] = (b"s", b"s"),
    judges: tuple[Judge, Judge] = (anybody, anybody),
    names: tuple[str, str] = ("a", "b"),
) -> tuple[Greeting, Greeting]:
    dialler = Greeting(hello(Role.DIALLER, names[0], ids[0]), secrets[0], judges[0])
    acceptor = Greeting(hello(Role.ACCEPTOR, names[1], ids[1]), secrets[1], judges[1])
    return dialler, acceptor


def talk(dialler: Greeting, acceptor: Greeting) -> list[Frame]:
    """All that is said, until nobody says more."""
    said: list[Frame] = []
    frames, listener, other = dialler.start(), acceptor, dialler
    while frames:
        said += frames
        answers = [answer for frame in frames for answer in listener.take(*frame)]
        frames, listener, other = answers, other, listener
    return said


def test_two_nodes_of_a_cluster() -> None:
    dialler, acceptor = pair()
    assert [kind for kind, _ in talk(dialler, acceptor)] == [HELLO, HELLO, PROOF, PROOF, CONTENT]
    assert dialler.is_done
    assert acceptor.is_done
    assert acceptor.peer == hello(Role.DIALLER, "a")
    assert dialler.peer == hello(Role.ACCEPTOR, "b")


@pytest.mark.parametrize("ids", [("", "c"), ("c", ""), ("", "")])
def test_a_node_without_a_cluster_needs_only_the_secret(ids: tuple[str, str]) -> None:
    dialler, acceptor = pair(ids=ids)
    talk(dialler, acceptor)
    assert dialler.is_done
    assert acceptor.is_done


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ids": ("c", "d")}, Refusal.OTHER_CLUSTER),
        ({"secrets": (b"s", b"t")}, Refusal.WRONG_SECRET),
        ({"secrets": (b"s", b"t"), "ids": ("", "c")}, Refusal.WRONG_SECRET),
        ({"names": ("a", "a")}, Refusal.ONESELF),
        ({"judges": (anybody, lambda _: Refusal.NOT_A_MEMBER)}, Refusal.NOT_A_MEMBER),
        ({"judges": (anybody, lambda _: Refusal.OLDER_INCARNATION)}, Refusal.OLDER_INCARNATION),
    ],
)
def test_the_acceptor_refuses_and_both_know_why(options: dict[str, object], reason: int) -> None:
    dialler, acceptor = pair(**options)  # type: ignore[arg-type]
    talk(dialler, acceptor)
    assert acceptor.refusal is reason
    assert dialler.refused_by_peer is reason
    assert not dialler.is_done
    assert not acceptor.is_done


def test_the_dialler_refuses() -> None:
    dialler, acceptor = pair(judges=(lambda _: Refusal.OTHER_NAME, anybody))
    talk(dialler, acceptor)
    assert dialler.refusal is acceptor.refused_by_peer is Refusal.OTHER_NAME
    assert not dialler.is_done
    assert not acceptor.is_done


def test_nobody_is_judged_before_it_has_proved_the_secret() -> None:
    judged: list[Hello] = []
    dialler, acceptor = pair(secrets=(b"guess", b"s"), judges=(anybody, judged.append))
    talk(dialler, acceptor)
    assert judged == []


def test_an_unknown_version_is_named() -> None:
    _, acceptor = pair()
    later = encode_hello(hello(Role.DIALLER, "a"), VERSION + 1) + b"whatever comes with it"
    assert acceptor.take(HELLO, later) == [(REFUSAL, bytes((Refusal.UNKNOWN_VERSION,)))]
    assert acceptor.refusal is Refusal.UNKNOWN_VERSION
    assert decode_hello(MARK + b"\x09") == 9


def test_a_hello_may_have_more_fields_at_its_end() -> None:
    fields = [1, "c", "a", 7, b"x" * CHALLENGE_BYTES, "later"]
    data = MARK + bytes((VERSION,)) + msgspec.msgpack.encode(fields)
    assert isinstance(decode_hello(data), Hello)


def test_a_proof_that_is_reflected_proves_nothing() -> None:
    # A stranger without the secret sends the dialler its own proof back.
    dialler, _ = pair()
    dialler.start()
    ((kind, proof),) = dialler.take(HELLO, encode_hello(hello(Role.ACCEPTOR, "b")))
    assert kind == PROOF
    assert dialler.take(PROOF, proof) == [(REFUSAL, bytes((Refusal.WRONG_SECRET,)))]


def test_a_hello_that_is_reflected_is_none() -> None:
    dialler, _ = pair()
    ((_, own),) = dialler.start()
    with pytest.raises(GreetingError):
        dialler.take(HELLO, own)


def test_a_proof_of_an_earlier_greeting_proves_nothing() -> None:
    said = talk(*pair())
    fresh = Greeting(hello(Role.ACCEPTOR, "b", challenge=99), b"s", anybody)
    fresh.take(*said[0])
    with pytest.raises(GreetingError):
        fresh.take(*said[4])
    assert fresh.take(*said[2]) == [(REFUSAL, bytes((Refusal.WRONG_SECRET,)))]


def test_what_is_in_a_proof_cannot_be_shifted() -> None:
    assert make_proof(b"s", Role.DIALLER, b"ab", b"c") != make_proof(
        b"s", Role.DIALLER, b"a", b"bc"
    )
    assert make_proof(b"s", Role.DIALLER, b"a", b"b") != make_proof(b"s", Role.ACCEPTOR, b"a", b"b")


@pytest.mark.parametrize(
    "fields",
    [
        [3, "c", "a", 7, b"x" * 32],
        [1, "c", "", 7, b"x" * 32],
        [1, "c" * 65, "a", 7, b"x" * 32],
        [1, "c", "a" * 256, 7, b"x" * 32],
        [1, "c", "a", -1, b"x" * 32],
        [1, "c", "a", 2**63, b"x" * 32],
        [1, "c", "a", 7, b"x" * 31],
        [1, "c", "a", 7],
        [1, "c", "a\nb", 7, b"x" * 32],
        {"name": "a"},
    ],
)
def test_fields_out_of_bounds(fields: object) -> None:
    with pytest.raises(GreetingError):
        decode_hello(MARK + bytes((VERSION,)) + msgspec.msgpack.encode(fields))


def test_a_hello_that_is_too_long() -> None:
    with pytest.raises(GreetingError):
        decode_hello(encode_hello(hello(Role.DIALLER, "a")) + bytes(GREETING_BYTES_MAX))


def test_refusals_of_later_versions() -> None:
    assert decode_refusal(b"\x63") is Refusal.UNSPECIFIED
    assert all(reason.text for reason in Refusal)
    with pytest.raises(GreetingError):
        decode_refusal(b"")


def test_a_cluster_needs_a_secret() -> None:
    with pytest.raises(ValueError, match="secret"):
        pair(secrets=(b"", b"s"))


@pytest.mark.parametrize("frame", [(PROOF, b""), (CONTENT, b""), (0, b""), (4, b""), (HELLO, b"")])
def test_frames_out_of_order(frame: Frame) -> None:
    for side in pair():
        with pytest.raises(GreetingError):
            side.take(*frame)


def test_no_frame_after_the_end() -> None:
    dialler, acceptor = pair()
    said = talk(dialler, acceptor)
    with pytest.raises(GreetingError):
        acceptor.take(*said[2])


own_hellos = st.builds(
    Hello,
    st.sampled_from(Role),
    st.text(max_size=64),
    st.text(min_size=1, max_size=255).filter(str.isprintable),
    st.integers(0, 2**63 - 1),
    st.binary(min_size=CHALLENGE_BYTES, max_size=CHALLENGE_BYTES),
)


@given(own_hellos)
def test_hellos_survive(said: Hello) -> None:
    assert decode_hello(encode_hello(said)) == said


@given(
    st.sampled_from(Role),
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.one_of(
                st.binary(max_size=80),
                st.binary(max_size=80).map(lambda data: MARK + bytes((VERSION,)) + data),
                own_hellos.map(encode_hello),
            ),
        ),
        max_size=5,
    ),
)
def test_no_stranger_gets_in(role: Role, frames: list[Frame]) -> None:
    judged: list[Hello] = []
    greeting = Greeting(hello(role, "me"), b"s", judged.append)
    with contextlib.suppress(GreetingError):
        for frame in frames:
            greeting.take(*frame)
    assert not greeting.is_done
    assert not judged


@given(st.integers(0, 3), st.integers(0, 10_000), st.integers(1, 255))
def test_no_octet_can_be_changed(which: int, at: int, mask: int) -> None:
    dialler, acceptor = pair()
    frames, sides, number = dialler.start(), (acceptor, dialler), 0
    try:
        while frames:
            kind, payload = frames[0]
            if number == which:
                at %= len(payload)
                payload = payload[:at] + bytes((payload[at] ^ mask,)) + payload[at + 1 :]
            frames = sides[number % 2].take(kind, payload)
            number += 1
    except GreetingError:
        pass
    assert not dialler.is_done
    assert not acceptor.is_done
