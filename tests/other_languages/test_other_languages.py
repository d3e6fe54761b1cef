"""Clients in other languages, where they are installed: C, JavaScript, PHP, Ruby.

On Debian: apt-get install amqp-tools php-cli php-amqplib ruby-bunny; npm install amqplib, and
NODE_PATH naming the node_modules it went to.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def need(command: str, probe: list[str]) -> None:
    """Skip unless the command is there and the probe says that its library is."""
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    if subprocess.run([command, *probe], capture_output=True, timeout=100, check=False).returncode:
        pytest.skip(f"the AMQP library for {command} is not installed")


def test_c(amqp_url: str) -> None:
    need("amqp-publish", ["--help"])
    run("amqp-declare-queue", f"--url={amqp_url}", "-q", "c")
    run("amqp-publish", f"--url={amqp_url}", "-r", "c", "-b", "hello")
    assert run("amqp-consume", f"--url={amqp_url}", "-q", "c", "-c", "1", "cat") == "hello"


def test_javascript(amqp_url: str) -> None:
    need("node", ["-e", "require('amqplib')"])
    answer = run("node", str(HERE / "client.js"), amqp_url)
    assert answer == 'hello {"number":1,"list":[1,"two"]}\n404'


def test_php(amqp_url: str) -> None:
    need("php", ["-r", "require_once 'PhpAmqpLib/autoload.php';"])
    assert run("php", str(HERE / "client.php"), amqp_url) == "hello rejected 1"


def test_ruby(amqp_url: str) -> None:
    need("ruby", ["-e", "require 'bunny'"])
    answer = run("ruby", str(HERE / "client.rb"), amqp_url)
    assert answer.replace(" => ", "=>") == 'hello false true {"a"=>1}'
