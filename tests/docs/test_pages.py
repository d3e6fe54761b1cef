"""What the pages say is so: code runs, commands work, links lead somewhere, keys exist."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from warren.config import load_settings
from warren.config.schema import KEYS_WITHOUT_EFFECT, SCHEMA, find_key
from warren.testing import Broker

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/testing.md"]
ALL_PAGES = [
    "README.md",
    "CHANGELOG.md",
    *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md"))),
]
BIN = Path(sys.executable).parent
WAIT_S = 100
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A piece of code on a page."""

    page: str
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file it stands for, named in its first line."""
        found = re.match(r"# (\S+\.py)\n", self.text)
        return found.group(1) if found else None


def blocks(page: str, language: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [Block(page, *found) for found in _BLOCK.findall(text) if found[0] == language]


def named(page: str, file: str) -> Block:
    return next(block for block in blocks(page, "python") if block.file == file)


def commands() -> list[str]:
    """Every command of the README, without its comment."""
    return [
        line[2:].partition("  #")[0].strip()
        for block in blocks("README.md", "console")
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "block",
    [b for page in PAGES for b in blocks(page, "python") if (b.file or "").startswith("test_")],
    ids=lambda block: block.file,
)
def test_tests_on_the_pages_pass(block: Block, tmp_path: Path) -> None:
    (tmp_path / str(block.file)).write_text(block.text)
    shown = run(
        tmp_path, "python", "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"
    )
    assert "1 passed" in shown


@pytest.mark.parametrize(
    "block", [b for page in PAGES for b in blocks(page, "python") if b.file is None]
)
def test_scripts_on_the_pages_run(block: Block, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(block.text)
    run(tmp_path, "python", "script.py")


def test_celery_as_the_readme_says(tmp_path: Path) -> None:
    worker_command, call_command = (line for line in commands() if "tasks" in line)
    with Broker() as broker:
        text = named("README.md", "tasks.py").text
        assert "127.0.0.1:5672" in text
        (tmp_path / "tasks.py").write_text(text.replace("5672", str(broker.port)))
        worker = subprocess.Popen(
            [*shlex.split(worker_command), "--concurrency", "1"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        try:
            script = call_command.replace("timeout=10", f"timeout={WAIT_S}")
            assert run(tmp_path, "bash", "-c", script) == "5\n"
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(WAIT_S)


def test_a_first_message(tmp_path: Path) -> None:
    (line,) = (line for line in commands() if "hello.py" in line)
    block = next(b for b in blocks("README.md", "console") if line in b.text)
    text = named("README.md", "hello.py").text
    assert "127.0.0.1:5672" in text
    with Broker() as broker:
        (tmp_path / "hello.py").write_text(text.replace("5672", str(broker.port)))
        shown = run(tmp_path, *shlex.split(line))
    assert f"$ {line}\n{shown}" in block.text


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = [line.split()[1] for line in commands() if line.startswith("make ")]
    assert targets == ["run", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_warren_commands_on_the_pages_work(tmp_path: Path) -> None:
    found = [shlex.split(line) for line in commands() if line.startswith("warren ")]
    # Those of a try-out cluster are the first of the page on clustering, where they are run.
    clustering = (ROOT / "docs" / "operations" / "clustering.md").read_text()
    for words in [words for words in found if words[1] == "cluster"]:
        assert f"$ {shlex.join(words)}" in clustering
        found.remove(words)
    assert [words[1] for words in found] == ["dev", "serve"]
    operating = "".join(
        f"{part}.tcp.ip = 127.0.0.1\n{part}.tcp.port = 0\n" for part in ("management", "prometheus")
    )
    (example,) = blocks("README.md", "ini")
    assert "listeners.tcp.default = 5672\n" in example.text
    conf = example.text.replace("= 5672\n", "= 127.0.0.1:0\n") + operating
    (tmp_path / "rabbitmq.conf").write_text(conf)
    for words in found:
        free = ["--port", "0", "--http-port", "0", "--metrics-port", "0"]
        more = free if words[1] == "dev" else []
        process = subprocess.Popen(
            [*words, *more],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment(), "WARREN_DATA_DIR": str(tmp_path / "data")},
        )
        try:
            assert process.stdout is not None
            assert re.match(r"warren \S+  ready in \d+\.\d\d s", process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WAIT_S)
        assert process.returncode == 0


def test_warrenctl_as_the_readme_says(tmp_path: Path) -> None:
    with Broker(http=True) as broker:
        url = broker.http_url.replace("//", "//guest:guest@")
        shown = [
            run(tmp_path, *shlex.split(line), "--url", url)
            for line in commands()
            # Those for a cluster are run with it, as the page on clustering has it.
            if line.startswith("warrenctl ") and "ha" not in line
        ]
    assert shown == ["", "name\tmessages\norders\t1\n", '{"id": 1}\n']


def test_the_readme_shows_no_other_command() -> None:
    known = ("make ", "warren ", "warrenctl ", "celery ", "python ", "pip install .")
    assert [line for line in commands() if not line.startswith(known)] == []


def test_configuration_examples_are_accepted(tmp_path: Path) -> None:
    (example,) = blocks("README.md", "ini")
    (tmp_path / "rabbitmq.conf").write_text(example.text)
    assert load_settings(tmp_path / "rabbitmq.conf", {}).without_effect == ()


#: Of each row of the README's table of numbers, what a row of the benchmarks begins with.
NUMBERS = {
    "200 B, manual ack, prefetch 1000": "200 B, manual ack, prefetch 1000",
    "200 B persistent, manual ack, confirms": "200 B persistent, manual ack, confirms, window 1000",
    "the same at 5,000 msg/s": "200 B persistent, manual ack, confirms, at 5,000 msg/s",
    "restart with 1,000,000 messages": "restart with 1,000,000 persistent messages of 200 B",
    "mirrored on three nodes": "mirrored, 200 B persistent, confirms, window 1000",
    "mirrored, at 1,000 msg/s": "mirrored, 200 B persistent, manual ack, confirms, at 1,000 msg/s",
    "mirrored, its master killed": "mirrored, the master's node is killed",
}


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = (ROOT / page).read_text().splitlines()
    return [[cell.strip() for cell in x.strip("|").split("|")] for x in lines if x.startswith("|")]


def test_numbers_are_those_of_the_benchmarks() -> None:
    shown = {row[0]: row[1:] for row in rows("README.md") if len(row) == 3}
    measured = rows("docs/benchmarks.md")
    for begins, load in NUMBERS.items():
        (numbers,) = (cells for label, cells in shown.items() if label.startswith(begins))
        known = {cell for row in measured if row[0] == load for cell in row[1:]}
        assert set(numbers) <= known, f"{begins}: {numbers}"
    assert len(shown) == len(NUMBERS) + 2  # The heads and the line below them.


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        if not target.startswith(("http:", "https:")):
            assert ((ROOT / page).parent / target).exists(), target


def documented_keys(section: str) -> list[str]:
    """The keys in the first column of a section's table."""
    text = (ROOT / "docs/configuration.md").read_text()
    part = text.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    keys: list[str] = []
    for line in part.splitlines():
        if not line.startswith("| `"):
            continue
        column = re.findall(r"`([^`]+)`", line.split(" | ")[0])
        for key in column:
            # `.x` continues the key before it: a.b.c, .d is a.b.d.
            full = f"{keys[-1].rpartition('.')[0]}{key}" if key.startswith(".") else key
            keys.append(full)
    return keys


