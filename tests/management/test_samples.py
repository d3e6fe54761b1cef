"""Rates and histories: the arithmetic, and that a running broker has them."""

from __future__ import annotations

import asyncio
import logging
import time

import pika
import pytest

from management.api import Api, q
from warren.auth.directory import Directory
from warren.base.system import SystemClock, SystemDice
from warren.engine.engine import Engine
from warren.engine.settings import EngineSettings
from warren.management.sampler import Sampler
from warren.management.samples import Gauge, History, Series, Span
from warren.testing.broker import Broker


def series(*rows: tuple[int, int]) -> Series:
    made = Series(1)
    for time_ms, value in rows:
        made.add(time_ms, (value,), 100)
    return made


def test_values_between_samples() -> None:
    made = series((1000, 5), (2000, 5), (3000, 9))
    assert [made.at(at)[0] for at in (500, 1000, 2500, 3000, 9999)] == [0, 5, 5, 9, 9]
    assert made.changed_ms == 3000


def test_old_samples_go() -> None:
    made = Series(1)
    for step in range(50):
        made.add(step, (step,), 10)
    assert made.at(39)[0] == 0
    assert made.at(40)[0] == 40


def test_rate() -> None:
    assert Gauge([series((0, 0), (5000, 10))], 5000, 5000, None).details(0) == {"rate": 2.0}
    # Nothing has moved since: no rate, whatever came before.
    assert Gauge([series((0, 0), (5000, 10))], 10_000, 5000, None).details(0) == {"rate": 0.0}
    # It moved in the last interval only, though the sample before is old.
    assert Gauge([series((0, 0), (50_000, 10))], 50_000, 5000, None).details(0) == {"rate": 2.0}
    # The first sample of all says nothing about a rate.
    assert Gauge([series((5000, 10))], 5000, 5000, None).details(0) == {"rate": 0.0}
    assert Gauge([], 5000, 5000, None).details(0) == {"rate": 0.0}


def test_a_long_history_has_the_rate_of_now() -> None:
    """Its samples are minutes apart, and would tell of no rate nearly always."""
    fine, coarse = series((55_000, 0), (60_000, 10)), series((0, 0))
    gauge = Gauge([coarse], 60_000, 5000, Span(3_600_000, 60_000), [fine])
    assert gauge.details(0)["rate"] == 2.0
    # ... also in between, where samples are noted less often than counters are walked over.
    assert Gauge([fine], 63_000, 5000, None).details(0)["rate"] == 2.0
    history = History(1, [(100_000, 10_000), (10_000, 1000)])
    assert history.finest[1] == 1000


def test_a_walk_that_comes_early_is_the_one_that_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two samples stood a millisecond apart, and a rate was a thousand times what it is."""
    now_s = [100.0]
    monkeypatch.setattr("warren.management.sampler.time.time", lambda: now_s[0])
    log = logging.getLogger("test")
    engine = Engine(EngineSettings(), Directory(), SystemClock(), SystemDice(), log)
    sampler = Sampler(engine, 1000, {})
    times = []
    for now in (100.0, 100.9995, 101.999, 103.0, 102.5, 103.4):
        now_s[0] = now
        asyncio.run(sampler.walk())
        times.append(sampler.now_ms)
    # The last two: the clock was set back.
    assert times == [100_000, 101_000, 102_000, 103_000, 104_000, 105_000]


def test_rates_add_up() -> None:
    both = [series((0, 0), (5000, 10)), series((0, 5), (5000, 5)), series((0, 0), (5000, 5))]
    assert Gauge(both, 5000, 5000, None).details(0) == {"rate": 3.0}


def test_history() -> None:
    made = series((10_000, 0), (15_000, 10), (20_000, 30))
    details = Gauge([made], 20_000, 5000, Span(10_000, 5000)).details(0)
    assert details == {
        "rate": 4.0,
        "samples": [
            {"sample": 30, "timestamp": 20_000},
            {"sample": 10, "timestamp": 15_000},
            {"sample": 0, "timestamp": 10_000},
        ],
        "avg_rate": 3.0,
        "avg": 40 / 3,
    }


def test_coarse_histories_reach_further() -> None:
    history = History(1, [(10_000, 1000), (100_000, 10_000)])
    began_ms = 1_000_000
    for step in range(100):
        history.add(began_ms + step * 1000, (step,))
    assert history.series(10_000).at(began_ms + 95_000)[0] == 95
    assert history.series(10_000).at(began_ms + 50_000)[0] == 0
    coarse = history.series(60_000)
    assert coarse.at(began_ms + 50_000)[0] == 50
    assert coarse.at(began_ms + 49_000)[0] == 40


def wait_for(check: object, seconds: float = 30) -> None:
    assert callable(check)
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "nothing came of it"
        time.sleep(0.05)


def test_rates_of_a_running_broker(broker: Broker, api: Api) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("rate.q")

    def rate(path: str, *steps: str) -> float:
        channel.basic_publish("", "rate.q", b"x")
        value = api.get(path)
        for step in (*steps, "rate"):
            value = value[step]
        return float(value)

    publishes = ("message_stats", "publish_details")
    wait_for(lambda: rate("/queues/%2F/rate.q", *publishes) > 0)
    wait_for(lambda: rate("/queues/%2F/rate.q", "messages_details") > 0)
    wait_for(lambda: rate("/overview", *publishes) > 0)
    wait_for(lambda: rate("/vhosts/%2F", *publishes) > 0)
    name = q(api.get("/channels")[0]["name"])
    wait_for(lambda: rate(f"/channels/{name}", *publishes) > 0)
    name = q(api.get("/connections")[0]["name"])
    wait_for(lambda: rate(f"/connections/{name}", "recv_oct_details") > 0)
    shown = api.get("/queues/%2F/rate.q?lengths_age=2&lengths_incr=1")
    samples = shown["messages_details"]["samples"]
    assert len(samples) == 3
    assert samples[0]["timestamp"] - samples[1]["timestamp"] == 1000
    assert "samples" not in shown["message_stats"]["publish_details"]
    wait_for(lambda: "idle_since" in api.get("/queues/%2F/rate.q"))
    connection.close()


def test_too_many_samples(api: Api) -> None:
    refused = api.refusal("GET", "/overview?lengths_age=3600&lengths_incr=1")
    assert refused == (400, "bad_request", "Too many samples requested")
    assert api.refusal("GET", "/overview?lengths_age=x&lengths_incr=1")[0] == 400
