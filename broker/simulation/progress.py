"""What `hushgrid run` shows while it works: a live line on a terminal, a plain line per phase elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, TextIO

SAY_S = 10.0  #: s from one line of a sweep's progress to the next, where there is no terminal


class Progress:
    """Progress of one run. Where rich is absent a terminal gets plain lines too.

    Shows only what a private run may show: the round or activation, the consensus residual, the time.
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._bar = None if quiet or not self._stream.isatty() else _bar(self._stream)
        self._task: Any = None
        self._said = time.monotonic()  #: when `runs` has last had a line
        if self._bar is not None:
            self._bar.start()

    def phase(self, text: str) -> None:
        """A new phase begins: `text` in a few words."""
        if self._quiet:
            return
        if self._bar is None:
            print(text, file=self._stream, flush=True)
            return
        self._drop()
        self._bar.console.print(text, markup=False, highlight=False)

    def round(self, t: int, total: int, residual: float | None) -> None:
        """Round, or activation, t of total is done."""
        if self._bar is None:
            return
        if self._task is None:
            self._task = self._bar.add_task("done", total=total, said="")
        self._bar.update(
            self._task, completed=t, total=total, said="" if residual is None else f"  residual {residual:.3g}"
        )

    def runs(self, done: int, total: int, failed: str, left_s: float | None) -> None:
        """So many runs of a sweep have ended. failed: which did not end well, in words; left_s: s that the rest may
        take.
        """
        notes = ", ".join(text for text in (failed, "" if left_s is None else f"{_span(left_s)} left") if text)
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("runs", total=total, said="")
            self._bar.update(self._task, completed=done, total=total, said=f"  {notes}")
        elif done == total or time.monotonic() - self._said >= SAY_S:
            self._said = time.monotonic()
            self.phase(f"{done} of {total} runs" + f", {notes}" * bool(notes))

    def close(self) -> None:
        """Ends the display; may be called twice."""
        if self._bar is not None:
            self._drop()
            self._bar.stop()

    def _drop(self) -> None:
        """The finished bar leaves; the phases' lines stay."""
        if self._bar is not None and self._task is not None:
            self._bar.refresh()  # the last round is seen even where the rounds were quicker than the display
            self._bar.remove_task(self._task)
            self._bar.refresh()
            self._task = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _span(seconds: float) -> str:
    """A time for reading: two units at most."""
    total = round(seconds)
    hours, minutes = total // 3600, total // 60
    if total < 60:
        return f"{total} s"
    return f"{minutes} min {total % 60} s" if total < 3600 else f"{hours} h {minutes % 60} min"


def _bar(stream: TextIO) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        console=Console(file=stream),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=8,
    )
