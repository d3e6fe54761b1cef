"""Nothing that tools and scripts use of RabbitMQ is missing: routes and commands, by name."""

from __future__ import annotations

import re

import pytest

from warren.ctl.main import find
from warren.management.server import ROUTES

#: The routes of the API of 3.13 that a tool is known to call or that people expect.
RABBITMQ_ROUTES = """
GET /overview
GET PUT /cluster-name
GET /nodes
GET /nodes/{}
GET /nodes/{}/memory
GET /nodes/{}/memory/relative
GET /extensions
GET POST /definitions
GET POST /definitions/{}
GET POST /all-configuration
GET /connections
GET /vhosts/{}/connections
GET DELETE /connections/{}
GET DELETE /connections/username/{}
GET /connections/{}/channels
GET /channels
GET /channels/{}
GET /vhosts/{}/channels
GET /consumers
GET /consumers/{}
GET /exchanges
GET /exchanges/{}
GET PUT DELETE /exchanges/{}/{}
GET /exchanges/{}/{}/bindings/source
GET /exchanges/{}/{}/bindings/destination
POST /exchanges/{}/{}/publish
GET /queues
GET /queues/detailed
GET /queues/{}
GET PUT DELETE /queues/{}/{}
GET /queues/{}/{}/bindings
DELETE /queues/{}/{}/contents
POST /queues/{}/{}/get
POST /queues/{}/{}/actions
GET /bindings
GET /bindings/{}
GET POST /bindings/{}/e/{}/{}/{}
GET DELETE /bindings/{}/e/{}/{}/{}/{}
GET /vhosts
GET PUT DELETE /vhosts/{}
GET /vhosts/{}/permissions
GET /vhosts/{}/topic-permissions
POST /vhosts/{}/start/{}
GET /users
GET /users/without-permissions
POST /users/bulk-delete
GET PUT DELETE /users/{}
GET /users/{}/permissions
GET /users/{}/topic-permissions
GET /permissions
GET PUT DELETE /permissions/{}/{}
GET /topic-permissions
GET PUT DELETE /topic-permissions/{}/{}
GET /vhost-limits
GET /vhost-limits/{}
PUT DELETE /vhost-limits/{}/{}
GET /user-limits
GET /user-limits/{}
PUT DELETE /user-limits/{}/{}
GET /parameters
GET /parameters/{}
GET /parameters/{}/{}
GET PUT DELETE /parameters/{}/{}/{}
GET /global-parameters
GET PUT DELETE /global-parameters/{}
GET /policies
GET /policies/{}
GET PUT DELETE /policies/{}/{}
GET /operator-policies
GET /operator-policies/{}
GET PUT DELETE /operator-policies/{}/{}
GET /whoami
POST /login
GET /auth
GET /feature-flags
GET /aliveness-test/{}
GET /health/checks/alarms
GET /health/checks/local-alarms
GET /health/checks/virtual-hosts
GET /health/checks/port-listener/{}
GET /health/checks/protocol-listener/{}
GET /health/checks/certificate-expiration/{}/{}
GET /health/checks/node-is-mirror-sync-critical
GET /health/checks/node-is-quorum-critical
GET /health/checks/reached-target-cluster-size
GET /health/checks/is-in-service
GET /health/checks/ready-to-serve-clients
GET /health/checks/below-node-connection-limit
POST /rebalance/queues
GET /config/effective
GET /federation-links
GET /shovels
"""
#: What no RabbitMQ has.
OWN_ROUTES = """
GET /queues/{}/{}/mirrors
GET /queues/{}/{}/unacked
GET /queues/{}/{}/tail
POST /queues/{}/{}/tail
POST /queues/{}/{}/peek
POST /queues/{}/{}/move
POST /queues/{}/{}/redrive
PUT /queues/{}/{}/pause
PUT /queues/{}/{}/resume
POST /warren/queues/actions
PUT /shovels/vhost/{}/{}/pause
PUT /shovels/vhost/{}/{}/resume
GET /cluster/events
GET /cluster/events/stream
GET /openapi.json
"""
#: rabbitmqctl's, those of rabbitmq-diagnostics, rabbitmq-queues and rabbitmq-upgrade, and our own.
COMMANDS = """
list_queues list_unresponsive_queues list_exchanges list_bindings list_consumers list_channels
list_connections set_policy clear_policy list_policies set_operator_policy clear_operator_policy
list_operator_policies sync_queue cancel_sync_queue cluster_status join_cluster forget_cluster_node
reset force_reset stop_app start_app stop shutdown force_boot update_cluster_nodes
change_cluster_node_type rename_cluster_node set_cluster_name await_startup await_online_nodes
rebalance check_if_node_is_mirror_sync_critical await_online_synchronized_mirror trace_on trace_off
delete_queue purge_queue add_user delete_user change_password clear_password authenticate_user
hash_password set_user_tags list_users add_vhost delete_vhost list_vhosts restart_vhost
set_permissions clear_permissions list_permissions list_user_permissions set_topic_permissions
clear_topic_permissions list_topic_permissions list_user_topic_permissions set_vhost_limits
clear_vhost_limits list_vhost_limits set_user_limits clear_user_limits list_user_limits
set_parameter clear_parameter list_parameters set_global_parameter clear_global_parameter
list_global_parameters export_definitions import_definitions status report environment
close_connection close_all_connections set_vm_memory_high_watermark set_disk_free_limit rotate_logs
eval set_log_level list_feature_flags ping version alarms check_alarms check_local_alarms
check_running check_port_connectivity check_port_listener check_protocol_listener
check_virtual_hosts check_certificate_expiration is_booting is_running listeners log_tail
log_tail_stream memory_breakdown server_version list_policies_that_match consume_event_stream
pub get peek tail top events move redrive unacked doctor bench mirrors explain transfer_master
pause_queue resume_queue pause_shovel resume_shovel
"""