@pytest.mark.parametrize("section", ["Keys that act", "Keys that are accepted and do nothing yet"])
def test_documented_keys_exist(section: str) -> None:
    names = [key.name for key in SCHEMA]
    for key in documented_keys(section):
        start = key.removesuffix(".*")
        known = find_key(key.replace("*", "x").split(".")) is not None
        assert known or any(name.startswith(f"{start}.") for name in names), key


def test_every_key_is_documented() -> None:
    acting = documented_keys("Keys that act")
    idle = documented_keys("Keys that are accepted and do nothing yet")
    for start in KEYS_WITHOUT_EFFECT:
        if start.startswith("log.") and start != "log.file.rotation.date":
            continue
        beginnings = [key.removesuffix(".*") for key in idle]
        assert any(f"{start}.".startswith(f"{key}.") for key in beginnings), start
    for key in SCHEMA:
        sample = key.name.replace("*", "x")
        if any(f"{sample}.".startswith(f"{start}.") for start in KEYS_WITHOUT_EFFECT):
            continue
        if key.name.startswith("default_policies.operator.") or key.name in {
            "listeners.tcp",
            "listeners.ssl",
            "loopback_users",
            "definitions.local.path",
            "definitions.import_backend",
        }:
            continue
        assert key.name in acting, key.name
