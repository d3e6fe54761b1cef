"""Which directory is a node's, by flag, environment, file and user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from warren.config import ConfigError, load_settings
from warren.node.data_directory import resolve_data_dir
from warren.node.errors import StartError

NAME = "warren@here"


def resolved(env: Mapping[str, str]) -> str:
    return str(resolve_data_dir(load_settings(None, env), NAME, env))


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody but root, with a home of their own."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/users/ann")


def test_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert resolved({"XDG_DATA_HOME": "/xdg"}) == f"/var/lib/warren/{NAME}"


@pytest.mark.usefixtures("user")
def test_others() -> None:
    assert resolved({}) == f"/users/ann/.local/share/warren/{NAME}"
    assert resolved({"XDG_DATA_HOME": "/xdg"}) == f"/xdg/warren/{NAME}"
    assert resolved({"XDG_DATA_HOME": "xdg"}) == f"/users/ann/.local/share/warren/{NAME}"


@pytest.mark.usefixtures("user")
def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(StartError, match=r"no home directory\.\nChoose one: --data-dir"):
        resolved({})


def test_who_goes_before_whom(tmp_path: Path) -> None:
    file = tmp_path / "rabbitmq.conf"
    file.write_text("data_dir = /file\n")

    def found(env: Mapping[str, str], flags: Mapping[str, object] | None = None) -> str:
        return str(resolve_data_dir(load_settings(file, env, flags), NAME))

    assert found({}) == "/file"
    assert found({"RABBITMQ_MNESIA_BASE": "/base"}) == f"/base/{NAME}"
    assert found({"RABBITMQ_MNESIA_DIR": "/dir", "RABBITMQ_MNESIA_BASE": "/base"}) == "/dir"
    env = {"WARREN_DATA_DIR": "/env", "RABBITMQ_MNESIA_DIR": "/dir"}
    assert found(env) == "/env"
    assert found(env, {"data_dir": "/flag"}) == "/flag"
    assert load_settings(file, {}).without_effect == ()


def test_a_relative_path_is_below_the_present_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved({"WARREN_DATA_DIR": "data"}) == f"{tmp_path}/data"
    assert resolved({"RABBITMQ_MNESIA_BASE": "base"}) == f"{tmp_path}/base/{NAME}"


@pytest.mark.parametrize("name", ["a/b", "..", ".", "", "/etc"])
def test_names_that_lead_elsewhere(name: str) -> None:
    settings = load_settings(None, {"WARREN_MNESIA_BASE": "/base"})
    with pytest.raises(StartError, match="cannot name a directory"):
        resolve_data_dir(settings, name)
    assert resolve_data_dir(load_settings(None, {}, {"data_dir": "/d"}), name) == Path("/d")


def test_an_empty_path_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rabbitmq.conf"
    file.write_text("data_dir =\n")
    with pytest.raises(ConfigError, match=r":1: data_dir = '': expected a directory"):
        load_settings(file, {})
