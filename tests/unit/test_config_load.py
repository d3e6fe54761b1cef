"""What is read from file, environment and flags, and what is said when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.config import ConfigError, Endpoint, Settings, load_settings
from warren.config.load import _current
from warren.config.schema import KEYS_WITHOUT_EFFECT, SCHEMA
from warren.config.settings import LimitSettings
from warren.node.settings import engine_settings


def load(tmp_path: Path, text: str, **env: str) -> Settings:
    path = tmp_path / "rabbitmq.conf"
    path.write_text(text)
    return load_settings(path, env)


def problems(tmp_path: Path, text: str, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **env)
    return [problem.replace(f"{tmp_path}/", "") for problem in caught.value.problems]


def test_defaults() -> None:
    settings = load_settings(None, {}, {})
    assert settings == Settings()
    assert settings.listeners.tcp == (Endpoint(None, 5672),)
    assert settings.limits.consumer_timeout_ms is None
    assert (settings.announce_product, settings.announce_version) == ("RabbitMQ", "3.13.7")


def test_a_file_with_a_bit_of_everything(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        # a comment
        listeners.tcp.1 = 127.0.0.1:5673
        listeners.tcp.2 = [::1]:5674   # another comment
        heartbeat = 30
        frame_max = 64KiB
        vm_memory_high_watermark.absolute = 2GB
        disk_free_limit.absolute = 50mb
        consumer_timeout = 1800000
        connection_max = infinity
        loopback_users.guest = false
        default_user_tags.monitoring = true
        default_pass = se#cret
        default_users.joe\\.d.password = 'quoted # value'
        default_users.joe\\.d.tags = management
        auth_mechanisms.10 = EXTERNAL
        auth_mechanisms.9 = PLAIN
        log.connection.level = debug
        log.console.formatter = json
        management.ssl.port = 15671
        management.sample_retention_policies.global.minute = 5
        cluster_partition_handling = pause_if_all_down
        cluster_partition_handling.pause_if_all_down.nodes.1 = rabbit@a
        product.version = 4.0.1
        heartbeat = 20
        """,
    )
    assert settings.listeners.tcp == (Endpoint("127.0.0.1", 5673), Endpoint("::1", 5674))
    assert settings.limits.heartbeat_s == 20
    assert settings.limits.frame_max_bytes == 65_536
    assert settings.memory.limit_bytes(10) == 2_000_000_000
    assert settings.disk.free_limit_bytes == 50_000_000
    assert settings.limits.consumer_timeout_ms == 1_800_000
    assert settings.limits.connection_max is None
    assert settings.auth.loopback_users == ()
    assert settings.auth.default_user_tags == ("monitoring",)
    assert settings.auth.default_pass == "se#cret"
    joe = {"password": "quoted # value", "tags": "management"}
    assert settings.auth.default_users == {"joe.d": joe}
    assert settings.auth.mechanisms == ("PLAIN", "EXTERNAL")
    assert settings.log.levels == {"connection": "debug"}
    assert settings.log.console_formatter == "json"
    assert settings.management.tls.port == 15671
    assert settings.management.sample_retention == {"global.minute": 5}
    assert settings.cluster.pause_nodes == ("rabbit@a",)
    assert settings.announce_version == "4.0.1"
    assert "management.ssl.port" not in settings.without_effect
    assert "heartbeat" not in settings.without_effect


def test_none_empties_a_list(tmp_path: Path) -> None:
    settings = load(tmp_path, "listeners.tcp = none\nloopback_users = none\n")
    assert settings.listeners.tcp == ()
    assert settings.auth.loopback_users == ()


def test_loopback_users_are_added_to_guest(tmp_path: Path) -> None:
    settings = load(tmp_path, "loopback_users.admin = true\n")
    assert settings.auth.loopback_users == ("guest", "admin")


def test_unknown_keys_name_line_and_neighbour(tmp_path: Path) -> None:
    assert problems(tmp_path, "# first\nheartbeet = 5\nlisteners.tpc.1 = 5\nzzzzzzzz = 1\n") == [
        "rabbitmq.conf:2: unknown key 'heartbeet'; did you mean 'heartbeat'?",
        "rabbitmq.conf:3: unknown key 'listeners.tpc.1'; did you mean 'listeners.tcp.1'?",
        "rabbitmq.conf:4: unknown key 'zzzzzzzz'",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("heartbeat = x", "heartbeat = 'x': expected a whole number of seconds from 0 to 65535"),
        ("heartbeat = -1", "heartbeat = '-1': expected a whole number of seconds from 0 to 65535"),
        ("heartbeat =", "heartbeat = '': expected a whole number of seconds from 0 to 65535"),
        (
            "disk_free_limit.absolute = 5XB",
            "disk_free_limit.absolute = '5XB': expected a size such as 500KB, 50MB or 2GiB",
        ),
        ("log.console = maybe", "log.console = 'maybe': expected true or false"),
        (
            "management.rates_mode = x",
            "management.rates_mode = 'x': expected one of none, basic, detailed",
        ),
        (
            "listeners.tcp.1 = 70000",
            "listeners.tcp.1 = '70000': expected a port, or address:port such as "
            "127.0.0.1:5672 or [::1]:5672",
        ),
        (
            "channel_max_per_node = x",
            "channel_max_per_node = 'x': expected a whole number from 0, or 'infinity'",
        ),
        (
            "vm_memory_high_watermark.relative = nan",
            "vm_memory_high_watermark.relative = 'nan': expected a ratio such as 0.4",
        ),
        ("just words", "expected 'key = value'"),
        ("= 5", "expected 'key = value'"),
        (
            "[{rabbit, []}].",
            "expected 'key = value'; this is an Erlang term, and none are read, advanced.config "
            "included",
        ),
    ],
)
def test_bad_values_say_what_is_expected(tmp_path: Path, line: str, problem: str) -> None:
    assert problems(tmp_path, f"\n{line}\n") == [f"rabbitmq.conf:2: {problem}"]


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("5", 5), ("1k", 1024), ("500KB", 500_000), ("50mb", 50_000_000), ("2GiB", 2 << 30)],
)
def test_units(tmp_path: Path, text: str, size_bytes: int) -> None:
    settings = load(tmp_path, f"disk_free_limit.absolute = {text}")
    assert settings.disk.free_limit_bytes == size_bytes


