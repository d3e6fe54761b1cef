"""Routes on what can be changed of a running node, and on its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warren.config.values import size_bytes
from warren.management.across import proxied
from warren.management.call import Answer, Call, Reply, Route, field_of
from warren.management.context import Runtime
from warren.management.errors import bad_request, not_found

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "none")
#: Lines of the log that one answer has, at most.
LINES_MAX = 10_000
#: Bytes that are read for them.
TAIL_BYTES = 1024 * 1024


async def _elsewhere(call: Call) -> Answer | None:
    """What another node answers, if the path names one. Raises 404 for one that is not there."""
    name = call.path["node"]
    if name == call.context.node_name:
        return None
    peers = call.context.peers
    if peers is None or name not in peers.running():
        raise not_found()
    return await proxied(call, name)


def _runtime(call: Call) -> Runtime:
    runtime = call.context.runtime
    if runtime is None:
        raise bad_request("this node is part of another program, which decides that")
    return runtime


def read_limit(given: Mapping[str, Any]) -> tuple[float | None, int | None]:
    """`{"relative": 0.4}` or `{"absolute": "2GB"}`. Raises 400."""
    if ("relative" in given) == ("absolute" in given):
        raise bad_request("a limit is either relative or absolute")
    if "relative" in given:
        relative = given["relative"]
        if isinstance(relative, bool) or not isinstance(relative, int | float):
            raise bad_request("relative must be a number")
        if not 0 <= relative <= 100:
            raise bad_request("relative must not be below 0")
        return float(relative), None
    absolute = given["absolute"]
    try:
        count = size_bytes(str(absolute))
    except ValueError:
        raise bad_request(f"'{absolute}' is no number of bytes: write 2GB or 500MiB") from None
    return None, count


async def put_limits(call: Call) -> Answer:
    """Set the memory mark and the disk limit of a node until it is started again."""
    body = await call.body()
    elsewhere = await _elsewhere(call)
    if elsewhere is not None:
        return elsewhere
    runtime = _runtime(call)
    memory = field_of(body, "vm_memory_high_watermark", dict, None)
    disk = field_of(body, "disk_free_limit", dict, None)
    if memory is None and disk is None:
        raise bad_request("nothing to set: vm_memory_high_watermark or disk_free_limit")
    limits = [None if given is None else read_limit(given) for given in (memory, disk)]
    if limits[0] is not None and not runtime.set_memory_limit(*limits[0]):
        raise bad_request("the memory of this node is not watched")
    if limits[1] is not None and not runtime.set_disk_limit(*limits[1]):
        raise bad_request("this node keeps no data: there is no disk to watch")
    return Reply(204)


async def get_log_levels(call: Call) -> Answer:
    """What is logged, by category."""
    return await _elsewhere(call) or _runtime(call).log_levels()


async def put_log_level(call: Call) -> Answer:
    """Set what is logged, of a category or of all, until the node is started again."""
    body = await call.body()
    elsewhere = await _elsewhere(call)
    if elsewhere is not None:
        return elsewhere
    runtime = _runtime(call)
    level, category = field_of(body, "level", str), field_of(body, "category", str, None)
    if level not in LEVELS:
        raise bad_request(f"level must be one of {', '.join(LEVELS)}")
    if category is not None and category not in runtime.log_levels():
        raise bad_request(f"category must be one of {', '.join(runtime.log_levels())}")
    runtime.set_log_level(level, category)
    return Reply(204)


async def rotate_logs(call: Call) -> Answer:
    """Turn the log files over."""
    return await _elsewhere(call) or {"rotated": _runtime(call).rotate_logs()}


async def get_log(call: Call) -> Answer:
    """The last lines of the log file."""
    elsewhere = await _elsewhere(call)
    if elsewhere is not None:
        return elsewhere
    asked = call.query.get("lines", "50")
    if not asked.isdigit() or not 0 < int(asked) <= LINES_MAX:
        raise bad_request(f"lines must be between 1 and {LINES_MAX}")
    path = _runtime(call).log_path
    if path is None:
        raise bad_request("the node logs to its console only: set log.file or log.dir")
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise bad_request(f"{path} cannot be read: {error.strerror}") from None
    return {"path": str(path), "lines": lines[-int(asked) :]}


ROUTES = (
    Route("PUT", "/warren/nodes/{node}/limits", "administrator", put_limits),
    Route("GET", "/warren/nodes/{node}/log-levels", "administrator", get_log_levels),
    Route("PUT", "/warren/nodes/{node}/log-levels", "administrator", put_log_level),
    Route("POST", "/warren/nodes/{node}/rotate-logs", "administrator", rotate_logs),
    Route("GET", "/warren/nodes/{node}/log", "administrator", get_log),
)
