"""The sample files in packaging/ are ones that systemd, a container builder and Warren can read."""

from __future__ import annotations

import configparser
import json
import shlex
import socket
from pathlib import Path

import click
import pytest

from warren.config.load import load_settings
from warren.ctl.main import find
from warren.node.cli import main
from warren.node.notify import notify

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
INSTRUCTIONS = {
    "FROM",
    "RUN",
    "COPY",
    "ENV",
    "USER",
    "VOLUME",
    "EXPOSE",
    "HEALTHCHECK",
    "STOPSIGNAL",
    "ENTRYPOINT",
    "CMD",
}


def check_serve(words: list[str]) -> None:
    """`warren serve` takes these words."""
    command = main.commands[words[0]]
    command.make_parser(click.Context(command)).parse_args(list(words[1:]))


def test_the_unit() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((PACKAGING / "systemd" / "warren.service").read_text())
    assert set(unit.sections()) == {"Unit", "Service", "Install"}
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert int(service["LimitNOFILE"]) >= 65536
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == "warren"
    check_serve(words)
    # The control socket is where the unit lets it be, and nobody else may enter there.
    assert service["Environment"] == "WARREN_RUNTIME_DIR=/run/warren"
    assert (service["RuntimeDirectory"], service["RuntimeDirectoryMode"]) == ("warren", "0700")


def test_the_container() -> None:
    text = (PACKAGING / "container" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, rest = line.partition(" ")
        assert name in INSTRUCTIONS, line
        found.setdefault(name, []).append(rest.strip())
    assert found["USER"] == ["warren"]
    assert json.loads(found["ENTRYPOINT"][0]) == ["warren"]
    check_serve(json.loads(found["CMD"][0]))
    check = json.loads(found["HEALTHCHECK"][0].partition("CMD ")[2])
    assert check[0] == "warrenctl"
    assert find(check[-1]) is not None
    for copied in found["COPY"]:
        source = copied.split()[0]
        assert source.startswith("--from") or (ROOT / source).exists(), copied
    assert found["EXPOSE"] == ["5672 15672 15692 25672"]


def test_the_configuration() -> None:
    settings = load_settings(PACKAGING / "rabbitmq.conf", {})
    assert settings.disk.free_limit_bytes == 2_000_000_000
    assert settings.without_effect == ()


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        path = f"@{tmp_path}" if is_abstract else str(tmp_path / "notify")
        heard.bind(f"\0{path[1:]}" if is_abstract else path)
        heard.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify("READY=1")
        assert heard.recv(100) == b"READY=1"
    # Nobody listens any more: that is no reason to fail.
    notify("STOPPING=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")