def test_the_largest_message_there_can_be(tmp_path: Path) -> None:
    settings = load(tmp_path, "max_message_size = 512MiB")
    assert settings.limits.message_bytes_max == 536_870_912
    assert problems(tmp_path, "max_message_size = 536870913") == [
        "rabbitmq.conf:1: max_message_size = '536870913': expected a size such as 500KB, 50MB or "
        "2GiB, at most 536870912 bytes"
    ]


def test_a_message_limit_set_elsewhere_is_cut_to_the_largest_there_can_be() -> None:
    settings = Settings(limits=LimitSettings(message_bytes_max=8 << 30))
    assert engine_settings(settings, "warren@here").max_message_bytes == 536_870_912


def test_conf_d_comes_after_the_file(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "20.conf").write_text("heartbeat = 20\n")
    (tmp_path / "conf.d" / "10.conf").write_text("heartbeat = 10\nchannel_max = 7\n")
    settings = load(tmp_path, "heartbeat = 5\nframe_max = 8192\n")
    assert (settings.limits.heartbeat_s, settings.limits.channel_max) == (20, 7)
    assert settings.limits.frame_max_bytes == 8192
    assert load_settings(tmp_path / "conf.d", {}).limits.heartbeat_s == 20


def test_a_missing_file_is_an_error_and_the_extension_may_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        load_settings(tmp_path / "none.conf", {})
    (tmp_path / "rabbitmq.conf").write_text("heartbeat = 5")
    env = {"RABBITMQ_CONFIG_FILE": str(tmp_path / "rabbitmq")}
    assert load_settings(None, env).limits.heartbeat_s == 5
    env = {"WARREN_CONFIG_FILES": str(tmp_path / "*.conf")}
    assert load_settings(None, env).limits.heartbeat_s == 5


def test_precedence(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq.conf"
    path.write_text("listeners.tcp.1 = 1\nlisteners.tcp.2 = 2\ndefault_user = file\n")
    env = {
        "RABBITMQ_NODE_PORT": "3",
        "WARREN_NODE_PORT": "4",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DEFAULT_USER": "environment",
    }
    assert len(load_settings(path, {}).listeners.tcp) == 2
    settings = load_settings(path, env)
    assert settings.listeners.tcp == (Endpoint("127.0.0.1", 4),)
    assert settings.auth.default_user == "environment"
    flags = {"listeners.tcp.default": 5, "default_user": "flag", "log.console": False}
    settings = load_settings(path, env, flags)
    assert settings.listeners.tcp == (Endpoint(None, 5),)
    assert settings.auth.default_user == "flag"
    assert settings.log.console is False


def test_environment(tmp_path: Path) -> None:
    env = {
        "RABBITMQ_NODENAME": "rabbit@a",
        "RABBITMQ_DIST_PORT": "25672",
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_MNESIA_BASE": "/data",
        "RABBITMQ_USE_LONGNAME": "true",
        "RABBITMQ_ERLANG_COOKIE": "monster",
        "RABBITMQ_DEFAULT_VHOST": "",
        "HOME": "/root",
    }
    settings = load_settings(None, env)
    assert (settings.node.name, settings.node.long_names) == ("rabbit@a", True)
    assert (settings.cluster.port, settings.node.data_base) == (25672, "/data")
    assert (settings.log.console, settings.log.file) == (True, "")
    assert settings.auth.default_vhost == "/"
    assert load_settings(None, {"WARREN_LOGS": "/tmp/a.log"}).log.file == "/tmp/a.log"


def test_environment_problems() -> None:
    env = {
        "RABBITMQ_DIST_PORT": "x",
        "RABBITMQ_VM_MEMORY_HIGH_WATERMARK": "0.5",
        "WARREN_NODE_PORT": "y",
    }
    with pytest.raises(ConfigError) as caught:
        load_settings(None, env)
    assert sorted(caught.value.problems) == [
        "RABBITMQ_DIST_PORT: expected a whole number from 0 to 65535",
        "RABBITMQ_VM_MEMORY_HIGH_WATERMARK is not supported: set "
        "vm_memory_high_watermark.relative or .absolute in the configuration file",
        "WARREN_NODE_PORT: listeners.tcp.default = 'y': expected a port, or address:port such as "
        "127.0.0.1:5672 or [::1]:5672",
    ]


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "default_pass = hunter2\nssl_options.password = hunter2\n"
        "default_users.a.password = hunter2\n",
        WARREN_ERLANG_COOKIE="hunter2",
    )
    assert settings.auth.default_pass == "hunter2"
    assert "hunter2" not in repr(settings)


def test_every_key_fills_a_setting_that_exists() -> None:
    for key in SCHEMA:
        path = key.path if not key.path.startswith("log.levels.") else "log.levels"
        _current(Settings(), path)


def test_keys_without_effect_are_keys() -> None:
    names = [key.name for key in SCHEMA]
    assert len(names) == len(set(names))
    for start in KEYS_WITHOUT_EFFECT:
        assert any(name == start or name.startswith(f"{start}.") for name in names), start
