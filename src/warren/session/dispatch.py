"""Which handler takes which method, and in which states of the connection it may come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren.session import (
    handle_basic,
    handle_channel,
    handle_connection,
    handle_exchange,
    handle_queue,
)
from warren.session.states import ConnectionState
from warren.wire import constants as c

Handler = Callable[..., Any]

CONNECTION_HANDLERS: dict[int, Handler] = {
    c.CONNECTION_START_OK: handle_connection.start_ok,
    c.CONNECTION_SECURE_OK: handle_connection.secure_ok,
    c.CONNECTION_TUNE_OK: handle_connection.tune_ok,
    c.CONNECTION_OPEN: handle_connection.open_,
    c.CONNECTION_CLOSE: handle_connection.close,
    c.CONNECTION_CLOSE_OK: handle_connection.close_ok,
    c.CONNECTION_UPDATE_SECRET: handle_connection.update_secret,
}


def _states(*states: ConnectionState) -> int:
    return sum(1 << state for state in states)


#: Method -> the states it is legal in, as bits.
OPENING_METHODS: dict[int, int] = {
    c.CONNECTION_START_OK: _states(ConnectionState.AWAIT_START_OK),
    c.CONNECTION_SECURE_OK: _states(ConnectionState.AWAIT_SECURE_OK),
    c.CONNECTION_TUNE_OK: _states(ConnectionState.AWAIT_TUNE_OK),
    c.CONNECTION_OPEN: _states(ConnectionState.AWAIT_OPEN),
    c.CONNECTION_CLOSE: _states(*list(ConnectionState)[1:7]),
    c.CONNECTION_CLOSE_OK: _states(ConnectionState.CLOSING),
    c.CONNECTION_UPDATE_SECRET: _states(ConnectionState.RUNNING),
}

CHANNEL_HANDLERS: dict[int, Handler] = {
    c.CHANNEL_FLOW: handle_channel.flow,
    c.CHANNEL_CLOSE: handle_channel.close,
    c.ACCESS_REQUEST: handle_channel.access_request,
    c.CONFIRM_SELECT: handle_channel.confirm_select,
    c.TX_SELECT: handle_channel.tx_select,
    c.TX_COMMIT: handle_channel.tx_commit,
    c.TX_ROLLBACK: handle_channel.tx_rollback,
    c.EXCHANGE_DECLARE: handle_exchange.declare,
    c.EXCHANGE_DELETE: handle_exchange.delete,
    c.EXCHANGE_BIND: handle_exchange.bind,
    c.EXCHANGE_UNBIND: handle_exchange.unbind,
    c.QUEUE_DECLARE: handle_queue.declare,
    c.QUEUE_BIND: handle_queue.bind,
    c.QUEUE_UNBIND: handle_queue.unbind,
    c.QUEUE_PURGE: handle_queue.purge,
    c.QUEUE_DELETE: handle_queue.delete,
    c.BASIC_QOS: handle_basic.qos,
    c.BASIC_CONSUME: handle_basic.consume,
    c.BASIC_CANCEL: handle_basic.cancel,
    c.BASIC_CANCEL_OK: handle_basic.cancel_ok,
    c.BASIC_GET: handle_basic.get,
    c.BASIC_ACK: handle_basic.ack,
    c.BASIC_REJECT: handle_basic.reject,
    c.BASIC_NACK: handle_basic.nack,
    c.BASIC_RECOVER: handle_basic.recover,
    c.BASIC_RECOVER_ASYNC: handle_basic.recover_async,
}
