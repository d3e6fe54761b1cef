"""A small client of the management API for the tests: nothing but the standard library."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import quote

WAIT_S = 60


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer."""

    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Api:
    """Calls the API as a user."""

    url: str
    user: str | None = "guest"
    password: str = "guest"

    def __call__(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Any request; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {}, method=method)
        if self.user is not None:
            pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            request.add_header("Authorization", f"Basic {pair}")
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())

    def get(self, path: str) -> Any:
        """The JSON of a path under /api; the answer must be 200."""
        answer = self("GET", f"/api{path}")
        assert answer.status == 200, (path, answer)
        return answer.json

    def put(self, path: str, body: object = None) -> int:
        return self("PUT", f"/api{path}", {} if body is None else body).status

    def post(self, path: str, body: object = None) -> Any:
        answer = self("POST", f"/api{path}", {} if body is None else body)
        assert answer.status == 200, (path, answer)
        return answer.json

    def delete(self, path: str) -> int:
        return self("DELETE", f"/api{path}").status

    def refusal(self, method: str, path: str, body: object = None) -> tuple[int, str, str]:
        """Status, error and reason of a request that is refused."""
        answer = self(method, f"/api{path}", body)
        return answer.status, answer.json["error"], answer.json["reason"]

    def as_user(self, user: str | None, password: str = "pw") -> Api:
        return Api(self.url, user, password)


def q(name: str) -> str:
    """A name as a step of a path."""
    return quote(name, safe="")
