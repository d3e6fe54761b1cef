"""`--data-dir` with real processes: where data goes, and every way it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_cli_dev import WAIT_S, WARREN, Command, run

from warren.store.crc32c import checksum

Start = Callable[..., Command]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts commands, and ends what is left of them."""
    commands: list[Command] = []

    def start(*arguments: str, **env: str) -> Command:
        commands.append(Command(*arguments, **env))
        return commands[-1]

    yield start
    for command in commands:
        command.kill()


def config(folder: Path, more: str = "") -> str:
    path = folder / "rabbitmq.conf"
    path.write_text("listeners.tcp.1 = 127.0.0.1:0\n" + more)
    return str(path)


def everything(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time of change and contents of a directory and all in it."""
    found = {}
    for entry in [path, *path.rglob("*")]:
        stat = entry.stat()
        contents = entry.read_bytes() if entry.is_file() else b""
        found[str(entry.relative_to(path))] = (stat.st_mode, stat.st_mtime_ns, contents)
    return found


def all_but_lock(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """`everything` but the file that says which process looks at it."""
    return {name: what for name, what in everything(path).items() if name != "LOCK"}


def refused(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    """It ended with 1, said these things and what else could be chosen, and nothing of ours."""
    assert done.returncode == 1
    for text in texts:
        assert text in done.stderr
    assert "r choose another: --data-dir DIR, WARREN_DATA_DIR, or data_dir" in done.stderr
    assert "Traceback" not in done.stderr
    assert "ready in" not in done.stdout


def test_the_flag_goes_before_all(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "flag"
    command = start(
        "serve",
        *("--config", config(tmp_path, f"data_dir = {tmp_path}/file\n")),
        *("--data-dir", str(path)),
        WARREN_DATA_DIR=str(tmp_path / "environment"),
    )
    assert (path / "LOCK").read_text() == f"{command.process.pid}\n"
    code, out, _ = command.stop()
    assert code == 0
    assert out.strip().endswith(f", data: {path}")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["flag", "rabbitmq.conf"]


def test_by_the_nodes_name_below_the_base(start: Start, tmp_path: Path) -> None:
    env = {"RABBITMQ_MNESIA_BASE": str(tmp_path / "base"), "WARREN_NODENAME": "rabbit@one"}
    command = start("serve", "--config", config(tmp_path), **env)
    assert (tmp_path / "base" / "rabbit@one" / "VERSION").exists()
    assert command.stop()[0] == 0


def test_in_memory(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "data"
    env = {"WARREN_DATA_DIR": str(path)}
    command = start("serve", "--config", config(tmp_path), "--in-memory", **env)
    code, out, _ = command.stop()
    assert (code, out.strip().endswith(", data: in memory")) == (0, True)
    # A server's directory, named in the environment, is none for development.
    assert start("dev", "--port", "0", **env).stop()[0] == 0
    assert not path.exists()


def test_dev_with_a_directory(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "data"
    code, out, _ = start("dev", "--port", "0", "--data-dir", str(path)).stop()
    assert code == 0
    assert f"  Data   {path}\n" in out
    assert (path / "VERSION").exists()


def test_contradictions(tmp_path: Path) -> None:
    done = run("serve", "--in-memory", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "--in-memory keeps no data" in done.stderr
    done = run("serve", "--data-dir", "")
    assert (done.returncode, "expected a directory" in done.stderr) == (2, True)


def test_permission_denied(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    path = closed / "data"
    # Root may do all because of its capabilities: without them it is a user like others.
    drop = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*drop, *WARREN, "dev", "--port", "0", "--data-dir", str(path)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    give = f"install -d -m 750 -o {os.geteuid()} {path}\n"
    refused(done, f"the data directory {path} cannot be used: Permission denied.\n", give)


@pytest.mark.parametrize("below", ["", "/data"])
def test_a_file_in_its_place(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    path = f"{tmp_path}/file{below}"
    done = run("dev", "--port", "0", "--data-dir", path)
    refused(done, f"the data directory {path} cannot be used", "There is a file where a directory")
    assert (tmp_path / "file").read_text() == "mine"


def test_another_process_has_it(start: Start, tmp_path: Path) -> None:
    path, pid_file = tmp_path / "data", tmp_path / "pid"
    arguments = ("dev", "--port", "0", "--data-dir", str(path), "--pid-file", str(pid_file))
    first = start(*arguments)
    before = everything(path)
    pid = first.process.pid
    refused(run(*arguments), f"is in use by process {pid}.\n", "Stop that process")
    assert everything(path) == before
    assert pid_file.read_text() == f"{pid}\n"
    # Even one that was not stopped well leaves nothing in the way.
    first.stop(signal.SIGKILL)
    assert start(*arguments).stop()[0] == 0


@pytest.mark.parametrize("version", ["2\n", "", "one\n", None])
def test_an_unknown_version_is_left_untouched(tmp_path: Path, version: str | None) -> None:
    path = tmp_path / "data"
    (path / "log").mkdir(parents=True)
    (path / "log" / "0000000000000001.wal").write_bytes(b"from another time")
    if version is not None:
        (path / "VERSION").write_text(version)
    before = everything(path)
    done = run("dev", "--port", "0", "--data-dir", str(path))
    what = "no VERSION file" if version is None else f"has version {version.strip()!r}"
    refused(done, what, "left as it is.\n", "Start the Warren that wrote it")
    assert everything(path) == before


def of_tomorrow(path: Path) -> None:
    """Turn a segment or a checkpoint into one of a later version that is sound in itself."""
    data = bytearray(path.read_bytes())
    data[8:12] = (99).to_bytes(4, "little")
    if path.suffix == ".wal":
        data[28:32] = checksum(bytes(data[:28])).to_bytes(4, "little")
    else:
        crc = checksum(bytes(data[16:]), checksum(bytes(data[8:12])))
        data[12:16] = crc.to_bytes(4, "little")
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["wal", "checkpoint"])
def test_a_log_of_an_unknown_version_is_left_untouched(
    start: Start, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "data"
    arguments = ("serve", "--config", config(tmp_path), "--data-dir", str(path))
    if kind == "checkpoint":
        assert start(*arguments).stop()[0] == 0
    else:
        start(*arguments).stop(signal.SIGKILL)
    of_tomorrow(max((path / "log").glob(f"*.{kind}")))
    before = all_but_lock(path)
    for _ in range(2):
        done = run(*arguments)
        assert done.returncode == 1
        assert "format version 99; this Warren knows" in done.stderr
        assert "It is left as it is" in done.stderr
        assert "Traceback" not in done.stderr
        assert all_but_lock(path) == before


def test_files_of_another_user(start: Start, tmp_path: Path) -> None:
    """A log that may not be read is no damage: refused, with the name of the file, untouched."""
    path = tmp_path / "data"
    arguments = ("serve", "--config", config(tmp_path), "--data-dir", str(path))
    start(*arguments).stop(signal.SIGKILL)
    for segment in (path / "log").glob("*.wal"):
        segment.chmod(0)
    before = all_but_lock(path)
    drop = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*drop, *WARREN, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 1
    assert f"the log in {path} cannot be read" in done.stderr
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr
    assert all_but_lock(path) == before


def test_a_disk_that_cannot_be_written_to(start: Start, tmp_path: Path) -> None:
    """Mounted for reading only: told so, whatever is there."""
    path = tmp_path / "data"
    arguments = ("serve", "--config", config(tmp_path), "--data-dir", str(path))
    assert start(*arguments).stop()[0] == 0
    script = f"mount --bind {path} {path} && mount -o remount,ro,bind {path} && exec "
    script += " ".join([*WARREN, *arguments])
    try:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare command")
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"mounting is not permitted: {done.stderr.strip()}")
    refused(done, f"the data directory {path} cannot be used: Read-only file system.\n")
