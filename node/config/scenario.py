"""Scenario files: what they may say, and what contradicts itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.ranges import Count, Seed, Title
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.privacy.terms import check_privacy
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.registry import TAGS, AnyProblem, kind_of
from hushgrid.node.schema.sections import Privacy, Section, Stop
from hushgrid.node.schema.yaml_file import convert, lay, read_yaml, set_path

Probability = Annotated[float, Meta(ge=0, le=1)]


class Faults(Section, frozen=True, kw_only=True):
    """Probabilities per message of the memory transport."""

    loss: Probability = 0.0  #: a message is lost
    duplicate: Probability = 0.0  #: it is delivered twice
    reorder: Probability = 0.0  #: it overtakes others
    crash: Probability = 0.0  #: its receiver restarts from its store
    seed: int = 0  #: of the faults alone


class Run(Section, frozen=True, kw_only=True):
    #: what the run directory keeps beside the result: every iterate, or every message as an eavesdropper has it; "end":
    #: less, objective and test error of the last round alone (records: each round's cost a pass over all rows)
    record: Literal["summary", "end", "trajectory", "transcript"] = "summary"
    stop: Stop | None = None  #: when to stop before all rounds are done; star and token
    faults: Faults | None = None  #: injected into the memory transport; the answer does not change
    truth: bool = False  #: fill in the figures of raw data; the run is then not private
    #: the directory of an earlier run of the same zones: this one begins where that one ended; consensus-admm,
    #: simulation only
    warm_start: str | None = None
    processes: Count | None = None  #: of all nodes together (mqtt) [one each up to 16 nodes, else one a core]


class Scenario(Section, frozen=True, kw_only=True):
    """A scenario file, checked; `resolve` has filled what depends on the rest."""

    hushgrid: Literal[1]  #: the version of this format
    name: Title  #: of the run and its directory
    #: of noise and walk: the same bits each time, and not private; simulation only [the operating system's entropy]
    seed: Seed | None = None
    problem: AnyProblem  #: what is minimised, and whose data are private
    network: Network | None = None  #: who speaks to whom; data problems (zones bring their own)
    algorithm: registry.AnyAlgorithm  #: the method, in its paper's symbols
    privacy: Privacy | None = None  #: what is promised; absent for variant none
    run: Run = Run()  #: what is recorded, when it stops

    @property
    def kind(self) -> Kind:
        """Of its problem."""
        return kind_of(self.problem)

    @property
    def stop(self) -> Stop | None:
        return self.run.stop

    @property
    def fleet(self) -> str:
        return re.sub("[^a-z0-9-]", "-", self.name.lower())


def load_scenario(path: Path, overrides: DocumentView | None = None, assignments: list[str] | None = None) -> Scenario:
    """The scenario in a file, with overrides (dotted path to value) and `--set` assignments laid over it."""
    raw = read_yaml(path)
    for key, value in (overrides or {}).items():
        lay(raw, key, value)
    for assignment in assignments or []:
        set_path(raw, assignment)
    return scenario_from(raw, str(path), path.parent)


def _with_defaults(raw: Document) -> Document:
    """The mapping with the mode and the stopping rule that its algorithm has by default."""
    algorithm, privacy, run = (raw.get(key) for key in ("algorithm", "privacy", "run"))
    kind = registry.ALGORITHMS.get(algorithm.get("name", "")) if isinstance(algorithm, dict) else None
    if kind is None:
        return raw
    if isinstance(privacy, dict):
        raw = raw | {"privacy": {"mode": kind.modes[0]} | privacy}
    if kind.stopping is not None and (run is None or isinstance(run, dict)):
        tolerance, patience = kind.stopping
        stop = (run or {}).get("stop")
        if stop is None or isinstance(stop, dict):
            rule = {"tolerance": tolerance, "patience": patience} | (stop or {})
            raw = raw | {"run": (run or {}) | {"stop": rule}}
    return raw


def _with_files(privacy: Privacy, kind: Kind, base: Path) -> Privacy:
    """With the files that its adjacencies name."""
    located = msgspec.structs.replace(privacy, adjacency=kind.adjacency(privacy.adjacency, base))
    if privacy.budget is None or privacy.budget.adjacency is None:
        return located
    budget = msgspec.structs.replace(privacy.budget, adjacency=kind.adjacency(privacy.budget.adjacency, base))
    return msgspec.structs.replace(located, budget=budget)


def scenario_from(raw: Document, file: str = "scenario", base: Path = Path()) -> Scenario:
    """A scenario from its mapping; relative paths in it are relative to `base`.

    Raises InputError if a key is wrong, or contradicts another.
    """
    algorithm = raw.get("algorithm")
    if isinstance(algorithm, dict) and not registry.is_known(algorithm.get("name")):
        known = ", ".join(registry.ALGORITHMS)
        raise InputError(f"{file}: algorithm.name: found {algorithm.get('name')!r}, expected one of {known}")
    problem = raw.get("problem")
    if isinstance(problem, dict) and problem.get("kind") not in list(TAGS):
        raise InputError(f"{file}: problem.kind: found {problem.get('kind')!r}, expected one of {', '.join(TAGS)}")
    raw = _with_defaults(raw)
    if "algorithm" in raw:
        kind_of_algorithm = registry.ALGORITHMS[algorithm["name"]] if isinstance(algorithm, dict) else dict
        raw = raw | {"algorithm": convert(algorithm, kind_of_algorithm, file, "algorithm")}
    scenario = convert(raw, Scenario, file)
    problem, kind = scenario.problem, scenario.kind
    if scenario.privacy is not None:
        scenario = msgspec.structs.replace(scenario, privacy=_with_files(scenario.privacy, kind, base))
    registry.check_variant(scenario.algorithm, file)
    kind.check(problem, scenario.algorithm, file)
    check_privacy(scenario.privacy, scenario.algorithm, kind.records, file)
    if scenario.privacy is not None:
        kind.check_questions(problem, scenario.algorithm, scenario.privacy, file)
    if (earlier := scenario.run.warm_start) is not None:
        if scenario.algorithm.asks() != "data":  # it begins at no cost, from public state alone
            raise InputError(
                f"{file}: run.warm_start: found {earlier!r}, expected none (algorithm.name: {scenario.algorithm.name})"
            )
        run = msgspec.structs.replace(scenario.run, warm_start=str((base / earlier).resolve()))
        scenario = msgspec.structs.replace(scenario, run=run)
    return msgspec.structs.replace(
        scenario, problem=kind.located(problem, scenario.network, scenario.algorithm.pattern != "star", base, file)
    )
