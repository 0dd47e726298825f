"""The last runs of a fleet, and how each ended at every node: made of the statuses as they come, kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from hushgrid.kernels.types import Document
from hushgrid.node.status import Status
from hushgrid.node.wire import COORDINATOR

RUNS = 50  #: that are remembered
#: How a run stands at a node, as one letter.
LETTERS = {"done": "d", "owed": "o", "stopped": "s", "refused": "r", "running": "j", "joined": "j"}
NOTHING = "."  #: the node has said nothing of the run


@dataclass
class PastRun:
    """One run, or an interval in which none began."""

    run: str  #: its id; "" of an interval without a run
    at: str  #: the first moment that is known of it, UTC
    outcome: str = ""  #: the coordinator's word: done, stopped, refused, running; of an interval answer, held, missed
    cause: str = ""  #: of a missed interval
    number: int | None = None  #: of the interval
    nodes: dict[str, str] = field(default_factory=dict)  #: node: how the run stands there, as a letter


class History:
    """The last `RUNS` runs, the oldest first."""

    def __init__(self) -> None:
        self.runs: list[PastRun] = []
        self._interval = 0  # the last one that was counted

    def take(self, status: Status) -> bool:
        """What a node has said of itself. Whether the history is another one now."""
        letter = LETTERS.get(status.last)
        before = len(self.runs), self._interval
        changed = False
        if status.run and status.last:
            past = self._run(status.run, _moment(status))
            if status.node == COORDINATOR and past.number is None and past.outcome != status.last:
                past.outcome, changed = status.last, True
            if letter and past.nodes.get(status.node) != letter:
                past.nodes[status.node], changed = letter, True
        if status.node == COORDINATOR and status.interval is not None and status.interval.number > self._interval:
            self._end(status)
        return changed or before != (len(self.runs), self._interval)

    def _run(self, run: str, at: str) -> PastRun:
        past = next((past for past in self.runs if past.run == run), None)
        if past is None:
            past = PastRun(run, at)
            self.runs.append(past)
        past.at = min(past.at, at)
        self._order()
        return past

    def _end(self, status: Status) -> None:
        """An interval has ended: with the last run before its end, or without any."""
        interval = status.interval
        assert interval is not None
        self._interval = interval.number
        earlier = [past for past in self.runs if past.number is None and past.run and past.at <= interval.at]
        past = earlier[-1] if earlier else None
        if past is None or (interval.outcome == "missed" and past.outcome == "done"):
            past = PastRun("", interval.at)
            self.runs.append(past)
        past.outcome, past.cause, past.number = interval.outcome, interval.cause, interval.number
        self._order()

    def _order(self) -> None:
        self.runs.sort(key=lambda past: past.at)
        del self.runs[:-RUNS]

    def strip(self, node: str) -> str:
        """How the runs stand at a node, a letter each."""
        return "".join(past.nodes.get(node, NOTHING) for past in self.runs)

    def facts(self) -> list[Document]:
        """The runs as JSON."""
        return [
            {
                "run": past.run[:8],
                "at": past.at,
                "outcome": past.outcome,
                "cause": past.cause,
                "number": past.number,
                "counts": {
                    word: sum(letter == LETTERS[word] for node, letter in past.nodes.items() if node != COORDINATOR)
                    for word in ("done", "owed", "stopped", "refused")
                },
            }
            for past in self.runs
        ]


def _moment(status: Status) -> str:
    """The earliest moment that is known of the run that a status names."""
    over = status.interval is not None and status.state in ("idle", "over", "off")
    return min(status.at, status.interval.at) if over and status.interval else status.at
