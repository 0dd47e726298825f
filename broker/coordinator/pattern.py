"""What a coordinator must know of the pattern of its run: which machine runs, who owes what, and what is known at its
end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from hushgrid.kernels.machine import Machine
from hushgrid.kernels.patterns.star import FinalState
from hushgrid.kernels.types import Document
from hushgrid.node.problems.kind import Tests
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.rolling import Point
from hushgrid.node.wire import Publication


class Pattern(ABC):
    """An interface, with what most patterns answer. `members`: the names of all."""

    members: list[str]

    def parties(self, plan: RunPlan) -> list[str]:
        """The members by a plan: all nodes."""
        return plan.nodes

    @abstractmethod
    def machine(self) -> Machine:
        """The coordinator's machine for this plan, before its first step."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """The bytes of the largest message that a member may send."""

    @abstractmethod
    def complete(self, state: Any) -> tuple[int, float | None] | None:
        """(last complete round, its consensus residual) by the machine's state; None before the first."""

    def progress_of(self, state: Any) -> tuple[int, float | None] | None:
        """(how much is done, in the algorithm's unit; the residual), for the display of progress."""
        return self.complete(state)

    def answer(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the run has found, as far as the coordinator knows it: figures, and tables (columns, rows) by name."""
        return {}, {}

    def final_state(self) -> FinalState | None:
        """What a run that is done leaves for the next one; None: nothing."""
        return None

    def points(self) -> tuple[Point, ...]:
        """Where a day stands after each period that a run has planned, once it is done; none: it is no day."""
        return ()

    def view(self, tests: Tests | None) -> Document:
        """What of the answer a run has given, from messages alone: fields of `AnswerView`. `tests`: of models."""
        return {}

    @property
    def holder(self) -> str | None:
        """Of a token: the node that has it, or that it was sent to last."""
        return None

    @property
    def held_since(self) -> float:
        """Since when, s of the coordinator's clock."""
        return 0.0

    @property
    def cold(self) -> list[str]:
        """The members that began at the flat start while the coordinator did not."""
        return []

    @property
    def lost(self) -> list[str]:
        """The members without which the run went on."""
        return []

    @property
    def solved(self) -> list[str]:
        """The members whose data the problem that was solved is about."""
        return self.members

    @abstractmethod
    def owing(self) -> list[str]:
        """The members that must send something for the rounds to go on."""

    @abstractmethod
    def overdue(self, waiting: list[str]) -> list[Publication]:
        """What to send about members that are silent: `waiting` still must send something."""

    def without(self, members: list[str]) -> list[Publication] | None:
        """What to send so that the rounds go on without these. None: they cannot."""
        return None

    @property
    def asks_earlier(self) -> bool:
        """Whether each member must say itself that it has joined, and whether it begins where the plan says."""
        return False

    def witnessed(self, member: str) -> Collection[str]:
        """The members whose spends this member receives: it may say how far their ledgers have come."""
        return ()

    def reached(self, member: str, seen: Mapping[str, tuple[int, int, bytes]]) -> int:
        """The number of the last message that the coordinator has taken from a member (`Stored.seen`); 0: none."""
        return max((seq for key, (_, seq, _) in seen.items() if key.split()[0] == member), default=0)

    @abstractmethod
    def dimension(self, member: str) -> int:
        """Entries of the problem that a member says it has."""
