"""The walk that takes samples of everything that has counters, once an interval, in slices."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from warren.engine.totals import TAKEN
from warren.management.machine import node_row
from warren.management.pace import Pace
from warren.management.samples import ROWS_MAX, ROWS_MIN, ROWS_TOTAL, Gauge, History, Series, Span
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.routing.exchange import Exchange
    from warren.session.channel import Channel
    from warren.session.connection import Connection

#: The columns of each kind of object, by the names of the API.
QUEUE_COLUMNS = (
    "publish",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
    "deliver_get",
    "messages_ready",
    "messages_unacknowledged",
    "messages",
)
CONNECTION_COLUMNS = ("recv_oct", "send_oct")
CHANNEL_COLUMNS = (
    "publish",
    "confirm",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "deliver_get",
    "redeliver",
)
EXCHANGE_COLUMNS = ("publish_in", "publish_out")
CHURN_COLUMNS = (
    "channel_closed",
    "channel_created",
    "connection_closed",
    "connection_created",
    "queue_created",
    "queue_declared",
    "queue_deleted",
)
TOTAL_COLUMNS = (
    "ack",
    "confirm",
    "deliver",
    "deliver_get",
    "deliver_no_ack",
    "disk_reads",
    "disk_writes",
    "drop_unroutable",
    "get",
    "get_empty",
    "get_no_ack",
    "publish",
    "redeliver",
    "return_unroutable",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "recv_oct",
    "send_oct",
    *CHURN_COLUMNS,
)
NODE_COLUMNS = ("mem_used", "disk_free", "fd_used", "sockets_used", "proc_used")

#: How long samples are kept and how far apart, in seconds, if the configuration says nothing.
GLOBAL_POLICIES = ((600, 5), (3600, 60), (28800, 600), (86400, 1800))


def queue_row(queue: AmqpQueue) -> tuple[int, ...]:
    """The counters of a queue, as QUEUE_COLUMNS names them."""
    delivered, no_ack, got = queue.delivered, queue.delivered_no_ack, queue.got
    got_no_ack, ready, unacked = queue.got_no_ack, queue.ready, queue.unacked
    return (
        queue.published,
        delivered,
        no_ack,
        got,
        got_no_ack,
        queue.got_empty,
        queue.redelivered,
        queue.acked,
        delivered + no_ack + got + got_no_ack,
        ready,
        unacked,
        ready + unacked + queue.buried,
    )


def connection_row(connection: Connection) -> tuple[int, ...]:
    """The counters of a connection, as CONNECTION_COLUMNS names them."""
    return connection.bytes_in, getattr(connection.outlet.link, "bytes_out", 0)


def channel_row(engine: Engine, channel: Channel) -> tuple[int, ...]:
    """The counters of a channel, as CHANNEL_COLUMNS names them.

    A channel numbers its deliveries and counts those of its consumers; what is neither a get nor
    went to a consumer without acknowledgement was delivered with one.
    """
    got, got_no_ack, got_empty = engine.totals.gets.get(channel, (0, 0, 0))
    total = channel.deliveries.last_tag
    no_ack = sum(consumer.delivered for consumer in channel.consumers.values() if consumer.no_ack)
    delivered = max(0, total - no_ack - got - got_no_ack)
    confirmed = channel.confirms.told if channel.confirms is not None else 0
    return (
        channel.published,
        confirmed,
        delivered,
        no_ack,
        got,
        got_no_ack,
        got_empty,
        channel.acked,
        total,
        channel.redelivered,
    )


def exchange_row(exchange: Exchange) -> tuple[int, ...]:
    """The counters of an exchange, as EXCHANGE_COLUMNS names them."""
    return exchange.counts.received, exchange.counts.routed


class Sampler:
    """Started with the API, stopped with it."""

    def __init__(self, engine: Engine, interval_ms: int, retention: Mapping[str, int]) -> None:
        self.interval_ms = max(100, interval_ms)
        #: When the newest samples were taken, in milliseconds since 1970, on a whole interval.
        self.now_ms = 0
        self.policies = _policies(retention, self.interval_ms)
        self._engine = engine
        self._objects: dict[Any, Series] = {}
        #: The whole broker is under the empty name.
        self._vhosts: dict[str, History] = {}
        self._node = History(len(NODE_COLUMNS), self.policies)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.walk()
            except Exception:  # noqa: BLE001 - the next walk may go well
                logger("management").exception("a fault of ours while taking samples")
            due_ms = self.now_ms + self.interval_ms
            ahead_ms = due_ms - time.time() * 1000
            if not 0 < ahead_ms < 2 * self.interval_ms:
                # Late, or the clock was set: on from here.
                ahead_ms = self.interval_ms - time.time() * 1000 % self.interval_ms
            await asyncio.sleep(ahead_ms / 1000)

    async def walk(self) -> None:
        """Take one sample of everything."""
        # Timers may ring a little early: that is the sample of the time that was meant, or it
        # would stand a millisecond after the last one and tell of a thousand times the rate.
        now_ms = int(time.time() * 1000) + self.interval_ms // 20
        # The clock of the world may be set back; samples stay in order.
        now_ms = max(now_ms - now_ms % self.interval_ms, self.now_ms + self.interval_ms)
        pace = Pace()
        kept: dict[Any, Series] = {}
        sums: dict[str, Counter[str]] = {}
        count = len(self._objects) or 1
        rows_max = min(ROWS_MAX, max(ROWS_MIN, ROWS_TOTAL // count))
        for vhost in list(self._engine.vhosts.values()):
            total = sums.setdefault(vhost.name, Counter())
            for queue in vhost.queues_here():
                row = queue_row(queue)
                self._note(kept, queue, now_ms, row, rows_max)
                _add_queue(total, row)
                await pace.rest()
            for exchange in list(vhost.exchanges.values()):
                self._note(kept, exchange, now_ms, exchange_row(exchange), rows_max)
                await pace.rest()
        for connection in list(self._engine.connections):
            total = sums.setdefault(connection.vhost.name, Counter())
            row = connection_row(connection)
            self._note(kept, connection, now_ms, row, rows_max)
            total["recv_oct"] += row[0]
            total["send_oct"] += row[1]
            for channel in connection.open_channels():
                row = channel_row(self._engine, channel)
                self._note(kept, channel, now_ms, row, rows_max)
                total["publish"] += row[0]
                total["confirm"] += row[1]
                await pace.rest()
        # What ended while the walk went on is not kept, however it was met.
        self._objects = kept
        self._note_totals(now_ms, sums)
        self._node.add(now_ms, node_row(self._engine))
        self.now_ms = now_ms

    def _note(
        self,
        kept: dict[Any, Series],
        subject: Any,
        now_ms: int,
        row: tuple[int, ...],
        rows_max: int,
    ) -> None:
        series = self._objects.get(subject)
        if series is None:
            series = Series(len(row))
        kept[subject] = series
        series.add(now_ms, row, rows_max)

    def _note_totals(self, now_ms: int, sums: dict[str, Counter[str]]) -> None:
        totals = self._engine.totals
        everything: Counter[str] = Counter(totals.churn)
        for name, kept in totals.messages.items():
            sums.setdefault(name, Counter()).update(kept)
        for name, total in sums.items():
            total["recv_oct"] += totals.recv_bytes[name]
            total["send_oct"] += totals.send_bytes[name]
            finish_totals(total)
            everything.update(total)
        sums[""] = everything
        histories = {}
        for name, total in sums.items():
            history = self._vhosts.get(name) or History(len(TOTAL_COLUMNS), self.policies)
            history.add(now_ms, [total[column] for column in TOTAL_COLUMNS])
            histories[name] = history
        self._vhosts = histories

    # -- reading -----------------------------------------------------------------------------------

    def gauge(self, subject: Any, span: Span | None = None) -> Gauge:
        """The rates of a queue, connection or channel."""
        series = self._objects.get(subject)
        found: Sequence[Series] = () if series is None else (series,)
        return Gauge(found, self.now_ms, self.interval_ms, span)

    def idle_since_ms(self, subject: Any) -> int | None:
        """Since when the object has been doing nothing; None while it is at work."""
        series = self._objects.get(subject)
        if series is None or series.changed_ms >= self.now_ms:
            return None
        return series.changed_ms

    def totals_gauge(self, vhosts: Sequence[str] | None, span: Span | None = None) -> Gauge:
        """The rates of some virtual hosts together; of the whole broker for None."""
        names = [""] if vhosts is None else vhosts
        return self._gauge([self._vhosts[name] for name in names if name in self._vhosts], span)

    def node_gauge(self, span: Span | None = None) -> Gauge:
        return self._gauge([self._node], span)

    def _gauge(self, histories: Sequence[History], span: Span | None) -> Gauge:
        """The rates are those of now, however coarse the samples are that reach far back."""
        age_ms = span.age_ms if span is not None else 0
        newest = [history.finest for history in histories]
        step_ms = max((step_ms for _, step_ms in newest), default=self.interval_ms)
        found = [history.series(age_ms) for history in histories]
        return Gauge(found, self.now_ms, step_ms, span, [series for series, _ in newest])


def _add_queue(total: Counter[str], row: tuple[int, ...]) -> None:
    for i in range(1, 8):
        total[QUEUE_COLUMNS[i]] += row[i]
    total["routed"] += row[0]
    total["messages_ready"] += row[9]
    total["messages_unacknowledged"] += row[10]


def finish_totals(total: Counter[str]) -> None:
    """Fill in what follows from the rest."""
    total["deliver_get"] = (
        total["deliver"] + total["deliver_no_ack"] + total["get"] + total["get_no_ack"]
    )
    total["messages"] = total["messages_ready"] + total["messages_unacknowledged"]


async def sum_totals(engine: Engine, vhosts: Sequence[str] | None) -> Counter[str]:
    """The counts of some virtual hosts, or of the whole broker, as they are now."""
    pace = Pace()
    total: Counter[str] = Counter()
    wanted = None if vhosts is None else set(vhosts)
    for name, kept in list(engine.totals.messages.items()):
        if wanted is None or name in wanted:
            total.update(kept)
    for vhost in list(engine.vhosts.values()):
        if wanted is not None and vhost.name not in wanted:
            continue
        for queue in vhost.queues_here():
            _add_queue(total, queue_row(queue))
            await pace.rest()
    for connection in list(engine.connections):
        if wanted is not None and connection.vhost.name not in wanted:
            continue
        received, sent = connection_row(connection)
        total["recv_oct"] += received
        total["send_oct"] += sent
        for channel in connection.open_channels():
            total["publish"] += channel.published
            if channel.confirms is not None:
                total["confirm"] += channel.confirms.told
                total["received_confirm"] += channel.confirms.last
            await pace.rest()
    for octets, column in (
        (engine.totals.recv_bytes, "recv_oct"),
        (engine.totals.send_bytes, "send_oct"),
    ):
        names = octets.keys() if wanted is None else wanted
        total[column] += sum(octets[name] for name in names)
    total.update(engine.totals.churn)
    finish_totals(total)
    return total


def _policies(retention: Mapping[str, int], interval_ms: int) -> tuple[tuple[int, int], ...]:
    """(how long, how far apart) in ms; `sample_retention_policies.global.10m = 5` and the like."""
    named = {"minute": 60, "10m": 600, "hour": 3600, "8h": 28800, "day": 86400}
    given = [
        (named[key.rpartition(".")[2]], step_s)
        for key, step_s in retention.items()
        if key.startswith("global.") and key.rpartition(".")[2] in named
    ]
    return tuple(
        (keep_s * 1000, max(step_s * 1000, interval_ms))
        for keep_s, step_s in (given or GLOBAL_POLICIES)
    )


#: The counters of queues that make up the totals; a guard against the two lists drifting apart.
assert set(TAKEN) == set(QUEUE_COLUMNS[1:8])
