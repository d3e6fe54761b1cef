"""Every error a client can meet: its AMQP reply code, its name and its scope.

The engine raises these; `session` turns one into `channel.close` or `connection.close` in a single
place. `NAME - explanation` is the text form clients know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.model.errand import Errand

REPLY_TEXT_BYTES_MAX = 255


class AmqpError(Exception):
    """Base of all errors that are reported to the client with a reply code."""

    reply_code = 541
    name = "INTERNAL_ERROR"
    closes_connection = True

    def __init__(self, explanation: str) -> None:
        super().__init__(explanation)
        self.explanation = explanation
        #: The method that caused the error, filled in by the session for the close frame.
        self.class_id = 0
        self.method_id = 0

    @property
    def reply_text(self) -> str:
        """`NAME - explanation`, cut so that it fits a short string."""
        text = f"{self.name} - {self.explanation}"
        if len(text.encode("utf-8", "surrogateescape")) <= REPLY_TEXT_BYTES_MAX:
            return text
        cut = text.encode("utf-8", "surrogateescape")[: REPLY_TEXT_BYTES_MAX - 3]
        return cut.decode("utf-8", "ignore") + "..."


class ChannelError(AmqpError):
    """Closes the channel it happened on; the connection and its other channels go on."""

    closes_connection = False


class ConnectionError_(AmqpError):
    """Closes the connection."""


class AccessRefused(ChannelError):
    """The user lacks the permission, or the name is reserved."""

    reply_code = 403
    name = "ACCESS_REFUSED"


class NotFound(ChannelError):
    """The entity does not exist."""

    reply_code = 404
    name = "NOT_FOUND"


class ResourceLocked(ChannelError):
    """An exclusive queue belongs to another connection."""

    reply_code = 405
    name = "RESOURCE_LOCKED"


class PreconditionFailed(ChannelError):
    """The request contradicts how the entity was declared, or the channel's state."""

    reply_code = 406
    name = "PRECONDITION_FAILED"


class LoginRefused(ConnectionError_):
    """The credentials are wrong; sent only to clients that understand it."""

    reply_code = 403
    name = "ACCESS_REFUSED"


class ConnectionForced(ConnectionError_):
    """An operator, or the broker going down, closed the connection."""

    reply_code = 320
    name = "CONNECTION_FORCED"


class FrameError(ConnectionError_):
    """The bytes are not a well-formed frame."""

    reply_code = 501
    name = "FRAME_ERROR"


class WireSyntaxError(ConnectionError_):
    """The frame is whole but its contents do not parse."""

    reply_code = 502
    name = "SYNTAX_ERROR"


class CommandInvalid(ConnectionError_):
    """The method cannot be used now, or an argument names something unknown."""

    reply_code = 503
    name = "COMMAND_INVALID"


class ChannelNumberError(ConnectionError_):
    """The channel is not open, or is opened twice."""

    reply_code = 504
    name = "CHANNEL_ERROR"


class UnexpectedFrame(ConnectionError_):
    """A content frame came where a method was due, or the other way round."""

    reply_code = 505
    name = "UNEXPECTED_FRAME"


class ResourceError(ConnectionError_):
    """The broker has not the means to go on with this connection."""

    reply_code = 506
    name = "RESOURCE_ERROR"


class NotAllowed(ConnectionError_):
    """A limit or a rule of the connection forbids it."""

    reply_code = 530
    name = "NOT_ALLOWED"


class NotImplemented_(ConnectionError_):
    """Part of the protocol that no broker of this family implements."""

    reply_code = 540
    name = "NOT_IMPLEMENTED"


class InternalError(ConnectionError_):
    """A fault of ours."""

    reply_code = 541
    name = "INTERNAL_ERROR"


class NoMajority(InternalError):
    """Too few nodes of the cluster can be reached to change anything."""


#: What verbs of the engine raise, by reply code: for errors that come from another node.
_OF_VERBS: dict[int, type[AmqpError]] = {
    kind.reply_code: kind
    for kind in (
        AccessRefused,
        NotFound,
        ResourceLocked,
        PreconditionFailed,
        ResourceError,
        NotAllowed,
        NotImplemented_,
    )
}


def error_class(reply_code: int) -> type[AmqpError]:
    """The class of errors with a reply code; an internal error for codes that no verb raises."""
    return _OF_VERBS.get(reply_code, InternalError)


class Postponed(Exception):
    """Not an error: what was asked for can be answered later; the same request must come again.

    It waits for a record of the log to be written, or for an errand to end.
    """

    def __init__(self, mark: int = 0, errand: Errand | None = None) -> None:
        super().__init__(f"waits for record {mark}" if errand is None else "waits for an errand")
        self.mark = mark
        self.errand = errand
