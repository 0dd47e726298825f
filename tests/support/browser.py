"""A page in Chromium, driven by the DevTools protocol: a process without a window, and one WebSocket to its page."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

PATIENCE = 60.0
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The program; the test is skipped without it."""
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("chromium is not installed")
    return program


class Browser:
    """One tab. `console`: what its page has complained of, errors and refusals of the content policy."""

    def __init__(self, profile: Path, stack: ExitStack) -> None:
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
        child = subprocess.Popen(
            [chromium(), *flags, "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        stack.callback(child.wait)
        stack.callback(child.kill)
        place = profile / "DevToolsActivePort"
        deadline = time.monotonic() + PATIENCE
        while not place.exists() or len(lines := place.read_text().splitlines()) < 2:
            assert child.poll() is None, "chromium has ended"
            assert time.monotonic() < deadline, "chromium does not answer"
            time.sleep(0.02)
        self.console: list[str] = []
        self._no, self._session = 0, ""
        self._socket: ClientConnection = connect(f"ws://127.0.0.1:{lines[0]}{lines[1]}", max_size=None)
        stack.callback(self._socket.close)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """One command and its result."""
        self._no += 1
        message = {"id": self._no, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while (answer := json.loads(self._socket.recv(PATIENCE))).get("id") != self._no:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _note(self, event: Any) -> None:
        match event.get("method"):
            case "Log.entryAdded":
                self.console.append(event["params"]["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.console.append(str(event["params"]["exceptionDetails"]))

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str, is_it: Callable[[Any], bool] = bool, every: float = 0.02) -> float:
        """Waits until it is so in the page. Returns how long that took, s."""
        began = time.monotonic()
        while not is_it(value := self.value(expression)):
            assert time.monotonic() - began < PATIENCE, f"{expression}: {value}"
            time.sleep(every)
        return time.monotonic() - began

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
