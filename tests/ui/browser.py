"""A real browser for tests: Chromium, driven through `driver.mjs`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WAIT_S = 30.0
HOW_TO_INSTALL = (
    "the tests of the web UI need Chromium: 'apt-get install chromium' on Debian, or name the "
    "program of a Chromium elsewhere in WARREN_CHROMIUM"
)


class PageFailed(AssertionError):
    """Something did not happen in the page; the text holds what the page showed."""


def find_chromium() -> str | None:
    """The program, if there is one."""
    given = os.environ.get("WARREN_CHROMIUM")
    for name in [given] if given else ["chromium", "chromium-browser", "google-chrome"]:
        found = shutil.which(name)
        if found:
            return found
    return None


class Browser:
    """One page of one browser. Selectors are Playwright's; everything waits up to 30 seconds."""

    def __init__(self, chromium: str) -> None:
        path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        self._process = subprocess.Popen(
            ["node", str(HERE / "driver.mjs"), chromium],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": path},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.stdin is not None and self._process.poll() is None:
            self._process.stdin.write('{"command": "quit"}\n')
            self._process.stdin.close()
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def do(self, command: str, **given: Any) -> Any:
        """Raises PageFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **given}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PageFailed(f"the browser ended during {command} {given}")
        answer = json.loads(line)
        if "error" in answer:
            page = (answer.get("page") or "")[:3000]
            raise PageFailed(f"{command} {given}: {answer['error']}\n--- the page:\n{page}")
        return answer["value"]

    # -- the page ----------------------------------------------------------------------------------

    def open(self, url: str, width: int = 1280, height: int = 860, dark: bool = False) -> None:
        """A new page, of somebody who was never here."""
        self.do("open", width=width, height=height, dark=dark)
        self.do("goto", url=url)

    def log_in(self, name: str = "guest", password: str = "guest") -> None:
        self.fill("input[name=username]", name)
        self.fill("input[name=password]", password)
        self.click("button:has-text('Log in')")
        self.wait("nav.side", "attached")

    def go(self, hash: str) -> None:
        """To a page of the UI, which has loaded when this returns."""
        self.do("hash", hash=f"#/{hash}")
        self.wait("main h1")
        self.wait_gone("text=Loading …")

    def wait(self, selector: str, state: str = "visible") -> None:
        self.do("wait", selector=selector, state=state)

    def wait_gone(self, selector: str) -> None:
        self.do("wait", selector=selector, state="detached")

    def text(self, selector: str) -> str:
        return str(self.do("text", selector=selector))

    def texts(self, selector: str) -> list[str]:
        return [str(each) for each in self.do("texts", selector=selector)]

    def amount(self, selector: str) -> int:
        return int(self.do("amount", selector=selector))

    def click(self, selector: str) -> None:
        self.do("click", selector=selector)

    def fill(self, selector: str, value: str) -> None:
        self.do("fill", selector=selector, value=value)

    def confirm(self, typed: str | None = None) -> None:
        """Go on with what a dialog warns of; where it asks for that, with the words typed."""
        if typed is not None:
            self.fill("dialog input", typed)
        self.click("dialog button.danger")

    def press(self, key: str) -> None:
        self.do("press", key=key)

    def judge(self) -> list[str]:
        """What axe-core finds that keeps people from using the page."""
        return [str(each) for each in self.do("judge")]

    def troubles(self) -> list[str]:
        """Errors and warnings on the console since the last call."""
        return [str(each) for each in self.do("troubles")]

    def picture(self, path: Path, full: bool = False) -> None:
        self.do("picture", path=str(path), full=full)

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so. Raises PageFailed."""
        deadline_s = time.monotonic() + WAIT_S
        while not is_so():
            if time.monotonic() > deadline_s:
                raise PageFailed(f"waited in vain: {what}\n{self.text('body')[:3000]}")
            time.sleep(0.1)
