"""What `hushgrid run` shows while it works."""

from __future__ import annotations

import re
import sys
from io import StringIO

import pytest

from hushgrid.broker.simulation.progress import Progress


class Terminal(StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def seen(self) -> str:
        """What was written, without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.getvalue())


def show(progress: Progress) -> None:
    with progress:
        progress.phase("checking the scenario")
        progress.phase("running [bold] 3 rounds")
        for t in (1, 2, 3):
            progress.round(t, 3, 0.5 / t)
        progress.phase("writing results")


def test_without_a_terminal_there_is_one_plain_line_per_phase() -> None:
    stream = StringIO()
    show(Progress(quiet=False, stream=stream))
    assert stream.getvalue() == "checking the scenario\nrunning [bold] 3 rounds\nwriting results\n"


@pytest.mark.parametrize("stream", [StringIO(), Terminal()])
def test_quiet_means_nothing_at_all(stream: StringIO) -> None:
    show(Progress(quiet=True, stream=stream))
    assert stream.getvalue() == ""


def test_a_terminal_shows_round_and_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    show(Progress(quiet=False, stream=stream))
    seen = stream.seen()
    assert "running [bold] 3 rounds\n" in seen.replace("\r", "")
    assert "3/3" in seen
    assert "residual 0.167" in seen


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    stream = Terminal()
    show(Progress(quiet=False, stream=stream))
    assert stream.getvalue().splitlines() == ["checking the scenario", "running [bold] 3 rounds", "writing results"]


def test_it_may_be_closed_twice() -> None:
    progress = Progress(quiet=False, stream=Terminal())
    progress.round(1, 2, None)
    progress.close()
    progress.close()
