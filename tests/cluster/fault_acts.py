"""What happens to the nodes of a run under faults, by dice: one thing at a time, then mended."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from bad_disks import BadDisks, cut_log, flip_bit
from rings import RingsGoOn

from warren.testing import Cluster

#: How long a node whose disk fails may take to end.
END_S = 30.0
#: How long a node is suspended, or cut off, at least and at most.
LASTING_S = (0.5, 5.0)
#: How much longer a run may take for what must happen in it.
MUST_S = 60.0
HOUR_MS = 3_600_000
#: By name, how often each is drawn. What needs more than plain queues on bare nodes is added below.
ALWAYS = {
    "kill": 3,
    "kill_two": 1,
    "pause": 1,
    "single": 1,
    "blocked": 1,
    "halves": 1,
    "random_halves": 1,
    "bridge": 1,
    "majority_ring": 1,
    "one_way": 1,
    "resets": 1,
    "slow_links": 1,
    "loss": 1,
}
#: With bad disks and clocks beneath the nodes.
ON_BAD_DISKS = {"disk_full": 1, "disk_alarm": 1, "sync_fails": 1, "slow_syncs": 1, "clock_jump": 1}
#: Where queues have mirrors: nobody could promise anything with one copy of a message.
MIRRORED = {"kill_all": 1, "restart": 1, "rolling_restart": 1}
DAMAGE = {"bit_flip": 1, "log_cut": 1}


class Chaos:
    """See the module's text. `must` are acts that come first; all others are drawn."""

    def __init__(
        self,
        cluster: Cluster,
        dice: random.Random,
        say: Callable[[str], None],
        *,
        mirrored: bool = False,
        disks: BadDisks | None = None,
        must: Sequence[str] = (),
        only: Iterable[str] = (),
        lasting_s: tuple[float, float] = LASTING_S,
    ) -> None:
        self._cluster = cluster
        self._lasting_s = lasting_s
        self._dice = dice
        self._say = say
        self._disks = disks
        self._all_must = frozenset(must)
        self._must = list(must)
        drawn = dict(ALWAYS)
        if disks is not None:
            drawn |= ON_BAD_DISKS
        if mirrored:
            drawn |= MIRRORED | DAMAGE
        chosen = set(only) or set(drawn)
        unknown = (chosen | {name.partition(":")[0] for name in must}) - {*drawn, "cut"}
        if unknown:
            raise ValueError(f"unknown here: {', '.join(sorted(unknown))}; there are {[*drawn]}")
        self._names = [
            name for name, times in drawn.items() if name in chosen for _ in range(times)
        ]
        #: How often each was done.
        self.done: dict[str, int] = {}
        #: What a node did that it must not have done.
        self.faults: list[str] = []

    def run(self, seconds: float) -> None:
        """One thing after the other, healed in between."""
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s + MUST_S:
            if now_s >= until_s and not self._must:
                return
            name = self._must.pop(0) if self._must else self._dice.choice(self._names)
            act, *numbers = name.split(":")
            if getattr(self, f"_{act}")(*(int(number) for number in numbers)) is False:
                # It would have been more than may happen. What must happen is tried again.
                self._must += [name] if name in self._all_must else []
            else:
                self.done[act] = self.done.get(act, 0) + 1
            self._rest(0.2, 3.0)

    def _node(self) -> int:
        return self._dice.choice(self._cluster.numbers)

    def _rest(self, least_s: float, most_s: float) -> None:
        time.sleep(self._dice.uniform(least_s, most_s))

    # -- processes ---------------------------------------------------------------------------------

    def _kill(self) -> None:
        node = self._node()
        self._say(f"kill {node}")
        self._cluster.kill(node)
        self._rest(0.0, 2.5)
        self._start(node)

    def _start(self, node: int) -> None:
        self._cluster.start(node)
        self._say(f"{node} is back")

    def _kill_two(self) -> None:
        nodes = self._dice.sample(self._cluster.numbers, 2)
        self._say(f"kill {nodes}")
        for node in nodes:
            self._cluster.kill(node)
            self._rest(0.0, 0.5)
        self._rest(0.0, 2.0)
        self._cluster.start_all()
        self._say(f"{nodes} are back")

    def _kill_all(self) -> None:
        self._say("kill all")
        for node in self._dice.sample(self._cluster.numbers, len(self._cluster.numbers)):
            self._cluster.kill(node)
        self._cluster.start_all()
        self._say("all are back")

    def _restart(self) -> None:
        node = self._node()
        self._say(f"stop {node}")
        self._cluster.stop(node)
        self._start(node)

    def _rolling_restart(self) -> None:
        nodes = self._dice.sample(self._cluster.numbers, len(self._cluster.numbers))
        self._say(f"stop and start {nodes}, one after the other")
        for node in nodes:
            self._cluster.stop(node)
            self._cluster.start(node)
        self._say("all were restarted")

    def _pause(self) -> None:
        node, seconds = self._node(), self._dice.uniform(*self._lasting_s)
        self._say(f"pause {node} for {seconds:.1f} s")
        self._cluster.pause(node)
        time.sleep(seconds)
        self._cluster.resume(node)

    # -- the network -------------------------------------------------------------------------------

    def _blocked(self) -> None:
        """The node itself is told to hear nobody: its links end, instead of falling silent."""
        node, seconds = self._node(), self._dice.uniform(*self._lasting_s)
        self._say(f"block all links of {node} for {seconds:.1f} s")
        self._cluster.isolate(node)
        time.sleep(seconds)
        self._cluster.heal()

    def _cut_for_a_while(self, what: str, pairs: Iterable[tuple[int, int]]) -> None:
        seconds = self._dice.uniform(*self._lasting_s)
        self._say(f"{what}, for {seconds:.1f} s")
        for a, b in pairs:
            self._cluster.links.cut(a, b)
        time.sleep(seconds)
        self._cluster.links.heal()

    def _cut(self, a: int, b: int) -> None:
        self._cut_for_a_while(f"cut {a} and {b}", [(a, b)])

    def _single(self) -> None:
        node = self._node()
        others = [other for other in self._cluster.numbers if other != node]
        self._cut_for_a_while(f"cut {node} off", [(node, other) for other in others])

    def _halves(self) -> None:
        numbers = self._cluster.numbers
        self._cut_sides(numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])

    def _random_halves(self) -> None:
        numbers = self._dice.sample(self._cluster.numbers, len(self._cluster.numbers))
        self._cut_sides(numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])

    def _cut_sides(self, one: Sequence[int], other: Sequence[int]) -> None:
        pairs = [(a, b) for a in one for b in other]
        self._cut_for_a_while(f"cut {sorted(one)} from {sorted(other)}", pairs)

    def _bridge(self) -> None:
        """One node sees both sides, which do not see each other."""
        bridge, *others = self._dice.sample(self._cluster.numbers, len(self._cluster.numbers))
        one, other = others[: len(others) // 2], others[len(others) // 2 :]
        pairs = [(a, b) for a in one for b in other]
        self._cut_for_a_while(f"only {bridge} joins {sorted(one)} and {sorted(other)}", pairs)

    def _majority_ring(self) -> None:
        """Every node sees a majority, and no two see the same one; of three, a pair is cut."""
        nodes = self._dice.sample(self._cluster.numbers, len(self._cluster.numbers))
        count, reach = len(nodes), len(nodes) // 2 // 2
        pairs = [
            (nodes[i], nodes[j])
            for i, j in combinations(range(count), 2)
            if min(j - i, count - (j - i)) > reach
        ]
        if count <= 3:
            pairs = pairs[:1]
        self._cut_for_a_while(f"a ring of majorities: cut {pairs}", pairs)

    def _one_way(self) -> None:
        """What a node says is not heard, or it hears nothing."""
        node, seconds = self._node(), self._dice.uniform(*self._lasting_s)
        is_mute = self._dice.random() < 0.5
        self._say(f"{node} is {'not heard' if is_mute else 'deaf'} for {seconds:.1f} s")
        for other in self._cluster.numbers:
            if other != node:
                self._cluster.links.cut_one_way(*((node, other) if is_mute else (other, node)))
        time.sleep(seconds)
        self._cluster.links.heal()

    def _resets(self) -> None:
        a, b = self._dice.sample(self._cluster.numbers, 2)
        times = self._dice.randrange(1, 6)
        self._say(f"reset the links of {a} and {b}, {times} times")
        for _ in range(times):
            self._cluster.links.reset(a, b)
            self._rest(0.05, 0.5)

    def _slow_links(self) -> None:
        node, seconds = self._node(), self._dice.uniform(1.0, 5.0)
        delay_s = self._dice.uniform(0.01, 0.3)
        self._say(f"what {node} says and hears takes {delay_s:.2f} s more, for {seconds:.1f} s")
        for other in self._cluster.numbers:
            if other != node:
                self._cluster.links.delay(node, other, delay_s)
                self._cluster.links.delay(other, node, delay_s)
        time.sleep(seconds)
        self._cluster.links.heal()

    def _loss(self) -> None:
        seconds, share = self._dice.uniform(1.0, 5.0), self._dice.uniform(0.01, 0.2)
        self._say(f"{share:.0%} of what nodes say is lost, for {seconds:.1f} s")
        for a, b in combinations(self._cluster.numbers, 2):
            self._cluster.links.lose(a, b, share)
            self._cluster.links.lose(b, a, share)
        time.sleep(seconds)
        self._cluster.links.heal()

    # -- disks and clocks --------------------------------------------------------------------------

    @property
    def _bad(self) -> BadDisks:
        assert self._disks is not None
        return self._disks

    def _disk_full(self) -> None:
        node, left = self._node(), self._dice.choice([0, self._dice.randrange(1, 3000)])
        self._say(f"the disk of {node} has {left} bytes left")
        self._bad.fill(node, left)
        self._await_end(node)

    def _sync_fails(self) -> None:
        node = self._node()
        self._say(f"syncs of {node} fail")
        self._bad.fail_syncs(node)
        self._await_end(node)

    def _await_end(self, node: int) -> None:
        """A node that cannot write must go; then its disk is mended and it comes back."""
        until_s = time.monotonic() + END_S
        while node in self._cluster.running and time.monotonic() < until_s:
            time.sleep(0.05)
        if node in self._cluster.running:
            self.faults.append(f"{node} goes on although it cannot write")
            self._cluster.kill(node)
        self._rest(0.0, 1.0)
        self._bad.mend(node)
        self._start(node)

    def _disk_alarm(self) -> None:
        """The disk is said to be full before it is: publishers wait, or it is over too soon."""
        node, seconds = self._node(), self._dice.uniform(1.0, 5.0)
        self._say(f"the disk of {node} is said to be full, for {seconds:.1f} s")
        self._bad.report_full(node)
        time.sleep(seconds)
        self._bad.mend(node)

    def _slow_syncs(self) -> None:
        node, seconds = self._node(), self._dice.uniform(1.0, 5.0)
        delay_ms = self._dice.choice([20, 100, 500, 1500])
        self._say(f"syncs of {node} take {delay_ms} ms more, for {seconds:.1f} s")
        self._bad.slow_syncs(node, delay_ms)
        time.sleep(seconds)
        self._bad.mend(node)

    def _clock_jump(self) -> None:
        """Back and forth: each way it is a jump."""
        node, seconds = self._node(), self._dice.uniform(0.5, 4.0)
        offset_ms = self._dice.choice([-24 * HOUR_MS, -60_000, -500, 700, 60_000, 24 * HOUR_MS])
        self._say(f"the clock of {node} is {offset_ms / 1000:g} s off, for {seconds:.1f} s")
        self._bad.move_clock(node, offset_ms)
        time.sleep(seconds)
        self._bad.mend(node)

    def _bit_flip(self) -> bool:
        return self._damage(flip_bit, "a bit was flipped at")

    def _log_cut(self) -> bool:
        return self._damage(cut_log, "the log was cut at")

    def _damage(self, damage: Callable[[Cluster, int, random.Random], str], what: str) -> bool:
        """Of a node that is down, when all it has is known to be elsewhere: on a minority.

        False: it had the only copy of something, and nothing was damaged.
        """
        node, go_on = self._node(), RingsGoOn(self._cluster)
        with contextlib.suppress(TimeoutError):
            go_on.wait_synchronised()
        self._say(f"kill {node}")
        self._cluster.kill(node)
        try:
            go_on.wait_without(node)
        except TimeoutError as error:
            is_done = False
            self._say(f"no damage to {node}: {error}")
        else:
            is_done = True
            self._say(f"{what} {damage(self._cluster, node, self._dice)} of {node}")
        self._start(node)
        return is_done
