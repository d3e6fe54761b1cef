"""What a node starts with: default users, operator policies, limits, definitions, checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warren.auth.directory import DirectoryError
from warren.config import ConfigError, load_settings
from warren.node.errors import StartError
from warren.node.node import Node


def make(tmp_path: Path, text: str = "") -> Node:
    path = tmp_path / "rabbitmq.conf"
    path.write_text(text)
    return Node(load_settings(path, {}))


def test_plain(tmp_path: Path) -> None:
    node = make(tmp_path)
    assert [user.name for user in node.directory.list_users()] == ["guest"]
    assert list(node.engine.vhosts) == ["/"]
    assert node.directory.user("guest").tags == ("administrator",)
    assert node.directory.permission("guest", "/") is not None


def test_default_user_and_vhost(tmp_path: Path) -> None:
    node = make(
        tmp_path,
        "default_user = root\ndefault_pass = secret\ndefault_vhost = main\n"
        "default_user_tags.management = true\ndefault_permissions.write = ^a$\n",
    )
    assert node.directory.authenticate("root", "secret", False).tags == ("management",)
    held = node.directory.permission("root", "main")
    assert held is not None
    assert (held.configure, held.write) == (".*", "^a$")


def test_default_users(tmp_path: Path) -> None:
    node = make(
        tmp_path,
        "default_users.qa.password = pw\ndefault_users.qa.tags = monitoring, policymaker\n"
        "default_users.qa.vhost_pattern = ^qa\ndefault_users.qa.read = ^only$\n"
        "default_users.nobody.vhost_pattern = ^qa\n",
    )
    assert not node.directory.has_user("qa")
    node.engine.add_vhost("qa-1")
    node.engine.add_vhost("qa-2")
    assert node.directory.authenticate("qa", "pw", False).tags == ("monitoring", "policymaker")
    assert [held.vhost for held in node.directory.list_permissions("qa")] == ["qa-1", "qa-2"]
    assert node.directory.list_permissions("qa")[0].read == "^only$"
    assert node.directory.has_user("nobody")


def test_default_limits(tmp_path: Path) -> None:
    node = make(
        tmp_path,
        "default_limits.vhosts.1.pattern = ^dev\ndefault_limits.vhosts.1.max_queues = 5\n"
        "default_limits.vhosts.2.max_connections = 7\n",
    )
    node.engine.add_vhost("dev-a")
    assert node.directory.vhost_limits("dev-a") == {"max-queues": 5}
    assert node.directory.vhost_limits("/") == {"max-connections": 7}


def test_default_operator_policies(tmp_path: Path) -> None:
    node = make(
        tmp_path,
        "default_policies.operator.short.vhost_pattern = ^dev\n"
        "default_policies.operator.short.queue_pattern = ^tmp\n"
        "default_policies.operator.short.expires = 1h30m\n"
        "default_policies.operator.short.max_length_bytes = 1MiB\n"
        "default_policies.operator.ha.classic_queues.ha_mode = exactly\n"
        "default_policies.operator.ha.classic_queues.ha_params = 2\n",
    )
    vhost = node.engine.add_vhost("dev")
    short = vhost.operator_policies["short"]
    assert (short.pattern, short.apply_to) == ("^tmp", "queues")
    assert short.definition == {"expires": 5_400_000, "max-length-bytes": 1_048_576}
    assert vhost.operator_policies["ha"].definition == {"ha-mode": "exactly", "ha-params": 2}
    assert list(node.engine.vhost("/").operator_policies) == ["ha"]


def test_an_operator_policy_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="configured defaults cannot be used"):
        make(tmp_path, "default_policies.operator.p.classic_queues.ha_params = 2\n")


@pytest.mark.parametrize(
    ("text", "weak", "strong", "told"),
    [
        (
            "credential_validator.validation_backend = min_password_length\n"
            "credential_validator.min_length = 5\n",
            "1234",
            "12345",
            "minimum required password length: 5",
        ),
        (
            "credential_validator.validation_backend = password_regexp\n"
            "credential_validator.regexp = ^[a-z]{4}\n",
            "ab12",
            "guest",
            "does not match",
        ),
    ],
)
def test_credential_validator(tmp_path: Path, text: str, weak: str, strong: str, told: str) -> None:
    node = make(tmp_path, text)
    with pytest.raises(DirectoryError, match=told):
        node.directory.add_user("u", weak)
    node.directory.add_user("u", strong)
    with pytest.raises(StartError, match=told):
        make(tmp_path, f"{text}default_pass = {weak}\n")


@pytest.mark.parametrize(
    "key", ["load_definitions", "management.load_definitions", "definitions.local.path"]
)
def test_definitions_at_start(tmp_path: Path, key: str) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(
        json.dumps({"users": [{"name": "ann", "password": "x"}], "vhosts": [{"name": "v"}]})
    )
    node = make(tmp_path, f"{key} = {file}\n")
    # As in RabbitMQ, the defaults are for a broker that is told nothing else.
    assert [user.name for user in node.directory.list_users()] == ["ann"]
    assert list(node.engine.vhosts) == ["v"]
    assert node.settings.without_effect == ()


def test_bad_definitions_at_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"nowhere\.json: cannot be read"):
        make(tmp_path, f"load_definitions = {tmp_path}/nowhere.json\n")


def test_vhost_max(tmp_path: Path) -> None:
    node = make(tmp_path, "vhost_max = 2\n")
    node.engine.add_vhost("a")
    node.engine.add_vhost("a")
    with pytest.raises(DirectoryError, match="cannot create vhost 'b': vhost limit of 2"):
        node.engine.add_vhost("b")


@pytest.mark.parametrize("value", ["", "1x", "h", "1h 5m", "-1"])
def test_durations_that_are_none(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="expected a duration such as 90s"):
        make(tmp_path, f"default_policies.operator.p.expires = {value}\n")


def test_patterns_are_checked(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"conf:1: default_permissions\.read = '\(': expected a reg"
    ):
        make(tmp_path, "default_permissions.read = (\n")
