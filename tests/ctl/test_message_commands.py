"""Commands that look into queues, follow and move messages; and what people see at a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from warren.ctl.client import Answer, make_client
from warren.ctl.command import Run
from warren.ctl.completion import script
from warren.ctl.errors import CtlError
from warren.ctl.main import commands, find
from warren.ctl.terminal import Progress
from warren.testing.broker import Broker

Ctl = Callable[..., tuple[int, str, str]]
Ok = Callable[..., str]


def test_peek(ctl: Ctl, ok: Ok) -> None:
    for number in range(5):
        ok("pub", "look", f"m{number}", "--properties", f'{{"headers": {{"n": {number}}}}}')
    assert ok("peek", "look") == "m0\n"
    assert ok("peek", "look", "--count", "2", "--offset", "3") == "m3\nm4\n"
    assert ok("peek", "look", "-c", "9", "--match", "headers.n=[13]") == "m1\nm3\n"
    assert ok("peek", "look", "-c", "9", "--match", "headers.n=1", "--match", "payload=m1") == (
        "m1\n"
    )
    (row,) = json.loads(ok("--json", "peek", "look", "--truncate", "1"))
    assert (row["slot"], row["payload"], row["redelivered"]) == ("0", "m", False)
    assert ok("peek", "look", "--unacked") == ""
    assert ok("-s", "list_queues", "name", "messages").count("look\t5\n") == 1
    status, _, err = ctl("peek", "loook")
    assert (status, err) == (65, "Error:\nno queue 'loook' in vhost '/'. Did you mean 'look'?\n")
    assert ctl("-p", "nope", "peek", "look")[2] == "Error:\nno virtual host 'nope'\n"
    assert ctl("peek", "look", "--match", "x")[0] == 64
    assert ctl("peek", "look", "--match", "colour=red")[0] == 65
    status, _, err = ctl("peek", "look", "--ofset", "1")
    assert (status, "Did you mean --offset?" in err) == (64, True)


def test_tail(ok: Ok, ctl: Ctl) -> None:
    for payload in "abc":
        ok("pub", "follow", payload)
    assert ok("tail", "follow", "--count", "2", "--for", "0") == "b\nc\n"
    assert ok("tail", "follow", "--for", "0", "--match", "payload=a") == "a\n"
    rows = ok("--json", "tail", "follow", "--for", "0").splitlines()
    assert [json.loads(row)["payload"] for row in rows] == ["a", "b", "c"]
    assert ctl("tail", "nope", "--for", "0")[0] == 65
    assert ok("-s", "list_cursors") == ""


def test_tail_shows_what_consumers_take_at_once(broker: Broker, ok: Ok) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("taken")
    channel.basic_consume("taken", lambda *_: None, auto_ack=True)

    def publish() -> None:
        # Only when somebody follows: what came before is not to be seen.
        while not broker.call(lambda node: node.engine.vhost("/").queues["taken"].cursors):
            time.sleep(0.01)
        for number in range(700):
            channel.basic_publish("", "taken", str(number).encode())
        connection.process_data_events(0.5)

    publisher = threading.Thread(target=publish)
    publisher.start()
    shown = ok("tail", "taken", "--for", "4").split()
    publisher.join()
    connection.close()
    assert shown == [str(number) for number in range(700)]


def test_tail_of_a_queue_with_priorities(broker: Broker, ok: Ok) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("ranked", arguments={"x-max-priority": 3})
    channel.basic_publish("", "ranked", b"1")
    connection.close()
    assert ok("tail", "ranked", "--for", "1") == "1\n"


def test_move_and_redrive(ok: Ok, ctl: Ctl) -> None:
    for payload in ("a1", "a2", "b1"):
        ok("pub", "from", payload)
    ok("pub", "to", "there")
    planned = ok("-q", "move", "from", "to", "--match", "payload=a*", "--dry-run")
    assert planned == "2 messages would be moved, 1 did not match\n  2 to queue 'to'\n"
    assert ok("peek", "from", "-c", "9") == "a1\na2\nb1\n"
    assert ok("-q", "move", "from", "to", "--match", "payload=a*") == (
        "2 messages moved, 1 did not match\n"
    )
    assert ok("peek", "to", "-c", "9") == "there\na1\na2\n"
    assert ok("redrive", "to", "--dry-run") == "0 messages would be moved, 3 stayed\n"
    shown = json.loads(ok("--json", "redrive", "to"))
    assert (shown["moved"], shown["kept"]) == (0, 3)
    assert ctl("move", "fron", "to")[2].endswith("Did you mean 'from'?\n")


def test_many_are_moved_some_at_a_time(ok: Ok, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.ctl.messages.MOVED_AT_A_TIME", 3)
    for number in range(10):
        ok("pub", "many", str(number))
    ok("pub", "many.to", "x")
    assert ok("-q", "move", "many", "many.to", "--count", "8") == "8 messages moved\n"
    assert ok("peek", "many", "-c", "9") == "8\n9\n"
    assert ok("-q", "move", "many", "many.to", "--match", "payload=9") == (
        "1 messages moved, 1 did not match\n"
    )


def test_events_follow(ok: Ok) -> None:
    ok("pub", "evented", "x")
    assert "queue.created" in ok("events", "-f", "--for", "0")
    assert '"event": "queue.created"' in ok("consume_event_stream", "--for", "0")


def test_events_as_they_happen(broker: Broker, ok: Ok) -> None:
    def make_many() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        for number in range(50):
            channel.queue_declare(f"happens.{number}")
            channel.queue_delete(f"happens.{number}")
        connection.close()

    later = threading.Timer(0.5, make_many)
    later.start()
    seen = [json.loads(line) for line in ok("consume_event_stream", "--for", "3").splitlines()]
    later.join()
    made = [e["details"]["name"] for e in seen if e["event"] == "queue.created"]
    assert [name for name in made if name.startswith("happens.")] == [
        f"happens.{number}" for number in range(50)
    ]
    assert sorted({event["id"] for event in seen}) == [event["id"] for event in seen]


def test_events_are_for_those_who_may_see_them(broker: Broker, ok: Ok) -> None:
    ok("add_user", "blind", "pw")
    ok("set_user_tags", "blind", "management")
    url = broker.http_url.replace("http://", "http://blind:pw@")
    with pytest.raises(CtlError, match="Not monitor user"):
        list(make_client(None, url, 5.0).lines("/cluster/events/stream", time.monotonic() + 5))
    ok("delete_user", "blind")


def test_top_without_a_terminal(ok: Ok) -> None:
    ok("pub", "topped", "x")
    shown = ok("top", "--count", "1", "--sort", "name")
    assert "publish" in shown
    assert any(line.startswith("topped ") for line in shown.splitlines())


def test_bench(ok: Ok, broker: Broker) -> None:
    rows = json.loads(ok("--json", "bench", "--seconds", "1", "--uri", broker.url))
    assert [row["messages"] > 0 for row in rows] == [True] * 4
    assert rows[2]["p50_ms"] <= rows[2]["p99_ms"] <= rows[2]["max_ms"]
    assert "warrenctl.bench" not in ok("-s", "list_queues")


def test_bench_with_a_load_of_ones_own(ok: Ok, ctl: Ctl, broker: Broker) -> None:
    words = ("--producers", "2", "--consumers", "2", "--sizes", "16,20000", "--window", "50")
    run = ("--json", "bench", "--seconds", "1", "--uri", broker.url)
    published, consumed = json.loads(ok(*run, *words, "--prefetch", "20"))
    assert published["load"] == "2 producers, confirmed, window 50"
    assert published["messages"] >= consumed["messages"] > 0
    assert 0 < consumed["p50_ms"] <= consumed["p99_ms"] <= consumed["max_ms"]
    words = ("--producers", "2", "--consumers", "0", "--rate", "200", "--window", "0")
    (row,) = json.loads(ok(*run, *words, "--transient"))
    assert (row["load"], row["p50_ms"]) == ("2 producers, published", None)
    assert 150 <= row["messages"] <= 202
    shown = ok("bench", "--seconds", "1", "--uri", broker.url, "--rate", "100")
    assert "1 producers, confirmed, window 1000" in shown
    assert " msg/s " in shown
    assert "warrenctl.bench" not in ok("-s", "list_queues")
    for wrong in (("--sizes", "4"), ("--producers", "x"), ("--producers", "0", "--consumers", "0")):
        assert ctl("bench", *wrong)[0] == 64
    bad = broker.url.replace("guest:guest@", "guest:wrong@")
    assert ctl("bench", "--uri", bad, "--producers", "1")[0] == 69


def test_completion(ctl: Ctl) -> None:
    for shell in ("bash", "zsh", "fish"):
        text = script(shell, commands())
        assert "peek" in text
        assert "--formatter" in text or "formatter" in text
    _, out, _ = ctl("completion", "bash")
    checked = subprocess.run(
        ["bash", "-n"], input=out, capture_output=True, text=True, check=False, timeout=30
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    asked = f'{out}\nCOMP_WORDS=(warrenctl pee); COMP_CWORD=1; _warrenctl; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stdout == "peek\n"
    assert ctl("completion", "tcsh")[0] == 64
    assert ctl("autocomplete", "shovel_")[1] == "shovel_status\n"


def at_terminal(broker: Broker, *words: str, keys: bytes = b"", until: bytes = b"") -> str:
    """What a command shows at a terminal of 100 columns."""
    url = broker.http_url.replace("http://", "http://guest:guest@")
    own, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "warren.ctl.main", "--url", url, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        close_fds=True,
    )
    os.close(theirs)
    seen = b""
    until_s = time.monotonic() + 30
    try:
        while time.monotonic() < until_s:
            if not select.select([own], [], [], 0.5)[0]:
                continue
            try:
                data = os.read(own, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
            if keys and until in seen:
                os.write(own, keys)
                keys = b""
        assert process.wait(30) == 0, seen
    finally:
        process.kill()
        process.wait()
        os.close(own)
    return seen.decode()


def test_people_see_more_than_pipes(broker: Broker, ok: Ok) -> None:
    ok("pub", "seen", '{"a":1}', "--properties", '{"type": "t"}')
    shown = at_terminal(broker, "peek", "seen")
    assert '  "a": 1' in shown
    assert "(default exchange) → seen" in shown
    assert "\x1b[36m" in shown
    # A message cannot write to the terminal what it likes.
    ok("pub", "evil", "\x1b[2Jgone")
    assert "\\x1b[2Jgone" in at_terminal(broker, "peek", "evil")


def test_top_takes_the_screen_and_gives_it_back(broker: Broker, ok: Ok) -> None:
    ok("pub", "screened", "x")
    shown = at_terminal(broker, "top", keys=b"q", until=b"screened")
    assert shown.startswith("\x1b[?1049h")
    assert shown.endswith("\x1b[?25h\x1b[?1049l")


def test_progress_in_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.ctl.terminal.LINE_S", -1.0)
    progress = Progress("moved", 200)
    progress.show(50)
    progress.show(200, "soon done")
    progress.end()
    assert capsys.readouterr().err == ("moved  25%  50 of 200\nmoved 100%  200 of 200  soon done\n")


class Terminal(io.StringIO):
    """What is written to it would be seen by somebody."""

    def isatty(self) -> bool:
        return True


class FakeNode:
    """Answers one by one, as long work goes on."""

    def __init__(self, *answers: dict[str, Any] | CtlError) -> None:
        self._answers = list(answers)

    def want(self, *_request: object) -> None:
        pass

    def call(self, *_request: object) -> Answer:
        return Answer(200, {})

    def get(self, path: str) -> dict[str, Any]:
        answer = {"node": "a@b"} if path.startswith("/overview") else self._answers.pop(0)
        if isinstance(answer, CtlError):
            raise answer
        return answer


def sync_state(done: int | None) -> dict[str, Any]:
    sync = None if done is None else {"done": done, "total": 80}
    return {"replicas": [{"node": "b", "online": True, "synchronised": done is None, "sync": sync}]}


def drain_state(left: int, state: str = "draining") -> dict[str, Any]:
    return {"state": state, "masters": 80, "masters_left": left, "queues_left": []}


def spread_state(moved: int, state: str = "running") -> dict[str, Any]:
    return {"state": state, "moved": moved, "planned": 80, "nodes": [], "failed": 0}


LONG_WORK = {
    "sync_queue": ("q", (sync_state(20), sync_state(None)), "synchronised  25%  20 of 80"),
    "drain": ("", (drain_state(60), drain_state(0, "drained")), "masters moved  25%  20 of 80"),
    "rebalance": ("all", (spread_state(20), spread_state(80, "done")), "moved  25%  20 of 80"),
}


@pytest.mark.parametrize("name", LONG_WORK)
@pytest.mark.parametrize("at_terminal", [True, False])
def test_long_work_has_a_bar_at_a_terminal_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, name: str, at_terminal: bool
) -> None:
    words, answers, shown = LONG_WORK[name]
    for setting in ("BAR_S", "LINE_S"):
        monkeypatch.setattr(f"warren.ctl.terminal.{setting}", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    seen = Terminal() if at_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", seen)
    command = find(name)
    assert command is not None
    node: Any = FakeNode(*answers)
    command.run(Run(command, node, words.split(), {}))
    text = seen.getvalue()
    if at_terminal:
        # A quarter of the bar; nothing of it is left at the end.
        assert f"\r\x1b[K{'█' * 7}{'░' * 23} {shown}" in text
        assert text.endswith("\r\x1b[K")
    else:
        assert f"{shown}\n" in text
        assert "\x1b" not in text


def test_a_bar_is_wiped_away_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Terminal()
    monkeypatch.setattr("sys.stderr", seen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("warren.ctl.terminal.BAR_S", -1.0)
    command = find("sync_queue")
    assert command is not None
    node: Any = FakeNode(sync_state(20), CtlError(69, "it is gone"))
    with pytest.raises(CtlError, match="it is gone"):
        command.run(Run(command, node, ["q"], {}))
    assert "20 of 80" in seen.getvalue()
    assert seen.getvalue().endswith("\r\x1b[K")


def test_shovels(broker: Broker, ok: Ok, ctl: Ctl) -> None:
    ok("pub", "sh.a", "x")
    value = {
        "src-uri": broker.url,
        "src-queue": "sh.a",
        "dest-uri": broker.url,
        "dest-queue": "sh.b",
    }
    ok("set_parameter", "shovel", "sh", json.dumps(value))
    until_s = time.monotonic() + 30
    while "sh\t/\t" not in (shown := ok("-s", "shovel_status")) or "running\t1" not in shown:
        assert time.monotonic() < until_s, shown
        time.sleep(0.1)
    ok("restart_shovel", "sh")
    ok("delete_shovel", "sh")
    assert ctl("delete_shovel", "sh")[0] == 65
    assert ctl("restart_shovel", "sh")[0] == 65
    assert ctl("set_parameter", "shovel", "sh", "{}")[0] == 65


def test_limits_and_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from warren.ctl.main import run

    with Broker(http=True, data_dir=tmp_path / "data") as broker:
        url = broker.http_url.replace("http://", "http://guest:guest@")

        def call(*words: str) -> tuple[int, str]:
            capsys.readouterr()
            status = run(["--url", url, "-q", *words])
            captured = capsys.readouterr()
            return status, captured.out + captured.err

        def limit() -> int:
            found: int = json.loads(call("--json", "status")[1])["disk_free_limit"]
            return found

        assert call("set_disk_free_limit", "3MB") == (0, "")
        assert limit() == 3_000_000
        assert call("set_disk_free_limit", "mem_relative", "0.000001")[0] == 0
        assert limit() < 3_000_000
        assert call("set_disk_free_limit", "much")[0] == 65
        assert call("set_disk_free_limit", "1", "2")[0] == 64
        # Inside a test nobody watches the memory.
        status, text = call("set_vm_memory_high_watermark", "0.5")
        assert (status, "not watched" in text) == (65, True)
        assert call("set_vm_memory_high_watermark", "absolute")[0] == 64
        assert call("set_vm_memory_high_watermark", "lots")[0] == 64
        status, text = call("set_log_level", "debg")
        assert (status, "Did you mean 'debug'?" in text) == (64, True)
        assert call("set_log_level", "error", "shovel") == (0, "")
        assert call("set_log_level", "error", "nope")[0] == 65
        assert call("set_log_level", "info", "shovel") == (0, "")
        assert call("rotate_logs") == (0, "")
        assert "console only" in call("log_tail")[1]
        status, text = call("report")
        assert status == 0
        for title in ("# status", "# list_queues", "# environment", "# shovel_status"):
            assert title in text
        assert call("check_port_connectivity")[0] == 0
        assert call("check_virtual_hosts")[0] == 0
        assert call("check_certificate_expiration")[0] == 0
        assert call("list_unresponsive_queues") == (0, "")
        assert call("restart_vhost", "-p", "/")[0] == 0


def test_a_large_import_goes_in_pieces(
    ok: Ok, ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.ctl.policies.IMPORTED_AT_A_TIME", 7)
    monkeypatch.setattr("warren.ctl.terminal.LINE_S", -1.0)
    queues = [
        {"name": f"pc.{n}", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        for n in range(20)
    ]
    bindings = [
        {
            "source": "amq.direct",
            "vhost": "/",
            "destination": f"pc.{n}",
            "destination_type": "queue",
            "routing_key": "k",
            "arguments": {},
        }
        for n in range(20)
    ]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"queues": queues, "bindings": bindings}))
    status, _, err = ctl("import_definitions", str(path))
    assert status == 0
    assert "imported 100%  40 of 40" in err
    assert ok("-s", "list_queues", "name").count("pc.") == 20
    assert ok("-s", "list_bindings").count("amq.direct\texchange\tpc.") == 20
    path.write_text("no json")
    assert ctl("import_definitions", str(path))[0] == 65
