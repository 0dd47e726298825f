"""A real daemon whose history is noted as the simulation's is, by the same code, in a file that outlives a kill."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.recorder import Recorder, recorded
from hushgrid.node import system
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.scenarios import simulated_mistakes

FLEET = "simulated"  #: as `lab.simulate.fleet` names it
PLACE = "HUSHGRID_HISTORY"  #: the variable that names the file of a daemon, FOLDER/NAME.events
MISTAKE = "HUSHGRID_MISTAKE"  #: that names a function of `simulated_mistakes`, which every daemon has then
END = ".events"


class Notebook:
    """Events of one machine, each on the disk of this machine before the next happens."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, event: str, who: str = "", **more: object) -> None:
        line = {"t": round(system.machine.boottime(), 6), "e": event, "who": who} | more
        os.write(self.file, (json.dumps(line, sort_keys=True) + "\n").encode())


class Watched(system.System):
    """This machine, and what it says and which files get their names is noted."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name, self.recorder = name, recorder

    def say(self, line: str) -> None:
        self.recorder.note("log", self.name, line=line)
        super().say(line)

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.recorder.outcome_written(self.name, target)


@contextmanager
def noted(path: Path) -> Iterator[None]:
    """While it is entered, what happens in this process, a daemon, is noted in its file."""
    name, notebook = path.name.removesuffix(END), Notebook(path)
    recorder = Recorder(FLEET, path.parent, notebook.note, lambda who: None)
    for e in read(path):
        if e["e"] in ("spent", "ledger"):
            recorder.rowed[e["id"]] = e["no"]
    put = MqttLink._put

    def puts(link: MqttLink, topic: str, payload: bytes, retain: bool, expiry: int | None = None) -> bool:
        recorder.sent(name, topic, payload, retain, False)
        return put(link, topic, payload, retain, expiry)

    system.machine = Watched(name, recorder)
    with ExitStack() as stack:
        stack.enter_context(recorded(recorder))
        stack.enter_context(patch.object(MqttLink, "_put", puts))
        if mistake := os.environ.get(MISTAKE):
            stack.enter_context(getattr(simulated_mistakes, mistake)())
        yield


def read(path: Path) -> list[Document]:
    """The events of a file; a last line that is torn is none."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def history(folder: Path) -> list[Document]:
    """That of a fleet, in order of time, from the files of its machines."""
    events = [e for path in sorted(folder.glob(f"*{END}")) for e in read(path)]
    return sorted(events, key=lambda e: e["t"])
