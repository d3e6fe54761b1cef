"""The description of the API, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import warren
from warren.management.call import Route

_PARAMETER = re.compile(r"\{(\w+)\}")
_ACCESS = {
    "open": "Open to everyone.",
    "user": "For every management user.",
    "vhost": "For users with permissions in the virtual host.",
    "visible": "For users who may see the virtual host.",
    "monitor": "For users tagged monitoring or administrator.",
    "policymaker": "For users tagged policymaker or administrator.",
    "administrator": "For administrators.",
}
_LIST_QUERY = {
    "page": "integer",
    "page_size": "integer",
    "name": "string",
    "use_regex": "boolean",
    "sort": "string",
    "sort_reverse": "boolean",
    "columns": "string",
}


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(f"/api{route.path}", {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Warren management API",
            "version": warren.__version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"basic": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "schemas": {
                "Refusal": {
                    "type": "object",
                    "required": ["error", "reason"],
                    "properties": {"error": {"type": "string"}, "reason": {}},
                }
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    summary = (route.handler.__doc__ or "").strip().splitlines()[0]
    operation: dict[str, Any] = {
        "summary": summary,
        "description": _ACCESS[route.access],
        "operationId": _identity(route),
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.method in {"PUT", "POST"}:
        schema: dict[str, Any] = {"type": "object"}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if route.access == "open":
        operation["security"] = []
    return operation


def _identity(route: Route) -> str:
    words = [word for word in re.split(r"[^\w]+", route.path) if word]
    return "_".join([route.method.lower(), *words])


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    if route.handler.__name__.startswith("list_"):
        found += [
            {"name": name, "in": "query", "schema": {"type": kind}}
            for name, kind in _LIST_QUERY.items()
        ]
    return found


def _responses(route: Route) -> dict[str, Any]:
    json: dict[str, Any] = {"application/json": {"schema": {}}}
    done = {"description": "Done."}
    refusal = {
        "application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}},
    }
    by_method: dict[str, dict[str, Any]] = {
        "GET": {"200": {"description": "The answer.", "content": json}},
        "PUT": {"201": {"description": "Made."}, "204": done},
        "DELETE": {"204": done},
        "POST": {
            "200": {"description": "The answer.", "content": json},
            "201": {"description": "Made."},
            "204": done,
        },
    }
    responses = by_method[route.method]
    responses["400"] = {"description": "The request makes no sense.", "content": refusal}
    if route.access != "open":
        responses["401"] = {"description": "Not logged in, or not allowed."}
    responses["404"] = {"description": "There is no such object.", "content": refusal}
    if "/health/" in route.path or "aliveness" in route.path:
        responses["503"] = {"description": "The check failed.", "content": json}
    return responses
