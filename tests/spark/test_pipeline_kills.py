"""Archive and replay, their drivers and nodes killed: exactly once. More: pipeline_kills.py."""

from __future__ import annotations

from pathlib import Path

from pipeline_kills import Kills

from warren.testing import Cluster


def test_an_archive_whose_driver_and_master_are_killed(tmp_path: Path) -> None:
    with Cluster(3) as cluster:
        kills = Kills(tmp_path, cluster, seed=5, again=0)
        kills.archive(messages=4_000, kills=2, mode="drain")
    assert kills.done == ["driver", "node"]


def test_a_replay_whose_driver_and_node_are_killed(tmp_path: Path) -> None:
    with Cluster(1) as cluster:
        kills = Kills(tmp_path, cluster, seed=6, again=0)
        kills.replay(messages=4_000, kills=2)
    assert kills.done == ["driver", "node"]


def test_a_replay_into_a_mirrored_queue_whose_masters_are_killed(tmp_path: Path) -> None:
    with Cluster(3) as cluster:
        kills = Kills(tmp_path, cluster, seed=7, again=0)
        kills.replay(messages=4_000, kills=2)
    assert kills.done == ["driver", "node"]
