"""The data directory: made once, used by one process, refused when unknown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warren.store.directory import DataDirectory, DataDirectoryError


def tree(path: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(p.relative_to(path)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else None)
        for p in [path, *path.rglob("*")]
    }


def test_it_is_made_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "above" / "data"
    mask = os.umask(0o077)
    try:
        with DataDirectory(str(path)) as directory:
            assert directory.log_path == str(path / "log")
            assert (path / "LOCK").read_text() == f"{os.getpid()}\n"
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o750
    assert (path / "log").stat().st_mode & 0o777 == 0o750
    assert (path / "VERSION").read_text() == "1\n"
    assert sorted(os.listdir(path)) == ["LOCK", "VERSION", "log"]
    with DataDirectory(str(path)):
        pass


def test_a_second_process_is_told_who_has_it(tmp_path: Path) -> None:
    script = (
        "import sys; from warren.store.directory import DataDirectory;"
        "DataDirectory(sys.argv[1]).close(); print('had it')"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with DataDirectory(str(tmp_path)):
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode != 0
        assert f"{tmp_path} is in use by process {os.getpid()}" in second.stderr
        assert (tmp_path / "LOCK").read_text() == f"{os.getpid()}\n"
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.stdout == "had it\n"


def test_a_holder_that_cannot_be_read(tmp_path: Path) -> None:
    with DataDirectory(str(tmp_path)):
        (tmp_path / "LOCK").write_text("")
        with pytest.raises(DataDirectoryError, match="in use by another process"):
            DataDirectory(str(tmp_path))


@pytest.mark.parametrize("version", ["2\n", "", "one\n", "9" * 100])
def test_an_unknown_version_is_left_as_it_is(tmp_path: Path, version: str) -> None:
    (tmp_path / "VERSION").write_text(version)
    (tmp_path / "log").mkdir()
    before = tree(tmp_path)
    with pytest.raises(DataDirectoryError, match="left as it is"):
        DataDirectory(str(tmp_path))
    assert tree(tmp_path) == before


def test_a_log_without_a_version_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "0000000000000001.wal").write_bytes(b"?")
    before = tree(tmp_path)
    with pytest.raises(DataDirectoryError, match="no VERSION file"):
        DataDirectory(str(tmp_path))
    assert tree(tmp_path) == before


def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataDirectoryError, match="cannot be used"):
        DataDirectory(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "x"
