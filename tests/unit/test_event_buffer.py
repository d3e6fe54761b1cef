"""The event journal's buffer: neighbours share a row, whatever order queues come in."""

from __future__ import annotations

from warren.model.ports import TurnClock
from warren.telemetry.event_buffer import NUMBERS, EventBuffer, bytes_for

PUBLISH, ACK = NUMBERS["publish"], NUMBERS["ack"]
ROWS = 1024


def make() -> EventBuffer:
    def full() -> None:
        raise AssertionError("the buffer is full")

    buffer = EventBuffer(TurnClock(), None, full, lambda _: 1)
    buffer.use(bytearray(bytes_for(ROWS)), ROWS, 0)
    return buffer


def test_neighbours_of_many_queues_share_rows() -> None:
    buffer = make()
    for slot in range(300):
        for queue in range(1, 51):
            buffer.record(queue, 1, PUBLISH, slot)
            buffer.record(queue, 1, ACK, slot)
    assert buffer.length == 100
    assert buffer.noted == 2 * 300 * 50


def test_queues_whose_numbers_end_alike_do_not_share() -> None:
    buffer = make()
    for slot in range(10):
        for queue in (1, 257):
            buffer.record(queue, 1, PUBLISH, slot)
    # They take the place from one another, so each message has a row of its own.
    assert buffer.length == 20


def test_gaps_epochs_and_blocks_begin_a_row() -> None:
    buffer = make()
    for epoch, slot in ((1, 0), (1, 1), (1, 3), (2, 4), (2, 65_535), (2, 65_536)):
        buffer.record(7, epoch, PUBLISH, slot)
    assert buffer.length == 5
