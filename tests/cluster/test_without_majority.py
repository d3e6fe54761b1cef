"""Changes that a node cannot agree on with others: whoever asks is told, within a bounded time."""

from __future__ import annotations

import time

import pika
import pytest
from cluster_clients import NODES, Clients, counts, eventually, publish

from warren.testing import Cluster
from warren.testing.cluster import CtlFailed

#: After so long without a majority a change is given up, and a bit.
GIVEN_UP_S = 20.0
AT_MOST_S = GIVEN_UP_S + 15.0


@pytest.mark.timeout(240)
def test_changes_are_given_up() -> None:
    config = {"cluster_partition_handling": "ignore"}
    with Cluster(3, config=config) as cluster, Clients(cluster) as clients:
        channel = clients.confirming(1)
        channel.queue_declare("before", durable=True)
        for node in (2, 3):
            cluster.kill(node)
        declaring = clients.channel(1)
        began_s = time.monotonic()
        text = "no majority of the cluster's nodes can be reached"
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=text) as closed:
            declaring.queue_declare("never", durable=True)
        assert closed.value.reply_code == 541
        assert GIVEN_UP_S - 1 < time.monotonic() - began_s < AT_MOST_S
        # What needs no agreement goes on meanwhile: that is what was asked for.
        publish(channel, "before", [b"x"])
        assert counts(channel, "before")[0] == 1
        began_s = time.monotonic()
        with pytest.raises(CtlFailed, match=text) as failed:
            cluster.ctl(1, "add_user", "never", "secret")
        assert failed.value.status == 69
        # What cannot be done now says where to look.
        for command in (["drain"], ["rebalance", "--dry-run"]):
            with pytest.raises(CtlFailed, match="warrenctl cluster_status"):
                cluster.ctl(1, *command)
        assert time.monotonic() - began_s < AT_MOST_S
        # What was given up before it went to anybody is not done later.
        cluster.start_all()
        cluster.wait_until_ready()
        eventually(lambda: "before" in cluster.ctl(2, "list_queues"))
        for node in NODES:
            assert "never" not in cluster.ctl(node, "list_queues")
            assert "never" not in cluster.ctl(node, "list_users")


@pytest.mark.timeout(240)
def test_a_paused_minority_still_answers_its_operator() -> None:
    """Its clients are sent away, which ends what they wait for; the API goes on."""
    with Cluster(3) as cluster, Clients(cluster) as clients:
        channel = clients.channel(1)
        cluster.ctl(1, "set_policy", "ha", "^m$", '{"ha-mode": "all"}')
        cluster.ctl(1, "pub", "m", "hello")
        for node in (2, 3):
            cluster.kill(node)
        began_s = time.monotonic()
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            channel.queue_declare("never", durable=True)
        assert time.monotonic() - began_s < AT_MOST_S
        with pytest.raises(CtlFailed, match="no majority of the cluster's nodes") as failed:
            cluster.ctl(1, "add_vhost", "never")
        assert failed.value.status == 69
        assert "m\t1" in cluster.ctl(1, "list_queues")
        # Who publishes or takes over HTTP is a client, too: refused, and not kept waiting.
        began_s = time.monotonic()
        for words in (("get", "m"), ("pub", "m", "more")):
            with pytest.raises(CtlFailed, match="lets no clients in at present") as failed:
                cluster.ctl(1, *words)
            assert failed.value.status == 69
        assert time.monotonic() - began_s < GIVEN_UP_S
