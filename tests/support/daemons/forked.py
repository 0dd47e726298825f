"""Commands of `hushgrid` as forks of a process that has imported it: in all but their start they are processes of their
own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.paths import ROOT

#: What a command may be told by its environment that no module reads as it is imported.
LATE = {"HUSHGRID_MQTT_USER", "HUSHGRID_MQTT_PASSWORD", "HUSHGRID_HISTORY", "HUSHGRID_MISTAKE"}


class Forker:
    """The process that forks; one a session of tests, `current` while there is one."""

    current: Forker | None = None

    def __init__(self) -> None:
        self.codes = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.daemons.device_forker", self.codes.name], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def fork(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Child:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        told = {**os.environ, **environment}
        asked = {"arguments": list(arguments), "environment": told, "directory": os.getcwd(), "log": str(log)}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        pid = int(self.process.stdout.readline())
        return Child(pid, Path(self.codes.name, str(pid)))

    def __enter__(self) -> Forker:
        Forker.current = self
        return self

    def __exit__(self, *_: object) -> None:
        Forker.current = None
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
        self.codes.cleanup()


class Child:
    """What subprocess.Popen is to a child of ours, to a fork."""

    def __init__(self, pid: int, code: Path) -> None:
        self.pid, self.code = pid, code
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            with suppress(FileNotFoundError):
                self.returncode = int(self.code.read_text())
                self.code.unlink()  # another process may be given this number
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(0.002)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
