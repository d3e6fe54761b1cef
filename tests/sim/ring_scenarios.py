"""Schedules made by hand, each for a rule that dice rarely hit. With the rule, nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable

from sim.ring_bench import Bench
from sim.ring_cluster import Rules
from sim.world import Violation
from warren.replication import effects

Scenario = Callable[[Rules], None]


def publish(number: int) -> tuple[str, str, int, bool]:
    return ("p", "client", number, True)


def check_written(bench: Bench, master: str, in_sync: str) -> None:
    """What the master has committed is on all disks, and the same."""
    log = bench[master].log
    index = bench[master].replica.commit_index
    for name in in_sync:
        disk = bench[name].disk
        if disk.last < index or disk.lineage.epoch_at(index) != log.lineage.epoch_at(index):
            raise Violation(f"{index} is committed but {name} has not written it")


def check_equal(bench: Bench, one: str, other: str) -> None:
    pictures = [bench[name].log.state.picture() for name in (one, other)]
    if pictures[0] != pictures[1]:
        raise Violation(f"{one} and {other} differ: {pictures}")


def sync_from_before_a_truncation(rules: Rules) -> None:
    """A mirror's slow sync of operations that are cut meanwhile, and replaced by others."""
    bench = Bench("abc", rules)
    bench.view(1, "abc")
    bench.settle()
    bench.held = {("b", "c")}
    bench["a"].do(publish(1), publish(2), publish(3))
    bench.take("a", "b")
    bench["b"].begin_sync()
    bench.wire("b", "c").clear()
    bench.held = set()
    bench.view(2, "cb")
    bench["c"].sync()
    # The epoch is on b's disk with an earlier write than the one that is under way.
    bench["b"].replica.epoch_persisted(2)
    bench["b"].pump()
    for _ in range(2):
        while bench.wire("b", "c"):
            bench.take("b", "c")
        while bench.wire("c", "b"):
            bench.take("c", "b")
        bench["c"].do(publish(10), publish(11))
        bench["c"].sync()
    bench["b"].end_sync()
    while bench.wire("b", "c"):
        bench.take("b", "c")
    check_written(bench, "c", "cb")
    bench.settle(without="a")
    check_written(bench, "c", "cb")
    if bench["c"].replica.commit_index != bench["c"].log.last_index:
        raise Violation("nothing is committed any more")


def upstream_of_another_epoch(rules: Rules) -> None:
    """A mirror greets one that was the master before and does not know that it is not any more."""
    bench = Bench("abc", rules)
    bench.view(1, "abc")
    bench.settle()
    bench["a"].do(publish(1), publish(2), publish(3))
    bench["a"].sync()
    bench.wire("a", "b").clear()
    # The next master is c, before a and b; a has not heard of it.
    bench.view(2, "cab", to="cb")
    bench["c"].sync()
    bench["b"].sync()
    bench["c"].do(publish(10), publish(11))
    bench["c"].sync()
    for _ in range(3):
        for source, target in (("b", "a"), ("a", "b"), ("b", "c")):
            while bench.wire(source, target):
                bench.take(source, target)
        bench["b"].sync()
    check_written(bench, "c", "cb")
    bench.view(2, "cab", to="a")
    bench.settle()
    bench.wait(200)
    bench.settle()
    check_written(bench, "c", "cab")
    if bench["c"].replica.commit_index != bench["c"].log.last_index:
        raise Violation("nothing is committed any more")


def copied(rules: Rules, **settings: int) -> Bench:
    """A master and a mirror with four messages, and a learner that needs a copy of them."""
    bench = Bench("abl", rules, **settings)
    bench.view(1, "ab")
    bench.settle()
    bench["a"].do(*(publish(number) for number in range(1, 5)))
    bench.settle()
    bench["a"].log._record("compact", bench["a"].log.applied_index)
    bench.settle()
    bench.view(2, "ab", "l")
    bench.settle()
    return bench


def expand_if_asked(bench: Bench, master: str, epoch: int, in_sync: str, learner: str) -> bool:
    if not bench[master].told(effects.ProposeExpand):
        return False
    bench[master].said.clear()
    bench.view(epoch, in_sync + learner)
    bench.settle()
    return True


