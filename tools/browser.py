"""A headless Chromium, driven through its own protocol over a pipe, and no library in between.

For the tests of the HTML report and for its picture in the README.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Nothing that would look for the network, or for a screen.
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and answers on 4.
_LAUNCH = (
    "import os, sys;"
    "os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_PATIENCE_S = 60.0

Json = dict[str, Any]  # Any: JSON


class BrowserError(Exception):
    """The browser could not do what was asked, or did not answer."""


def find_chromium() -> str | None:
    """The path of a Chromium: that of KVLIFE_CHROMIUM, or one that is installed."""
    named = os.environ.get("KVLIFE_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page of the browser; `troubles` are its errors, warnings and failed requests so far."""

    def __init__(self, pipe: Pipe, session: str) -> None:
        self._pipe = pipe
        self._session = session
        self.troubles: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Json:  # Any: JSON
        """Ask for something and wait for the answer."""
        answer = self._pipe.call(method, parameters, self._session)
        self._take_events()
        return answer

    def look(self, *, width: int, height: int = 900, dark: bool = False, scale: float = 1) -> None:
        """Be a screen of this size in CSS pixels, under this colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path) -> None:
        """Load a file, up to the end of its scripts."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self._pipe.wait_for("Page.loadEventFired")
        self._take_events()

    def value(self, expression: str) -> Any:  # Any: JSON
        """What a JavaScript expression comes to; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, *, height: int | None = None) -> bytes:
        """A PNG of the whole page, or of its upper part."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": height or size["height"],
            "scale": 1,
        }
        shot = self.call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(shot["data"])

    def point_at(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _take_events(self) -> None:
        for event in self._pipe.take_events():
            self.troubles.extend(_troubles_in(event["method"], event["params"]))


def _troubles_in(method: str, told: Json) -> Iterator[str]:
    match method:
        case "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            yield str(details.get("exception", {}).get("description") or details["text"])
        case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
            yield f"console.{told['type']}: {told['args']}"
        case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
            yield str(told["entry"]["text"])
        case "Network.requestWillBeSent" if not told["request"]["url"].startswith(
            ("file:", "data:")
        ):
            yield f"asks the network for {told['request']['url']}"


class Pipe:
    """Messages to and from the browser: JSON objects, each ended by a zero byte."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._number = 0
        self._rest = b""
        self._events: list[Json] = []

    def call(self, method: str, parameters: Json, session: str | None = None) -> Json:
        """Send one command and wait for its result; raises `BrowserError` for a failure."""
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._writes, content) :]
        while True:
            answer = self._next()
            if answer.get("id") != self._number:
                self._events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']['message']}")
            else:
                result: Json = answer["result"]
                return result

    def wait_for(self, method: str) -> None:
        """Wait for an event."""
        while not any(event.get("method") == method for event in self._events):
            self._events.append(self._next())

    def take_events(self) -> list[Json]:
        """The events since the last time."""
        events, self._events = self._events, []
        return [event for event in events if "method" in event]

    def _next(self) -> Json:
        until = monotonic() + _PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], max(until - monotonic(), 0))
            piece = os.read(self._reads, 1 << 20) if ready else b""
            if not piece:
                raise BrowserError("the browser has ended, or does not answer")
            self._rest += piece
        content, _, self._rest = self._rest.partition(b"\0")
        message: Json = json.loads(content)
        return message


@contextlib.contextmanager
def chromium(path: str) -> Iterator[Page]:
    """An empty page of a browser of its own, which ends with the block."""
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    # Above 4, so that neither is in the other's way.
    ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_read, theirs_write)]
    with tempfile.TemporaryDirectory(prefix="kvlife-browser-") as profile:
        arguments = [path, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        with (Path(profile) / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, *map(str, ends), *arguments],
                pass_fds=ends,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        for fd in (theirs_read, theirs_write, *ends):
            os.close(fd)
        try:
            pipe = Pipe(ours_read, ours_write)
            target = pipe.call("Target.createTarget", {"url": "about:blank"})["targetId"]
            attached = pipe.call("Target.attachToTarget", {"targetId": target, "flatten": True})
            yield Page(pipe, attached["sessionId"])
            with contextlib.suppress(BrowserError):
                pipe.call("Browser.close", {})
        finally:
            os.close(ours_read)
            os.close(ours_write)
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
