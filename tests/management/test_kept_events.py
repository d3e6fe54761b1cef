"""What happened outlives the node that saw it."""

from __future__ import annotations

from pathlib import Path

from management.api import Api
from warren.management import event_file
from warren.management.event_file import Event, EventFile
from warren.management.events import RESTART_STEP
from warren.testing.broker import Broker


def named(api: Api) -> list[str]:
    rows = api.get("/cluster/events?names=policy.,vhost.")
    return [f"{row['event']} {row['details']['name']}" for row in rows]


def test_events_outlive_a_restart(tmp_path: Path) -> None:
    policy = {"pattern": "x", "definition": {"expires": 1000000}}
    with Broker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker.http_url)
        api.put("/policies/%2F/first", policy)
        before = named(api)
        last = api.get("/cluster/events")[-1]["id"]
    with Broker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker.http_url)
        api.put("/policies/%2F/second", policy)
        assert [*before, "policy.set second"] == [
            name for name in named(api) if name != "vhost.created /" or name in before
        ]
        numbers = [row["id"] for row in api.get("/cluster/events")]
        assert numbers == sorted(set(numbers))
        # Who was told of the last event before the restart is told of all that came after it.
        rows = api.get(f"/cluster/events?since={last}&names=policy.")
        assert [row["details"]["name"] for row in rows] == ["second"]
        assert rows[0]["id"] > RESTART_STEP
        (newest,) = api.get("/cluster/events?names=policy.&last=1")
        assert newest["details"]["name"] == "second"
        times = [row["timestamp"] for row in api.get("/warren/events?names=policy.")]
        assert len(api.get(f"/warren/events?names=policy.&after={times[0]}")) == 1
        assert api("GET", "/api/warren/events?after=x").status == 400
        assert api("GET", "/api/cluster/events?last=x").status == 400


def test_what_clients_do_is_not_kept(tmp_path: Path) -> None:
    with Broker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker.http_url)
        api.put("/queues/%2F/q")
        api.put("/vhosts/kept")
    text = b"".join(path.read_bytes() for path in tmp_path.glob("events*.jsonl"))
    assert b"kept" in text
    assert b"queue.created" not in text


def test_a_file_has_a_most(tmp_path: Path) -> None:
    file = EventFile(tmp_path, "events")
    for number in range(1, 8001):
        file.append([Event(number, 1000 + number, "policy.set", {"name": "x" * 100})])
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < event_file.FILE_BYTES_MAX + 1000
    kept = [event.number for event in file.read()]
    assert kept == list(range(kept[0], 8001))
    assert len(kept) > 1000


def test_a_line_that_was_cut_is_passed_over(tmp_path: Path) -> None:
    file = EventFile(tmp_path, "events")
    file.append([Event(1, 1, "node.down", {"node": "a"})])
    with open(tmp_path / "events.jsonl", "ab") as half:
        half.write(b'{"number": 2, "time')
    file.append([Event(3, 3, "node.up", {"node": "a"})])
    assert [event.number for event in file.read()] == [1, 3]
    assert EventFile(tmp_path / "none", "events").read() == []