def acknowledged_in_vain(rules: Rules) -> None:
    """An acknowledgement that only the learner and the dying master know of, during a copy."""
    bench = copied(rules)
    bench.held = {("a", "b")}
    bench["a"].do(("a", 3))
    bench.settle()
    bench["a"].read_chunk()
    bench.settle()
    bench["a"].start()
    bench.held = {("a", "b"), ("a", "l"), ("b", "a"), ("l", "a")}
    bench.view(3, "b", "l")
    bench.settle()
    while bench["b"].told(effects.ReadChunk):
        bench["b"].read_chunk()
        bench["b"].said = [one for one in bench["b"].said if not isinstance(one, effects.ReadChunk)]
        bench.settle()
    if not expand_if_asked(bench, "b", 4, "b", "l"):
        raise Violation("the learner is not let in")
    bench.wait(10)
    bench.settle()
    check_equal(bench, "b", "l")


def read_for_an_earlier_copy(rules: Rules) -> None:
    """A piece that was read for one copy is ready when the next one has begun."""
    bench = copied(rules, chunk_bytes=200, learner_window_bytes=1)
    first = bench["a"].told(effects.ReadChunk)[-1]
    stale = bench["a"].log.read_chunk(first.after, first.upto, first.bytes_max)
    # The learner does not hear of more messages, until what it needs is not kept any more.
    bench.held = {("a", "l"), ("l", "a")}
    for number in range(10, 30):
        bench["a"].do(publish(number))
        bench.settle()
    bench["a"].log._record("compact", bench["a"].log.applied_index)
    bench.wire("a", "l").clear()
    bench.wire("l", "a").clear()
    bench.held = set()
    bench["l"].replica.peer_up("a")
    bench["l"].pump()
    bench.settle()
    bench["a"].replica.chunk_read("l", first.session, *stale)
    bench["a"].pump()
    bench.settle()
    for _ in range(10):
        asked = bench["a"].told(effects.ReadChunk)
        bench["a"].said = [one for one in bench["a"].said if not isinstance(one, effects.ReadChunk)]
        if asked and asked[-1].session != first.session:
            cursor, data, is_last = bench["a"].log.read_chunk(
                asked[-1].after, asked[-1].upto, asked[-1].bytes_max
            )
            bench["a"].replica.chunk_read("l", asked[-1].session, cursor, data, is_last)
            bench["a"].pump()
        bench.settle()
    if not expand_if_asked(bench, "a", 3, "ab", "l"):
        raise Violation("the learner is not let in")
    bench.wait(10)
    bench.settle()
    check_equal(bench, "a", "l")


def late_answer_to_a_greeting(rules: Rules) -> None:
    """The answer to a greeting comes after a later one, when the log has grown."""
    bench = Bench("ab", rules)
    bench.view(1, "ab")
    bench["a"].sync()
    bench["b"].sync()
    bench.take("b", "a")
    late = bench.wire("a", "b").popleft()
    bench.wire("a", "b").clear()
    bench["b"].replica.peer_up("a")
    bench["b"].pump()
    bench.settle()
    bench["a"].do(publish(1), publish(2))
    bench.settle()
    bench["b"].replica.peer_up("a")
    bench["b"].pump()
    bench.give("a", "b", late)
    bench["b"].sync()
    check_written(bench, "a", "ab")
    bench.settle()
    check_written(bench, "a", "ab")


def promoted_in_an_epoch_that_did_not_last(rules: Rules) -> None:
    """Deposed, master again, and the next epoch begins before it serves."""
    bench = Bench("ab", rules)
    bench.view(1, "ab")
    bench.settle()
    bench.view(2, "ba")
    bench["b"].sync()
    bench["a"].sync()
    bench["a"].said.clear()
    bench.view(3, "ab", to="a")
    bench["a"].begin_sync()
    bench["a"].end_sync()
    bench.view(4, "a", to="a")
    bench.settle(without="b")
    became = bench["a"].told(effects.BecameMaster)
    if [one.promoted for one in became] != [True]:
        raise Violation(f"another has served, and the queue is not told: {became}")
