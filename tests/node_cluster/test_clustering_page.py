"""What docs/operations/clustering.md says is so: its commands work, its configurations load."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from free_ports import free_first_port

from warren.config import load_settings
from warren.ctl.main import find
from warren.node.try_out_cli import cluster

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "clustering.md"
BIN = Path(sys.executable).parent
WAIT_S = 100


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def of_the_readme() -> str:
    """Its commands for a cluster."""
    text = (PAGE.parents[2] / "README.md").read_text()
    (found,) = re.findall(r"^```console\n(\$ warren cluster up.*?)^```$", text, re.M | re.S)
    return str(found)


@pytest.mark.parametrize("block", [blocks("console")[0], of_the_readme()], ids=["page", "README"])
def test_the_try_out_works(block: str, tmp_path: Path) -> None:
    """With other ports, which give the nodes other names: the usual ones may be taken here."""
    port = free_first_port(3)
    lines = [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines()]
    assert lines[0] == ["warren", "cluster", "up", "-n", "3"]
    lines[0] += ["--port", str(port)]
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="warren-") as sockets:
        env = {**os.environ, "PATH": path, "WARREN_RUNTIME_DIR": sockets}

        def run(line: list[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                line,
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )

        try:
            for line in lines:
                done = run([word.replace("@", f"-{port}@") for word in line])
                assert done.returncode == 0, (line, done.stdout, done.stderr)
            assert list(tmp_path.iterdir()) == []
        finally:
            run(["warren", "cluster", "down", "--wipe"])


@pytest.mark.parametrize("text", blocks("ini"))
def test_configurations_are_accepted(text: str, tmp_path: Path) -> None:
    (tmp_path / "rabbitmq.conf").write_text(text)
    load_settings(tmp_path / "rabbitmq.conf", {})


def test_every_command_is_there_and_on_the_page() -> None:
    text = PAGE.read_text()
    for name in cluster.commands:
        assert f"| `{name}" in text, name
    for line in re.findall(r"^\$ warrenctl (.*)$", text, re.M):
        words = [word for word in line.split() if not word.startswith("-") and "@" not in word]
        assert find(words[0]) is not None, line
