"""A node whose log fails ends by itself: at once, with 1, and without another word to clients."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from raw_client import RawConnection, SocketClosedError

from warren.node.failure import Failure

#: Promised: this long from the failure to the end of the process.
END_S = 2.0
#: `warren` as ever, but the log "fails" when a file appears, and a thread hangs as on a bad disk.
SCRIPT = """
import asyncio, errno, os, pathlib, sys, threading, time
from warren.node.node import Node
from warren.node.cli import main

trigger = pathlib.Path(sys.argv.pop(1))
start = Node.start

def start_and_watch(node):
    start(node)
    loop = asyncio.get_running_loop()
    threading.Thread(target=time.sleep, args=[60]).start()

    def look():
        if trigger.exists():
            node.failure.set(OSError(errno.EIO, os.strerror(errno.EIO)))
            node.failure.set(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        else:
            loop.call_later(0.01, look)

    look()

Node.start = start_and_watch
main()
"""


@pytest.mark.parametrize("console", ["true", "false"])
def test_a_failed_log_ends_the_node(
    tmp_path: Path, console: str, judge_time: Callable[[float, float], None]
) -> None:
    trigger, pid_file, data = tmp_path / "fail", tmp_path / "pid", tmp_path / "data"
    (tmp_path / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:0\nlog.console = {console}\nlog.file = {tmp_path}/log\n"
    )
    arguments = ["serve", "--config", str(tmp_path / "rabbitmq.conf"), "--data-dir", str(data)]
    arguments += ["--pid-file", str(pid_file), "--ready-fd", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(trigger), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "ready in" in process.stdout.readline()
        url = urlsplit(process.stdout.readline().strip())
        assert url.port is not None
        connection = RawConnection("127.0.0.1", url.port).handshake("/")
        connection.channel().declare("q")
        began = time.monotonic()
        trigger.touch()
        _, err = process.communicate(timeout=30)
        took_s = time.monotonic() - began
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 1
    judge_time(took_s, END_S)
    said = (
        f"the log in {data} failed: Input/output error. Nothing more was confirmed; the disk may "
        "be failing; check the file system, then start again"
    )
    assert f"warren: {said}\n" in err
    assert "Traceback" not in err
    log = (tmp_path / "log").read_text()
    assert f"[critical] <store> {said}\n" in log
    assert "disk alarm (the log has failed)" in log
    assert "No space left" not in log
    assert not pid_file.exists()
    # Not even connection.close: the end of the stream, or a reset.
    with pytest.raises(SocketClosedError):
        connection.read()


#: A log that fails with its last sync, while the node stops.
LATE_SCRIPT = """
import errno, os
from warren.node.node import Node
from warren.node.cli import main

stop = Node.stop

async def stop_badly(node):
    await stop(node)
    node.failure.set(OSError(errno.EIO, os.strerror(errno.EIO)))

Node.stop = stop_badly
main()
"""


def test_a_stop_that_could_not_keep_everything_is_no_success(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LATE_SCRIPT, "dev", "--port", "0", "--data-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "ready in" in process.stdout.readline()
        process.terminate()
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 1
    assert f"the log in {tmp_path} failed: Input/output error." in err
    assert "Traceback" not in err


def test_the_first_error_counts() -> None:
    async def first() -> BaseException:
        failure = Failure()
        waiting = asyncio.ensure_future(failure.wait())
        await asyncio.sleep(0)
        assert (failure.error, waiting.done()) == (None, False)
        for text in ("one", "two"):
            failure.set(OSError(text))
        assert await waiting is await failure.wait()
        return await waiting

    assert str(asyncio.run(first())) == "one"
