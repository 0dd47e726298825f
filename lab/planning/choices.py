"""What a plan may choose of a scenario, and the scenario with a choice in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import NamedTuple

from msgspec.structs import replace

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.schema.yaml_file import lay

#: The key that sets how far an answer moves, which is tried, by the algorithm's name; "": none.
TUNED = {
    **dict.fromkeys(("admm", "dpadmm", "ladmm", "madmm", "mradmm", "radmm"), "eta"),
    **dict.fromkeys(("diadsp", "recal"), "alpha"),
    **dict.fromkeys(("iadmm", "wadmm"), "rho"),
    **dict.fromkeys(("fedavg", "fedprox"), ""),
    **dict.fromkeys(("dpladmm", "weakening"), "step"),
    "dmsp": "c",
}


class Choice(NamedTuple):
    """What a plan chooses."""

    answers: int | None  #: of each node; None: as the scenario has it
    step: float | None  #: of the algorithm's key `tuned`; None: as the scenario has it
    clip: float | None  #: None: there is none
    mechanism: str
    accountant: str | None  #: None: as the scenario has it
    momentum: float | None = None  #: None: as the scenario has it
    pointwise: bool = False  #: noise by how far a record can move the gradient at the very point

    @property
    def besides(self) -> str:
        """The last two, in words."""
        parts = [f"momentum {self.momentum:g}"] if self.momentum is not None else []
        return ", ".join([*parts, *["pointwise"] * self.pointwise]) or "-"


def laid(raw: DocumentView, choice: Choice, answers_to_rounds: Callable[[int], int], gossip: int = 0) -> Document:
    """The mapping of a scenario with a choice in it."""
    scenario = deepcopy(dict(raw))
    algorithm = scenario["algorithm"]
    if choice.answers is not None:
        algorithm["rounds"] = answers_to_rounds(choice.answers)
        scenario["privacy"].pop("answers", None)
    if choice.step is not None:
        key = scenario_key(scenario)
        if isinstance(algorithm.get(key), Mapping):
            algorithm[key]["start"] = choice.step
        else:
            algorithm[key] = choice.step
    if choice.clip is not None:
        lay(scenario, "privacy.adjacency.replace-one-record.clip", choice.clip)
    scenario["privacy"]["mechanism"] = choice.mechanism
    scenario["privacy"].pop("accountant", None)
    if choice.accountant is not None:
        scenario["privacy"]["accountant"] = choice.accountant
    if choice.momentum is not None:
        algorithm["momentum"] = choice.momentum
    if choice.pointwise:
        scenario["privacy"]["sensitivity"] = "pointwise"
    if gossip:
        algorithm["finish"] = {"gossip": gossip}
    return scenario


def scenario_key(raw: DocumentView) -> str:
    """The key of the algorithm's section that is tuned; "": none."""
    return tuned_key(ALGORITHMS[raw["algorithm"]["name"]])


def tuned_key(algorithm: type[Algorithm]) -> str:
    """The key that sets how far an answer moves; by default `step_size` if there is such a key, else ""."""
    default = "step_size" if "step_size" in algorithm.__struct_fields__ else ""
    return TUNED.get(str(algorithm.__struct_config__.tag), default)


def rounds_by(scenario: Scenario, n: int) -> Callable[[int], int]:
    """Rounds (activations, where a token walks) in which each node answers so often: on a random walk, on average."""
    algorithm: Algorithm = scenario.algorithm
    mode = scenario.privacy.mode if scenario.privacy else ""
    if algorithm.pattern == "token":
        return lambda answers: n * answers
    if algorithm.pattern == "star":
        per: int = algorithm.capped(None, mode, 0)[0] // algorithm.rounds or 1
        return lambda answers: max(1, answers // per)
    return lambda answers: replace(algorithm, rounds=4 * answers + 4).capped(answers, mode, 0)[1]
