"""The cluster's metadata: same commands, same state, on all nodes and by every way."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster.metadata import Metadata, View
from warren.cluster.metadata_commands import (
    VERSION,
    Answer,
    Command,
    CreateView,
    Delete,
    DropView,
    Expand,
    Forget,
    Handover,
    Kind,
    NodeDown,
    NodeUp,
    Place,
    Put,
    Register,
    Result,
    Shrink,
    UncleanPromote,
    UnknownVersionError,
    decode_command,
    decode_result,
    encode_command,
)

nodes = st.sampled_from(["a", "b", "c", "d"])
queues = st.sampled_from(["q1", "q2"])
keys = st.sampled_from(["x", "y", "é"])
kinds = st.sampled_from(list(Kind))
versions = st.one_of(st.none(), st.integers(0, 30))
epochs = st.integers(0, 12)
incarnations = st.integers(1, 5)
replicas = st.lists(nodes, min_size=1, max_size=4).map(tuple)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Put, kinds, keys, st.binary(max_size=4), versions),
    st.builds(Delete, kinds, keys, versions),
    st.builds(Register, nodes, incarnations, st.booleans()),
    st.builds(NodeDown, nodes, incarnations),
    st.builds(NodeUp, nodes, incarnations),
    st.builds(Forget, nodes),
    st.builds(CreateView, queues, replicas, st.booleans(), st.none() | incarnations),
    st.builds(DropView, queues, epochs),
    st.builds(Shrink, queues, epochs, nodes),
    st.builds(Expand, queues, epochs, nodes),
    st.builds(Handover, queues, epochs, nodes),
    st.builds(UncleanPromote, queues, epochs, nodes),
    st.builds(Place, queues, epochs, replicas),
)


def apply(metadata: Metadata, index: int, command: Command) -> Result:
    return decode_result(metadata.apply(index, encode_command(command)))


def with_epoch(metadata: Metadata, command: Command) -> Command:
    """The command as somebody who knows the present epoch would give it."""
    view = metadata.view(getattr(command, "queue", ""))
    if view is None or not hasattr(command, "epoch"):
        return command
    return msgspec.structs.replace(command, epoch=view.epoch)


@given(st.lists(st.tuples(commands, st.booleans()), max_size=60), st.integers(0, 60))
def test_all_nodes_agree(script: list[tuple[Command, bool]], restart_at: int) -> None:
    """One node applies everything, another begins from an image in the middle."""
    first, second = Metadata(), Metadata()
    for index, (command, informed) in enumerate(script, 1):
        chosen = with_epoch(first, command) if informed else command
        data = encode_command(chosen)
        assert decode_command(data) == chosen
        before = {queue: view.epoch for queue, view in first.views().items()}
        held = dict(first.views())
        assert first.apply(index, data) == second.apply(index, data)
        changed = {
            queue: first.view(queue)
            for queue in ("q1", "q2")
            if first.view(queue) != held.get(queue)
        }
        assert first.take_changed_views() == changed
        if index == restart_at:
            restarted = Metadata()
            restarted.restore(second.image())
            second = restarted
        assert first.digest() == second.digest()
        for queue, view in first.views().items():
            assert view.epoch >= before.get(queue, 0)
            check_view(first, view)


def check_view(metadata: Metadata, view: View) -> None:
    alive = {name for name, node in metadata.nodes().items() if node.is_alive}
    assert len(set(view.in_sync)) == len(view.in_sync)
    assert not set(view.in_sync) & set(view.learners)
    assert set(view.learners) <= alive & set(view.wanted)
    if view.master is None:
        assert not alive & set(view.in_sync)
    else:
        assert view.master in view.in_sync
        assert set(view.in_sync) <= alive


@given(st.binary(max_size=60))
def test_any_bytes_have_an_answer(data: bytes) -> None:
    metadata = Metadata()
    before = metadata.digest()
    candidate = b"\x01" + data
    if decode_command(candidate) is None:
        assert decode_result(metadata.apply(1, candidate)).answer is Answer.MALFORMED
        assert metadata.digest() == before


def test_a_command_of_a_later_version_stops_the_node() -> None:
    with pytest.raises(UnknownVersionError):
        Metadata().apply(1, bytes((VERSION + 1,)) + b"whatever")


def test_records_change_by_version() -> None:
    metadata = Metadata()
    assert apply(metadata, 1, Put(Kind.USER, "guest", b"1", 0)) == Result(Answer.DONE, 1)
    assert apply(metadata, 2, Put(Kind.USER, "guest", b"2", 0)) == Result(Answer.CONFLICT, 1)
    assert apply(metadata, 3, Put(Kind.USER, "guest", b"2", 1)) == Result(Answer.DONE, 3)
    assert apply(metadata, 4, Delete(Kind.USER, "guest", 1)) == Result(Answer.CONFLICT, 3)
    assert apply(metadata, 5, Delete(Kind.VHOST, "guest", None)) == Result(Answer.NOT_FOUND)
    assert apply(metadata, 6, Delete(Kind.USER, "guest", 3)) == Result(Answer.DONE)
    assert metadata.record(Kind.USER, "guest") is None


def three_nodes() -> Metadata:
    metadata = Metadata()
    for index, name in enumerate("abc", 1):
        apply(metadata, index, Register(name, 1, False))
    assert apply(metadata, 4, CreateView("q", ("a", "b", "c"))).answer is Answer.DONE
    return metadata


def test_the_oldest_mirror_in_sync_takes_over() -> None:
    metadata = three_nodes()
    assert metadata.view("q") == View(1, "a", ("a", "b", "c"), (), ("a", "b", "c"))
    apply(metadata, 5, NodeDown("a", 1))
    assert metadata.view("q") == View(2, "b", ("b", "c"), (), ("a", "b", "c"))
    apply(metadata, 6, Register("a", 2, False))
    assert metadata.view("q") == View(3, "b", ("b", "c"), ("a",), ("a", "b", "c"))
    assert apply(metadata, 7, Expand("q", 2, "a")) == Result(Answer.CONFLICT, 3)
    apply(metadata, 8, Expand("q", 3, "a"))
    assert metadata.view("q") == View(4, "b", ("b", "c", "a"), (), ("a", "b", "c"))


def test_the_last_ones_in_sync_are_waited_for() -> None:
    metadata = three_nodes()
    for index, name in enumerate("abc", 5):
        apply(metadata, index, NodeDown(name, 1))
    view = metadata.view("q")
    assert view is not None
    assert (view.master, view.in_sync) == (None, ("c",))
    apply(metadata, 8, Register("a", 2, False))
    view = metadata.view("q")
    assert view is not None
    assert (view.master, view.in_sync, view.learners) == (None, ("c",), ("a",))
    assert apply(metadata, 9, Forget("c")).answer is Answer.REFUSED
    apply(metadata, 10, Register("c", 2, False))
    view = metadata.view("q")
    assert view is not None
    assert (view.master, view.in_sync, view.learners) == ("c", ("c",), ("a",))


def test_a_node_with_empty_disks_is_in_sync_with_nothing() -> None:
    metadata = three_nodes()
    apply(metadata, 5, Register("a", 2, True))
    assert metadata.view("q") == View(2, "b", ("b", "c"), ("a",), ("a", "b", "c"))
    assert apply(metadata, 6, NodeDown("a", 1)) == Result(Answer.CONFLICT, 2)


def test_a_node_whose_log_was_cut_is_in_sync_where_nobody_else_is() -> None:
    """Nobody knows whether the disk spoiled what was confirmed: the others know better."""
    metadata = three_nodes()
    apply(metadata, 5, Register("a", 2, False, behind=True))
    view = metadata.view("q")
    assert view is not None
    assert (view.in_sync, view.learners) == (("b", "c"), ("a",))
    for index, name in enumerate("bc"):
        apply(metadata, 6 + index, Register(name, 2, False, behind=True))
    view = metadata.view("q")
    assert view is not None
    # What it has is a beginning of what there was: no line of its own.
    assert (view.master, view.in_sync, view.unclean) == ("c", ("c",), 0)


def test_a_damaged_copy_that_is_the_only_one_begins_a_line_of_its_own() -> None:
    """A learner shares its log and may have what it lost: nobody goes on from an epoch before."""
    metadata = three_nodes()
    for index, name in enumerate("bc"):
        apply(metadata, 5 + index, NodeDown(name, 1))
    apply(metadata, 7, Register("b", 2, False))
    view = metadata.view("q")
    assert view is not None
    assert (view.master, view.in_sync, view.learners, view.unclean) == ("a", ("a",), ("b",), 0)
    apply(metadata, 8, Register("a", 2, True))
    view = metadata.view("q")
    assert view is not None
    assert (view.master, view.in_sync, view.learners) == ("a", ("a",), ("b",))
    assert view.unclean == view.epoch
    # And it stays the same line as long as nothing more is lost.
    apply(metadata, 9, Register("a", 3, False))
    after = metadata.view("q")
    assert after is not None
    assert (after.epoch, after.unclean) == (view.epoch + 1, view.epoch)


def test_mirrors_of_a_queue_that_may_hold_something_start_as_learners() -> None:
    metadata = three_nodes()
    apply(metadata, 5, Register("b", 2, False))
    abc = ("b", "a", "c")
    for index, (queue, empty, incarnation, in_sync) in enumerate(
        (
            ("known", True, 2, abc),
            ("any", True, None, abc),
            ("restarted", True, 1, ("b",)),
            ("used", False, 2, ("b",)),
        ),
        6,
    ):
        apply(metadata, index, CreateView(queue, abc, empty, incarnation))
        view = metadata.view(queue)
        assert view is not None
        assert (view.master, view.in_sync, view.wanted) == ("b", in_sync, abc)
        assert set(view.learners) == set(abc) - set(in_sync)


def test_an_image_tells_of_every_view_it_has_and_of_those_it_has_not() -> None:
    ahead, behind = three_nodes(), three_nodes()
    apply(ahead, 5, CreateView("later", ("b",)))
    apply(behind, 5, CreateView("gone", ("c",)))
    behind.take_changed_views()
    behind.restore(ahead.image())
    changed = behind.take_changed_views()
    assert changed == {"q": ahead.view("q"), "later": ahead.view("later"), "gone": None}
    assert behind.take_changed_views() == {}


def test_a_queue_on_one_node_alone_does_not_keep_it_from_being_forgotten() -> None:
    metadata = three_nodes()
    apply(metadata, 5, CreateView("alone", ("c",)))
    for index, name in enumerate("abc", 6):
        apply(metadata, index, NodeDown(name, 1))
    # Of q, which all were to have, c has the only good copy.
    assert apply(metadata, 9, Forget("c")).answer is Answer.REFUSED
    view = metadata.view("q")
    assert view is not None
    apply(metadata, 10, DropView("q", view.epoch))
    assert apply(metadata, 11, Forget("c")).answer is Answer.DONE
    view = metadata.view("alone")
    assert view is not None
    assert (view.master, view.in_sync, view.wanted) == (None, (), ())
