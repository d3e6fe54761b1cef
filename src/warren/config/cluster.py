"""What follows from the cluster's settings together: what does not fit, and where links are."""

from __future__ import annotations

from collections.abc import Iterator

from warren.config.settings import AMQP_PORT, ClusterSettings, Endpoint, Settings
from warren.config.values import PORT_MAX, is_node_name

#: The link's port is the AMQP port and this, as is the port between RabbitMQ's nodes.
LINK_PORT_OFFSET = 20_000
LOOPBACK = "127.0.0.1"


def cluster_problems(cluster: ClusterSettings) -> list[str]:
    """Settings that contradict each other, one line each."""
    return list(_problems(cluster))


def _problems(cluster: ClusterSettings) -> Iterator[str]:
    handling = "cluster_partition_handling"
    if cluster.partition_handling == "pause_if_all_down" and not cluster.pause_nodes:
        yield (
            f"{handling} = pause_if_all_down needs the nodes that others follow: "
            f"{handling}.pause_if_all_down.nodes.1 = rabbit@host1"
        )
    for name in cluster.links:
        if not is_node_name(name):
            yield (
                f"cluster.nodes.{name}: '{name}' is not a node's name such as rabbit@host1 "
                r"(a dot inside a name is written \.)"
            )
    twice = sorted({name for name in cluster.peers if cluster.peers.count(name) > 1})
    for name in twice:
        yield f"cluster_formation.classic_config.nodes names {name} more than once"
    tls = cluster.tls
    files = {"cacertfile": tls.cacertfile, "certfile": tls.certfile, "keyfile": tls.keyfile}
    missing = [name for name, value in files.items() if not value]
    if missing and len(missing) < len(files):
        yield f"cluster.tls needs all of its files: cluster.tls.{missing[0]} is not set"


def cluster_warnings(cluster: ClusterSettings) -> list[str]:
    """What will be done otherwise than in RabbitMQ, one sentence each."""
    found = []
    if cluster.node_type == "ram":
        found.append(
            "cluster_formation.node_type = ram: every node keeps its definitions on disk; "
            "the node is a disc node"
        )
    return found


def heals(cluster: ClusterSettings) -> bool:
    """Whether queues whose master is on the other side are served, and merged afterwards."""
    if cluster.partition_handling == "pause_if_all_down":
        return cluster.pause_recover == "autoheal"
    return cluster.partition_handling == "autoheal"


def waits_for_homes(cluster: ClusterSettings) -> bool:
    """Whether publishes for homes that are out of reach wait until these are back."""
    return cluster.partition_handling == "ignore" or heals(cluster)


def goes_on_without_majority(cluster: ClusterSettings) -> bool:
    """Whether clients stay when the majority is lost, whoever can be reached."""
    return cluster.partition_handling in {"ignore", "autoheal"}


def link_endpoint(settings: Settings) -> Endpoint:
    """Where this node listens for the others. Raises ValueError, saying what to set.

    A port 0 takes a free one; that is so where the AMQP port is 0 too.
    """
    cluster = settings.cluster
    if cluster.listen is not None:
        return cluster.listen
    if cluster.port is not None:
        return Endpoint(LOOPBACK, cluster.port)
    endpoints = [*settings.listeners.tcp, *settings.listeners.ssl]
    amqp_port = endpoints[0].port if endpoints else AMQP_PORT
    port = amqp_port + LINK_PORT_OFFSET if amqp_port else 0
    if port > PORT_MAX:
        raise ValueError(
            f"the port for other nodes would be {amqp_port} + {LINK_PORT_OFFSET}, which is none: "
            "name one with cluster.listen = address:port"
        )
    return Endpoint(LOOPBACK, port)


def peer_endpoint(settings: Settings, name: str) -> Endpoint:
    """Where another node is: as `cluster.nodes` says, else its name's host and our own port."""
    given = settings.cluster.links.get(name)
    if given is not None:
        return given
    return Endpoint(name.partition("@")[2], link_endpoint(settings).port)
