"""A queue with consumers: nothing is lost, doubled or out of turn, and nobody waits in vain."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from warren.engine.effects import Effects
from warren.model.message import Address
from warren.model.ports import LinkPort, TurnClock
from warren.queue.queue import Queue
from warren.session.channel import Channel, Consumer
from warren.session.outlet import Outlet
from warren.wire.content import make_message
from warren.wire.methods import decode_method
from warren.wire.properties import encode_properties

ADDRESS = Address(b"", b"key")


class ConsumerMachine(RuleBasedStateMachine):
    """Consumers come and go on channels of their own; bodies carry the messages' numbers."""

    @initialize(single_active=st.booleans())
    def start(self, single_active: bool) -> None:
        self.effects = Effects()
        self.queue = Queue("q", self.effects, -1, single_active)
        self.consumers: list[Consumer] = []
        self.published = 0
        #: Message number -> how often it was delivered.
        self.deliveries: dict[int, int] = {}
        #: Tags outstanding by channel, with their message.
        self.held: dict[Channel, dict[int, int]] = {}
        self.settled: set[int] = set()
        self.returned: set[int] = set()
        self.newest = 0

    # -- what the clients see ----------------------------------------------------------------------

    def read(self) -> None:
        """Take in all that was delivered."""
        fresh = []
        for consumer in self.consumers:
            data = consumer.channel.outlet.output.take()
            assert not (data and self.queue.paused), "a paused queue has delivered"
            at = 0
            frames = []
            while at < len(data):
                size = int.from_bytes(data[at + 3 : at + 7], "big")
                frames.append(data[at + 7 : at + 7 + size])
                at += size + 8
            for deliver, _, body in zip(*[iter(frames)] * 3, strict=True):
                _, (tag, delivery_tag, redelivered, _, _) = decode_method(deliver)
                assert tag == consumer.tag
                number = int(body)
                assert redelivered == (number in self.returned)
                assert number not in self.settled
                self.deliveries[number] = self.deliveries.get(number, 0) + 1
                if number not in self.returned:
                    fresh.append(number)
                if consumer.no_ack:
                    self.settled.add(number)
                else:
                    assert all(number not in held.values() for held in self.held.values())
                    self.held[consumer.channel][delivery_tag] = number
        assert all(self.deliveries[n] == 1 for n in fresh)
        # What was never returned goes out in the order it came in.
        for number in sorted(fresh):
            assert number > self.newest
            self.newest = number

    # -- operations --------------------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.published += 1
            body = str(self.published).encode()
            header = encode_properties({}, len(body))
            assert self.queue.offer(make_message(ADDRESS, header, body), 1000)
        self.read()

    @precondition(lambda self: len(self.consumers) < 5)
    @rule(no_ack=st.booleans(), prefetch=st.integers(0, 3), priority=st.integers(-1, 1))
    def consume(self, no_ack: bool, prefetch: int, priority: int) -> None:
        channel = Channel(None, None, Outlet(LinkPort(), TurnClock()), 1, 1000)
        tag = f"c{len(self.held)}"
        consumer = Consumer(channel, tag, self.queue, no_ack, False, priority, {}, prefetch)
        channel.consumers[tag] = consumer
        self.consumers.append(consumer)
        self.held[channel] = {}
        self.queue.add_consumer(consumer)
        self.queue.run(1000)
        self.read()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), requeue=st.booleans())
    def leave(self, data: st.DataObject, requeue: bool) -> None:
        """A consumer is cancelled; its channel ends at once or keeps what it has."""
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        consumer.cancel()
        del consumer.channel.consumers[consumer.tag]
        self.queue.remove_consumer(consumer)
        if requeue:
            self.returned.update(self.held[consumer.channel].values())
            self.held[consumer.channel].clear()
            consumer.channel.requeue_all()
        self.queue.run(1000)
        self.read()

    @precondition(lambda self: any(self.held.values()))
    @rule(
        data=st.data(),
        multiple=st.booleans(),
        how=st.sampled_from(["ack", "ack", "reject", "requeue"]),
    )
    def settle(self, data: st.DataObject, multiple: bool, how: str) -> None:
        channel = data.draw(st.sampled_from([c for c, held in self.held.items() if held]))
        held = self.held[channel]
        tag = data.draw(st.sampled_from(sorted(held)))
        for one in [t for t in held if t == tag or (multiple and t < tag)]:
            (self.returned if how == "requeue" else self.settled).add(held.pop(one))
        channel.settle_tag(tag, multiple, how)
        self.read()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        """An operator pauses the consumers, or lets them go on."""
        self.queue.set_paused(paused)
        self.queue.run(1000)
        self.read()

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost(self) -> None:
        self.queue.check()
        held = sum(len(tags) for tags in self.held.values())
        assert self.queue.unacked == held
        assert self.queue.ready + held + len(self.settled) == self.published

    @invariant()
    def limits_hold(self) -> None:
        for consumer in self.consumers:
            assert consumer.inflight == len(self.held[consumer.channel])
            assert consumer.no_ack or not 0 < consumer.prefetch < consumer.inflight

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        if not self.queue.ready or self.queue.paused:
            return
        turn = [self.queue.active] if self.queue.single_active else self.consumers
        for consumer in turn:
            if isinstance(consumer, Consumer):
                assert not consumer.no_ack
                assert consumer.inflight == consumer.prefetch > 0

    @invariant()
    def one_is_active(self) -> None:
        if self.queue.single_active:
            assert (self.queue.active is None) == (not self.consumers)
            assert self.queue.active is None or self.queue.active in self.consumers


TestQueueConsumers = ConsumerMachine.TestCase
TestQueueConsumers.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
