"""Methods on channel 0: the handshake, and the end.

    greeting → start → start-ok → tune → tune-ok → open → open-ok → running

A handler gets the connection and the method's arguments, and returns the reply to send, if any, as
`(method name, arguments...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.model.errors import NotAllowed
from warren.session.states import ConnectionState
from warren.wire.constants import FRAME_MIN_BYTES

if TYPE_CHECKING:
    from warren.session.connection import Connection

Reply = tuple[Any, ...] | None


def start_ok(
    connection: Connection,
    client_properties: dict[str, Any],
    mechanism: str,
    response: bytes,
    _locale: str,
) -> Reply:
    connection.client_properties = client_properties
    capabilities = client_properties.get("capabilities")
    connection.capabilities = capabilities if isinstance(capabilities, dict) else {}
    connection.mechanism = mechanism
    connection.engine.login(connection, mechanism, response)
    settings = connection.engine.settings
    connection.state = ConnectionState.AWAIT_TUNE_OK
    return "connection.tune", settings.channel_max, settings.frame_max, settings.heartbeat_s


def secure_ok(_connection: Connection, _response: bytes) -> Reply:
    """None of our mechanisms asks twice, so the state that takes this is never entered."""
    raise NotImplementedError


def tune_ok(connection: Connection, channel_max: int, frame_max: int, heartbeat_s: int) -> Reply:
    settings = connection.engine.settings
    _check_tuned("frame_max", FRAME_MIN_BYTES, frame_max, settings.frame_max)
    _check_tuned("channel_max", 1, channel_max, settings.channel_max)
    connection.accept_frames(frame_max or FRAME_UNLIMITED_BYTES)
    connection.channel_max = channel_max or 65535
    connection.heartbeat_s = heartbeat_s
    connection.state = ConnectionState.AWAIT_OPEN
    return None


#: What "no limit" means when both sides say it: frames are buffered whole, so there is one.
FRAME_UNLIMITED_BYTES = 16 * 1024 * 1024


def _check_tuned(field: str, least: int, asked: int, offered: int) -> None:
    if asked and asked < least:
        raise NotAllowed(
            f"failed to negotiate connection parameters: negotiated {field} = {asked} "
            f"is lower than the minimum allowed value ({least})"
        )
    if offered and (asked == 0 or asked > offered):
        shown = f"{asked} (no limit)" if asked == 0 else str(asked)
        raise NotAllowed(
            f"failed to negotiate connection parameters: negotiated {field} = {shown} "
            f"is higher than the maximum allowed value ({offered})"
        )


def open_(connection: Connection, vhost: str, _reserved_1: str, _reserved_2: bool) -> Reply:
    connection.engine.open_vhost(connection, vhost)
    connection.state = ConnectionState.RUNNING
    return "connection.open-ok", ""


def close(connection: Connection, _code: int, _text: str, _class_id: int, _method_id: int) -> Reply:
    connection.send(0, "connection.close-ok")
    connection.lingers = True
    connection.finish()
    return None


def close_ok(connection: Connection) -> Reply:
    connection.finish()
    return None


def update_secret(_connection: Connection, _secret: bytes, _reason: str) -> Reply:
    """For tokens that expire; a password does not, so there is nothing to renew."""
    return ("connection.update-secret-ok",)
