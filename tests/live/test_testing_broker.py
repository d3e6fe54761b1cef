"""`warren.testing.Broker`: its life, its operator's methods, and what it leaves behind."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker

from warren.auth.directory import DirectoryError
from warren.config import ConfigError
from warren.management.definitions import DefinitionsError
from warren.model.errors import NotFound
from warren.model.policy import PolicyError
from warren.node.errors import StartError
from warren.testing import Broker, BrokerFault

#: Promised; the best of several starts, because other tests take the processor away meanwhile.
READY_S = 0.1


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def connect(url: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(url))


def publish(channel: BlockingChannel, queue: str, body: bytes = b"hello", mode: int = 1) -> None:
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=mode))


def wait_for(
    connection: pika.BlockingConnection, done: Callable[[], bool], timeout_s: float
) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not done() and time.monotonic() < deadline_s:
        connection.process_data_events(0.05)


def test_a_message_there_and_back(broker: Broker) -> None:
    with connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        publish(channel, "q")
        assert channel.basic_get("q", auto_ack=True)[2] == b"hello"
    assert broker.url == f"amqp://guest:guest@127.0.0.1:{broker.port}"


def test_ready_soon(judge_time: Callable[[float, float], None]) -> None:
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        with Broker() as broker:
            socket.create_connection((broker.host, broker.port)).close()
            times.append(time.perf_counter() - begun)
    judge_time(min(times), READY_S)


def test_leaves_nothing_behind() -> None:
    def held() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    def use() -> None:
        with Broker() as broker:
            connection = connect(broker.url)
            connection.channel().queue_declare("q", exclusive=True)
            connection.close()
            # A client that never says goodbye must not keep the broker either.
            silent = socket.create_connection((broker.host, broker.port))
            broker.restart()
        silent.close()

    use()
    before = held()
    for _ in range(3):
        use()
    assert held() == before


def test_listens_on_loopback_only(broker: Broker) -> None:
    assert broker.call(lambda node: [listener.host for listener in node.listeners]) == ["127.0.0.1"]


def test_stop_and_start_again() -> None:
    broker = Broker()
    broker.start()
    port = broker.port
    with pytest.raises(RuntimeError, match="running already"):
        broker.start()
    broker.stop()
    broker.stop()
    assert not broker.is_running
    with pytest.raises(RuntimeError, match="not running"):
        broker.queues()
    broker.start()
    assert broker.port == port
    broker.stop()


def test_stop_does_not_wait_long_for_a_deaf_client(
    judge_time: Callable[[float, float], None],
) -> None:
    broker = Broker().start()
    connection = connect(broker.url)
    begun = time.perf_counter()
    broker.stop()
    judge_time(time.perf_counter() - begun, 5)
    with pytest.raises(AMQPConnectionError):
        connection.process_data_events(30)


def test_restart_breaks_connections_and_keeps_what_is_durable(broker: Broker) -> None:
    port = broker.port
    connection = connect(broker.url)
    channel = connection.channel()
    channel.queue_declare("durable", durable=True)
    channel.queue_declare("transient")
    channel.exchange_declare("logs", "fanout")
    channel.queue_bind("durable", "amq.direct", "k")
    publish(channel, "durable", mode=2)
    assert channel.basic_get("durable")[2] == b"hello"
    broker.restart()
    with pytest.raises(AMQPConnectionError):
        connection.process_data_events(30)
    assert broker.port == port
    with connect(broker.url) as again:
        channel = again.channel()
        method, _, body = channel.basic_get("durable", auto_ack=True)
        assert (body, method.redelivered) == (b"hello", True)
        channel.basic_publish("amq.direct", "k", b"by binding")
        assert channel.basic_get("durable", auto_ack=True)[2] == b"by binding"
    assert [queue.name for queue in broker.queues()] == ["durable"]
    assert "logs" not in broker.call(lambda node: list(node.engine.vhost("/").exchanges))


def test_the_port_refuses_while_it_is_down(broker: Broker) -> None:
    restarting = threading.Thread(target=broker.restart, args=(3.0,))
    restarting.start()
    refused = False
    while restarting.is_alive() and not refused:
        try:
            socket.create_connection((broker.host, broker.port)).close()
        except ConnectionRefusedError:
            refused = True
        except ConnectionResetError:
            pass  # It was in the queue of the listener that closed.
        time.sleep(0.01)
    restarting.join()
    assert refused
    connect(broker.url).close()


def test_a_taken_port_is_told(broker: Broker) -> None:
    with pytest.raises(StartError, match="taken by another program"):
        Broker(broker.port).start()


def test_wrong_configuration_is_told() -> None:
    with pytest.raises(ConfigError, match="did you mean 'heartbeat'"):
        Broker(config={"hartbeat": 10}).start()


def test_configuration() -> None:
    config = {"channel_max": 3, "default_limits.vhosts.all.max_queues": 1}
    with Broker(config=config) as broker, connect(broker.url) as connection:
        assert connection._impl.params.channel_max == 3
        channel = connection.channel()
        channel.queue_declare("one")
        with pytest.raises(ChannelClosedByBroker, match=r"queue limit in vhost '/' \(1\)"):
            channel.queue_declare("two")


def test_exceptions_come_back_to_the_caller(broker: Broker) -> None:
    with pytest.raises(ZeroDivisionError):
        broker.call(lambda _: 1 // 0)
    with pytest.raises(NotFound):
        broker.queue("nope")
    with pytest.raises(PolicyError):
        broker.set_policy("p", ".*", {"nope": 1})
    with pytest.raises(DirectoryError):
        broker.set_permissions("nobody")


def test_calls_may_nest(broker: Broker) -> None:
    assert broker.call(lambda _: broker.queues()) == []


def test_faults_of_the_broker_surface() -> None:
    def fail() -> None:
        raise LookupError("in the loop")

    broker = Broker().start()
    broker.call(lambda node: node._loop.call_soon(fail))
    broker.queues()
    with pytest.raises(BrokerFault, match="LookupError: in the loop"):
        broker.stop()


def test_faults_of_the_engine_surface() -> None:
    broker = Broker().start()

    def spoil(node: object) -> None:
        def declare_queue(*_: object) -> None:
            raise LookupError("in the engine")

        node.engine.declare_queue = declare_queue

    broker.call(spoil)
    with pytest.raises(AMQPConnectionError, match="INTERNAL_ERROR"):
        connect(broker.url).channel().queue_declare("q")
    with pytest.raises(BrokerFault, match="LookupError: in the engine"):
        broker.stop()


def test_a_failing_test_fails_as_itself() -> None:
    def fail() -> None:
        raise LookupError("in the loop")

    def run() -> None:
        with Broker() as broker:
            broker.call(lambda node: node._loop.call_soon(fail))
            broker.queues()
            raise AssertionError("mine")

    with pytest.raises(AssertionError, match="mine") as caught:
        run()
    assert caught.value.__notes__ == ["the broker failed too: LookupError: in the loop"]


def test_vhosts(broker: Broker) -> None:
    url = broker.add_vhost("team/a b")
    assert url.endswith("/team%2Fa%20b")
    connection = connect(url)
    connection.channel().queue_declare("q")
    assert [queue.name for queue in broker.queues("team/a b")] == ["q"]
    assert broker.queues() == []
    broker.delete_vhost("team/a b")
    with pytest.raises(AMQPConnectionError):
        connection.process_data_events(30)
    with pytest.raises(NotFound):
        broker.queues("team/a b")


def test_users_and_permissions(broker: Broker) -> None:
    url = broker.add_user("ann", "p@ss/word", ["monitoring"])
    with connect(url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        publish(channel, "q")
        # Its route is known by now: a change must reach it all the same.
        broker.set_permissions("ann", write="^other$")
        with pytest.raises(ChannelClosedByBroker, match=r"write access to exchange 'amq\.default'"):
            publish(channel, "q")


def test_topic_permissions(broker: Broker) -> None:
    url = broker.add_user("ann", "ann")
    broker.set_topic_permissions("ann", "amq.topic", write=r"^ann\.")
    with connect(url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "ann.news", b"")
        with pytest.raises(ChannelClosedByBroker, match=r"topic 'bob\.news'"):
            channel.basic_publish("amq.topic", "bob.news", b"")


def test_limits(broker: Broker) -> None:
    broker.set_vhost_limits({"max-connections": 0})
    with pytest.raises(AMQPConnectionError):
        connect(broker.url)
    broker.set_vhost_limits({})
    broker.set_user_limits("guest", {"max-channels": 1})
    with connect(broker.url) as connection:
        connection.channel()
        with pytest.raises(AMQPConnectionError):
            connection.channel()


def test_policies(broker: Broker) -> None:
    with connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("short.q")
        for _ in range(3):
            publish(channel, "short.q")
        channel.queue_declare("short.q", passive=True)
        broker.set_policy("short", r"^short\.", {"max-length": 2}, apply_to="queues")
        broker.set_policy("ops", r"^short\.", {"max-length": 1}, operator=True, apply_to="queues")
        queue = broker.queue("short.q")
        assert (queue.policy, queue.operator_policy, queue.ready) == ("short", "ops", 1)
        assert broker.clear_policy("ops", operator=True)
        assert not broker.clear_policy("ops", operator=True)
        assert broker.queue("short.q").operator_policy is None


def test_queue_snapshots(broker: Broker) -> None:
    with connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        for _ in range(3):
            publish(channel, "q")
        channel.basic_get("q")
        channel.queue_declare("mine", exclusive=True)
        channel.basic_consume("mine", lambda *_: None)
        queue = broker.queue("q")
        assert (queue.ready, queue.unacked, queue.messages) == (2, 1, 3)
        assert (queue.consumers, queue.durable, queue.exclusive) == (0, True, False)
        mine = broker.queue("mine")
        assert (mine.consumers, mine.durable, mine.exclusive) == (1, False, True)


def test_an_alarm_stays_until_it_is_cleared(broker: Broker) -> None:
    told: list[str] = []
    with connect(broker.url) as connection:
        connection.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        channel = connection.channel()
        channel.queue_declare("q")
        broker.set_alarm("memory", True)
        publish(channel, "q")
        wait_for(connection, lambda: bool(told), 10)
        # Longer than a node takes to measure its memory: that must not clear the alarm.
        wait_for(connection, lambda: len(told) > 1, 0.6)
        assert told == ["blocked"]
        broker.set_alarm("memory", False)
        wait_for(connection, lambda: len(told) > 1, 10)
        assert told == ["blocked", "unblocked"]


def test_tracing(broker: Broker) -> None:
    with connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("trace")
        channel.queue_bind("trace", "amq.rabbitmq.trace", "publish.#")
        broker.set_tracing()
        channel.basic_publish("amq.direct", "k", b"seen")
        channel.queue_declare("trace", passive=True)
        method, _, body = channel.basic_get("trace", auto_ack=True)
        assert (method.routing_key, body) == ("publish.amq.direct", b"seen")
        broker.set_tracing(on=False)
        channel.basic_publish("amq.direct", "k", b"unseen")
        assert channel.basic_get("trace") == (None, None, None)


def test_definitions(tmp_path: Path) -> None:
    document = {
        "vhosts": [{"name": "/"}],
        "queues": [{"name": "orders", "vhost": "/", "durable": True, "arguments": {}}],
    }
    with Broker(definitions=document) as broker:
        assert broker.queue("orders").durable
        with pytest.raises(DefinitionsError, match="cannot be read"):
            broker.import_definitions(tmp_path / "missing.json")
    with pytest.raises(DefinitionsError, match="not a definitions file"):
        Broker(definitions={"queues": 1}).start()


def test_many_threads_at_once(broker: Broker) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                name = f"v{number}-{turn}"
                broker.add_vhost(name)
                broker.set_policy("p", ".*", {"max-length": 1}, vhost=name)
                broker.delete_vhost(name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
