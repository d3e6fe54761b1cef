"""The fixtures the dramatiq suite expects from a file its source archive leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import dramatiq
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from .common import RABBITMQ_CREDENTIALS


@pytest.fixture
def rabbitmq_broker() -> Iterator[RabbitmqBroker]:
    """A connected broker object that forgets its queues' messages before and after."""
    broker = RabbitmqBroker(
        host="127.0.0.1", max_priority=10, credentials=RABBITMQ_CREDENTIALS, confirm_delivery=True
    )
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    broker.flush_all()
    yield broker
    broker.flush_all()
    broker.emit_before("process_stop")
    broker.close()


@pytest.fixture
def rabbitmq_worker(rabbitmq_broker: RabbitmqBroker) -> Iterator[dramatiq.Worker]:
    """A running worker with many threads, as a busy application would have."""
    worker = dramatiq.Worker(rabbitmq_broker, worker_threads=32)
    worker.start()
    yield worker
    worker.stop()
