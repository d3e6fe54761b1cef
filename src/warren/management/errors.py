"""Refusals of the HTTP API, each with its status and the two texts its JSON body holds."""

from __future__ import annotations

from warren.auth.directory import DirectoryError
from warren.management.cluster_control import ClusterError
from warren.management.definitions import DefinitionsError
from warren.model.errors import AccessRefused, AmqpError, NoMajority, NotFound
from warren.model.policy import PolicyError


class ApiError(Exception):
    """What a request is answered with in place of what it asked for."""

    def __init__(self, status: int, error: str, reason: object) -> None:
        super().__init__(str(reason))
        self.status = status
        self.error = error
        self.reason = reason


def not_found(reason: str = "Not Found") -> ApiError:
    """404: there is no such object."""
    return ApiError(404, "Object Not Found", reason)


def bad_request(reason: object) -> ApiError:
    """400: the request cannot be done as it stands."""
    return ApiError(400, "bad_request", reason)


def not_authorised(reason: str) -> ApiError:
    """401: logged in, but not allowed. RabbitMQ answers so too, where 403 would be the word."""
    return ApiError(401, "not_authorised", reason)


#: What the broker's own parts raise when they refuse; `as_api_error` words it for the API.
REFUSALS = (AmqpError, DirectoryError, PolicyError, DefinitionsError, ClusterError)


def as_api_error(error: Exception) -> ApiError:
    """A refusal of the engine or the directory, as RabbitMQ's API words it."""
    if isinstance(error, NotFound):
        return not_found(error.explanation)
    if isinstance(error, AccessRefused):
        return not_authorised(error.explanation)
    if isinstance(error, ClusterError):
        return ApiError(error.status, "cluster", str(error))
    if isinstance(error, NoMajority):
        return ApiError(503, "no_majority", error.explanation)
    if isinstance(error, AmqpError):
        return bad_request(error.explanation)
    return bad_request(str(error))