def lines(text: str) -> list[tuple[str, str]]:
    """(method, path) of each."""
    found = [line.split() for line in text.strip().splitlines()]
    return [(method, words[-1]) for words in found for method in words[:-1]]


@pytest.mark.parametrize("text", [RABBITMQ_ROUTES, OWN_ROUTES], ids=["RabbitMQ's", "own"])
def test_every_route_is_there(text: str) -> None:
    there = {(route.method, re.sub(r"\{\w+\}", "{}", route.path)) for route in ROUTES}
    assert [wanted for wanted in lines(text) if wanted not in there] == []


def test_every_command_is_there() -> None:
    assert [name for name in COMMANDS.split() if find(name) is None] == []


#: Command -> what its lists can show, as rabbitmqctl has it.
COLUMNS = {
    "list_queues": """name durable auto_delete arguments policy operator_policy
        effective_policy_definition pid owner_pid exclusive exclusive_consumer_pid
        exclusive_consumer_tag messages_ready messages_unacknowledged messages messages_ready_ram
        messages_unacknowledged_ram messages_ram messages_persistent message_bytes
        message_bytes_ready message_bytes_unacknowledged message_bytes_ram message_bytes_persistent
        head_message_timestamp disk_reads disk_writes consumers consumer_utilisation
        consumer_capacity memory slave_pids synchronised_slave_pids mirror_pids
        synchronised_mirror_pids state type leader members online master_node queue_slave_nodes""",
    "list_unresponsive_queues": """name durable auto_delete arguments pid recoverable_slaves
        recoverable_mirrors""",
    "list_exchanges": "name type durable auto_delete internal arguments policy",
    "list_bindings": """source_name source_kind destination_name destination_kind routing_key
        arguments""",
    "list_consumers": """queue_name channel_pid consumer_tag ack_required prefetch_count active
        arguments activity_status""",
    "list_channels": """pid user consumer_count messages_unacknowledged connection name number vhost
        transactional confirm messages_uncommitted acks_uncommitted messages_unconfirmed
        prefetch_count global_prefetch_count""",
    "list_connections": """user peer_host peer_port state pid name port host ssl channels protocol
        auth_mechanism vhost timeout frame_max channel_max client_properties recv_oct recv_cnt
        send_oct send_cnt send_pend connected_at""",
    "list_vhosts": "name description tags default_queue_type tracing cluster_state",
}
#: Command -> options of its own, and whether a value follows.
OPTIONS = {
    "list_queues": {"online": False, "offline": False, "local": False},
    "list_unresponsive_queues": {"local": False, "queue-timeout": True},
    "set_policy": {"priority": True, "apply-to": True},
    "set_operator_policy": {"priority": True, "apply-to": True},
    "join_cluster": {"disc": False, "ram": False},
    "forget_cluster_node": {"offline": False},
    "shutdown": {"wait": False},
    "rebalance": {"vhost-pattern": True, "queue-pattern": True},
    "delete_queue": {"if-empty": False, "if-unused": False},
    "add_vhost": {"description": True, "tags": True, "default-queue-type": True},
    "redrive": {"match": True, "dry-run": False},
    "events": {"follow": False},
}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_there(name: str) -> None:
    command = find(name)
    assert command is not None
    assert [column for column in COLUMNS[name].split() if column not in command.columns] == []


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_there(name: str) -> None:
    command = find(name)
    assert command is not None
    assert OPTIONS[name].items() <= command.options.items()
