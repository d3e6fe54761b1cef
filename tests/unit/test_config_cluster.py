"""The cluster's settings: what is read, what does not fit, where links are, who has the secret."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from warren.config import ConfigError, Endpoint, Settings, load_settings
from warren.config.cluster import (
    goes_on_without_majority,
    heals,
    link_endpoint,
    peer_endpoint,
    waits_for_homes,
)
from warren.config.settings import ClusterSettings
from warren.node.errors import StartError
from warren.node.secret import SECRET_BYTES_MAX, cluster_secret


def load(**keys: object) -> Settings:
    return load_settings(None, {}, {name.replace("__", "."): keys[name] for name in keys})


def given(text: str) -> Settings:
    """The settings of lines `key = value`."""
    pairs = (line.partition("=") for line in text.strip().splitlines())
    return load_settings(None, {}, {key.strip(): value.strip() for key, _, value in pairs})


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        given(text)
    return list(caught.value.problems)


def test_a_cluster_of_three() -> None:
    settings = given(
        """
        cluster_name = shop
        cluster_formation.peer_discovery_backend = rabbit_peer_discovery_classic_config
        cluster_formation.classic_config.nodes.10 = rabbit@c
        cluster_formation.classic_config.nodes.2 = rabbit@b
        cluster_formation.classic_config.nodes.1 = rabbit@a.example.com
        cluster_formation.node_type = disk
        cluster_partition_handling = stop_processing
        queue_master_locator = min-masters
        cluster_keepalive_interval = 5000
        net_ticktime = 30
        cluster.listen = 0.0.0.0:25700
        cluster.nodes.rabbit@b = 10.0.0.2:25672
        cluster.nodes.rabbit@a\\.example\\.com = [fd00::1]:25672
        cluster.secret_file = /etc/warren/cookie
        cluster.tls.cacertfile = ca.pem
        cluster.tls.certfile = cert.pem
        cluster.tls.keyfile = key.pem
        """
    )
    cluster = settings.cluster
    assert cluster.name == "shop"
    assert cluster.peer_discovery == "classic_config"
    assert cluster.peers == ("rabbit@a.example.com", "rabbit@b", "rabbit@c")
    assert (cluster.node_type, cluster.partition_handling) == ("disc", "pause_minority")
    assert (cluster.queue_master_locator, cluster.net_tick_s) == ("min-masters", 30)
    assert cluster.secret_file == "/etc/warren/cookie"
    assert cluster.tls.is_on
    assert link_endpoint(settings) == Endpoint("0.0.0.0", 25700)
    assert peer_endpoint(settings, "rabbit@b") == Endpoint("10.0.0.2", 25672)
    assert peer_endpoint(settings, "rabbit@a.example.com") == Endpoint("fd00::1", 25672)
    # Nodes of one cluster mostly have the same port.
    assert peer_endpoint(settings, "rabbit@c") == Endpoint("c", 25700)
    assert settings.warnings == ()


def test_defaults() -> None:
    settings = Settings()
    assert settings.cluster.partition_handling == "pause_minority"
    assert not settings.cluster.tls.is_on
    assert link_endpoint(settings) == Endpoint("127.0.0.1", 25672)
    assert link_endpoint(load(listeners__tcp__1="127.0.0.1:0")) == Endpoint("127.0.0.1", 0)
    assert link_endpoint(load(listeners__tcp="none")) == Endpoint("127.0.0.1", 25672)
    from_environment = load_settings(None, {"RABBITMQ_DIST_PORT": "4000"})
    assert link_endpoint(from_environment) == Endpoint("127.0.0.1", 4000)
    with pytest.raises(ValueError, match=r"50000 \+ 20000.*cluster\.listen"):
        link_endpoint(load(listeners__tcp__1="50000"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cluster_partition_handling = heal", "stop_processing"),
        ("cluster_formation.classic_config.nodes.1 = host1", "a node's name such as rabbit@host1"),
        ("cluster_formation.classic_config.nodes.1 = a/b@c", "a node's name"),
        (f"cluster_formation.classic_config.nodes.1 = {'a' * 255}@c", "a node's name"),
        ("cluster_formation.peer_discovery_backend = dns", "expected one of classic_config"),
        ("cluster_formation.node_type = tape", "expected one of disc, ram, disk"),
        ("cluster.nodes.rabbit@a = 25672", "expected address:port"),
        ("cluster.nodes.rabbit@a = a:0", "expected address:port"),
        ("cluster.nodes.here = a:25672", "'here' is not a node's name"),
        ("cluster.secret_file = ", "expected the path of a file"),
        ("cluster.tls.certfile = c.pem", "cluster.tls.cacertfile is not set"),
        ("cluster_partition_handling = pause_if_all_down", "nodes.1 = rabbit@host1"),
        ("queue_master_locator = best", "client-local, min-masters, random"),
        ("cluster.lisen = 1", "did you mean 'cluster.listen'?"),
    ],
)
def test_wrong_values(line: str, expected: str) -> None:
    (problem,) = problems(line)
    assert expected in problem


def test_a_node_named_twice() -> None:
    nodes = "cluster_formation.classic_config.nodes"
    assert problems(f"{nodes}.1 = r@a\n{nodes}.2 = r@a") == [f"{nodes} names r@a more than once"]


def test_what_is_done_otherwise_is_said() -> None:
    settings = load(cluster_partition_handling="autoheal", cluster_formation__node_type="ram")
    assert goes_on_without_majority(settings.cluster)
    assert ["the node is a disc node" in settings.warnings[0], len(settings.warnings)] == [True, 1]
    handling = "cluster_partition_handling"
    settings = given(
        f"{handling} = pause_if_all_down\n{handling}.pause_if_all_down.nodes.1 = r@a\n"
        f"{handling}.pause_if_all_down.recover = autoheal"
    )
    assert settings.warnings == ()
    assert heals(settings.cluster)
    assert waits_for_homes(settings.cluster)
    assert not goes_on_without_majority(settings.cluster)


@pytest.mark.parametrize(
    ("handling", "does_heal", "does_wait"),
    [
        ("pause_minority", False, False),
        ("ignore", False, True),
        ("autoheal", True, True),
    ],
)
def test_what_follows_from_the_handling_of_partitions(
    handling: str, does_heal: bool, does_wait: bool
) -> None:
    cluster = load(cluster_partition_handling=handling).cluster
    assert (heals(cluster), waits_for_homes(cluster)) == (does_heal, does_wait)


# -- the secret ------------------------------------------------------------------------------------


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    first = cluster_secret(ClusterSettings(), tmp_path)
    assert len(first) >= 32
    assert cluster_secret(ClusterSettings(), tmp_path) == first
    assert stat.S_IMODE((tmp_path / "cookie").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["cookie"]


def test_nodes_that_start_at_once_share_one(tmp_path: Path) -> None:
    shared = ClusterSettings(secret_file=str(tmp_path / "deep" / "cookie"))
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(cluster_secret(shared, None)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (8, 1)


def test_the_environment_goes_first(tmp_path: Path) -> None:
    for prefix in ("WARREN", "RABBITMQ"):
        settings = load_settings(None, {f"{prefix}_ERLANG_COOKIE": "monster"})
        assert cluster_secret(settings.cluster, tmp_path) == b"monster"
        assert "monster" not in repr(settings)
    assert not (tmp_path / "cookie").exists()
    assert len(cluster_secret(ClusterSettings(), None)) >= 32


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "cookie"
    path.write_text("sesame")
    path.chmod(mode)
    with pytest.raises(StartError, match=rf"mode {mode:04o}.*\n.*chmod 600") as caught:
        cluster_secret(ClusterSettings(), tmp_path)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " \n", "x" * (SECRET_BYTES_MAX + 1)])
def test_a_file_that_holds_no_secret(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cookie"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(StartError, match="Copy the file of a node"):
        cluster_secret(ClusterSettings(), tmp_path)


def test_a_place_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = ClusterSettings(secret_file=str(tmp_path / "file" / "cookie"))
    with pytest.raises(StartError, match=r"cluster\.secret_file, or give it in WARREN_ERLANG"):
        cluster_secret(settings, None)
