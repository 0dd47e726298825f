"""Scenario and device configuration: what their files may say, and what contradicts itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.ladmm import Count, Positive
from hushgrid.node.problem import (
    ALGORITHMS,
    KINDS,
    SCALED,
    Algorithm,
    DataProblem,
    Problem,
    Section,
    Solver,
    check_fit,
    check_minimizer,
)
from hushgrid.node.yaml_file import convert, lay, read_yaml, set_path

Probability = Annotated[float, Meta(ge=0, le=1)]
Delta = Annotated[float, Meta(gt=0, lt=1)]
Name = Annotated[str, Meta(pattern="^[a-z0-9-]{1,64}$")]


class ReplaceOneRecord(Section, frozen=True, kw_only=True):
    clip: Positive


class Adjacency(Section, frozen=True, kw_only=True):
    """Which two data sets a device's privacy makes alike; one of the two."""

    bounded_change: Positive | None = field(default=None, name="bounded-change")
    replace_one_record: ReplaceOneRecord | None = field(default=None, name="replace-one-record")

    def __str__(self) -> str:
        if self.bounded_change is not None:
            return f"bounded-change {self.bounded_change!r}"
        return f"replace-one-record clip {self.replace_one_record.clip!r}" if self.replace_one_record else ""


class PerAnswer(Section, frozen=True, kw_only=True):
    epsilon: Positive
    delta: Delta | None = None


class Budget(Section, frozen=True, kw_only=True):
    """A hard cap a device enforces from its own ledger; one budget belongs to one adjacency."""

    epsilon: Positive
    delta: Delta | None = None
    adjacency: Adjacency | None = None


class Privacy(Section, frozen=True, kw_only=True):
    mechanism: Literal["laplace", "gaussian"] = "laplace"
    adjacency: Adjacency
    epsilon: Positive | None = None
    delta: Delta | None = None
    per_answer: PerAnswer | None = None
    accountant: Literal["pure-basic", "pure-optimal", "zcdp", "gdp"] | None = None
    answers: Count | None = None
    mode: Literal["objective", "input", "output", "output-projected"] = "objective"
    at: Literal["data", "gradient"] = "data"
    budget: Budget | None = None


class Stop(Section, frozen=True, kw_only=True):
    tolerance: Positive
    patience: Count = 3


class Faults(Section, frozen=True, kw_only=True):
    """Probabilities per message of the memory transport."""

    loss: Probability = 0.0
    duplicate: Probability = 0.0
    reorder: Probability = 0.0
    crash: Probability = 0.0
    seed: int = 0


class Run(Section, frozen=True, kw_only=True):
    record: Literal["summary", "trajectory", "transcript"] = "summary"
    stop: Stop | None = None
    faults: Faults | None = None
    truth: bool = False
    processes: Count | None = None  #: of all nodes together (mqtt); one each up to 16 nodes, else one a core


class Scenario(Section, frozen=True, kw_only=True):
    """A scenario file, checked; `resolve` has filled what depends on the rest."""

    hushgrid: Literal[1]
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")]
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    problem: Problem
    network: Network | None = None
    algorithm: Algorithm
    privacy: Privacy | None = None
    run: Run = Run()

    @property
    def fleet(self) -> str:
        return re.sub("[^a-z0-9-]", "-", self.name.lower())


class Tls(Section, frozen=True, kw_only=True):
    ca: str
    cert: str | None = None
    key: str | None = None


class ZoneData(Section, frozen=True, kw_only=True):
    """A zone controller's data: the public case, its own buses, and its private loads (bus, p_mw, q_mvar)."""

    case: str
    zone: list[int]
    loads: str
    model: str | None = None
    solver: Solver = "clarabel"


class PerRun(Section, frozen=True, kw_only=True):
    epsilon: Positive


class Allow(Section, frozen=True, kw_only=True):
    """What the device's owner consents to; a plan outside of it is refused."""

    algorithms: list[str] | None = None
    per_run: PerRun | None = None
    adjacency: Adjacency | None = None


class DeviceConfig(Section, frozen=True, kw_only=True):
    """`hushgrid node CONFIG`."""

    node: Name
    fleet: Name
    broker: str
    tls: Tls | None = None
    state: str
    mark: str | None = None
    data: str | ZoneData  #: of a data problem: a NumPy archive of A (m, q) and b (m,)
    classes: Annotated[int, Meta(ge=2, le=10_000)] | None = None  #: of b, for softmax
    budget: Budget
    allow: Allow = Allow()


class CoordinatorConfig(Section, frozen=True, kw_only=True):
    """`hushgrid coordinator CONFIG`."""

    fleet: Name
    broker: str
    tls: Tls | None = None
    scenario: str
    members: list[Name] | None = None
    wait_s: Positive = 60.0
    silent_s: Positive = 10.0
    state: str


def load_scenario(
    path: Path, overrides: Mapping[str, Any] | None = None, assignments: list[str] | None = None
) -> Scenario:
    """The scenario in a file, with overrides (dotted path to value) and `--set` assignments laid over it."""
    raw = read_yaml(path)
    for key, value in (overrides or {}).items():
        lay(raw, key, value)
    for assignment in assignments or []:
        set_path(raw, assignment)
    return scenario_from(raw, str(path), path.parent)


def scenario_from(raw: dict[str, Any], file: str = "scenario", base: Path = Path()) -> Scenario:
    """A scenario from its mapping; relative paths in it are relative to `base`."""
    algorithm = raw.get("algorithm")
    if isinstance(algorithm, dict) and algorithm.get("name") not in list(ALGORITHMS):
        known = ", ".join(ALGORITHMS)
        raise InputError(f"{file}: algorithm.name: found {algorithm.get('name')!r}, expected one of {known}")
    problem = raw.get("problem")
    if isinstance(problem, dict) and problem.get("kind") not in KINDS:
        raise InputError(f"{file}: problem.kind: found {problem.get('kind')!r}, expected one of {', '.join(KINDS)}")
    scenario = convert(raw, Scenario, file)
    problem = scenario.problem
    check_fit(problem, scenario.algorithm, file)
    check_privacy(scenario.privacy, scenario.algorithm, file)
    if (p := scenario.privacy) is not None:
        replaced = p.adjacency.replace_one_record
        check_minimizer(problem, scenario.algorithm, p.mechanism, replaced.clip if replaced else None, file)
    if isinstance(problem, DataProblem):
        if scenario.network is None:
            raise InputError(f"{file}: network: missing, expected a section (problem.kind: {problem.kind})")
        return msgspec.structs.replace(scenario, problem=msgspec.structs.replace(problem, data=problem.data.at(base)))
    if scenario.network is not None:
        raise InputError(f"{file}: network: found a section, expected none (zones bring their own graph)")
    if os.path.isfile(base / problem.case):  # a path wins over a built-in name only where there is such a file
        path = str((base / problem.case).resolve())
        scenario = msgspec.structs.replace(scenario, problem=msgspec.structs.replace(problem, case=path))
    return scenario


def check_privacy(p: Privacy | None, algorithm: Algorithm, file: str) -> None:
    """InputError unless the privacy section says one thing, and the variant can keep it. Plans are checked by it too."""
    variant, name = algorithm.variant, algorithm.name
    data = name != "ladmm"  # of a data problem
    claims = variant != "none" and not (variant == "published" and name in SCALED)

    def wrong(key: str, found: str, expected: str) -> InputError:
        return InputError(f"{file}: {key}: found {found}, expected {expected}")

    if p is None:
        if claims:
            raise wrong("privacy", "nothing", f"a privacy section (variant {variant}), or algorithm.variant: none")
        return
    if not claims:
        why = (
            "algorithm.variant: none" if variant == "none" else f"published {name} takes its paper's noise, no epsilon"
        )
        raise wrong("privacy", "a privacy section", f"none ({why})")
    change, replace = p.adjacency.bounded_change, p.adjacency.replace_one_record
    if change is not None and replace is not None:
        raise wrong("privacy.adjacency", "two adjacencies", "one")
    if change is None and (replace is None or not data):
        expected = "replace-one-record or bounded-change" if data else "bounded-change (problem.kind: zones)"
        raise wrong("privacy.adjacency", str(p.adjacency) or "{}", expected)
    if data:
        for key, given, default in (("mode", p.mode, "objective"), ("at", p.at, "data")):
            if given != default:
                raise wrong(f"privacy.{key}", given, "none (it is for zones)")
    if (p.epsilon is None) == (p.per_answer is None):
        found = "neither epsilon nor per_answer" if p.epsilon is None else "both epsilon and per_answer"
        raise wrong("privacy.epsilon", found, "one of them")
    gaussian = p.mechanism == "gaussian"
    allowed = ("zcdp", "gdp") if gaussian else ("pure-basic", "pure-optimal")
    accountant = p.accountant or allowed[0]
    if accountant not in allowed:
        raise wrong("privacy.accountant", accountant, f"{' or '.join(allowed)} (mechanism {p.mechanism})")
    if variant == "published" and name == "recal" and not gaussian:
        raise wrong("privacy.mechanism", p.mechanism, "gaussian (published: DP-RECAL)")
    delta = p.delta or (p.per_answer.delta if p.per_answer else None)
    if delta is None and (gaussian or accountant == "pure-optimal"):
        raise wrong(
            "privacy.delta", "nothing", f"a number between 0 and 1 ({'gaussian' if gaussian else 'pure-optimal'})"
        )
    if delta is not None and accountant == "pure-basic":
        raise wrong("privacy.delta", repr(delta), "none (pure-basic), or accountant: pure-optimal")
    if p.per_answer and p.per_answer.delta is None and gaussian:
        raise wrong("privacy.per_answer.delta", "nothing", "a number between 0 and 1 (gaussian)")
    if p.mode.startswith("output") and variant != "published":
        raise wrong("privacy.mode", p.mode, "objective or input (output perturbation exists as variant: published)")
    if p.mode == "input" and variant == "published":
        raise wrong("privacy.mode", p.mode, "objective, output or output-projected (variant: published)")
    if p.at == "gradient" and p.mode != "objective":
        raise wrong("privacy.at", "gradient", f"data (mode: {p.mode})")
    if p.budget and p.budget.adjacency not in (None, p.adjacency):
        raise wrong("privacy.budget.adjacency", str(p.budget.adjacency), f"{p.adjacency}, the run's own")


def load_device(path: Path) -> DeviceConfig:
    """A node's configuration; its relative paths are relative to the file."""
    raw = read_yaml(path)
    raw = _section(raw, "node", path)
    for key in ("seed", "variant", "published", "none", "truth", "simulated"):
        if key in raw:
            raise InputError(
                f"{path}: {key}: found in a device's configuration, expected in simulation only (hushgrid run)"
            )
    config = convert(raw, DeviceConfig, str(path))
    if config.budget.adjacency is None:
        raise InputError(f"{path}: budget.adjacency: missing, expected e.g. {{bounded-change: 0.01}}")

    def near(p: str) -> str:
        return str((path.parent / p).resolve())

    data = config.data
    if isinstance(data, str):
        data = near(data)
    else:
        data = msgspec.structs.replace(
            data, loads=near(data.loads), model=near(data.model) if data.model else None,
            case=near(data.case) if os.path.isfile(path.parent / data.case) else data.case,
        )  # fmt: skip
    return msgspec.structs.replace(
        config, state=near(config.state), tls=_near_tls(config.tls, path),
        mark=near(config.mark) if config.mark else None, data=data,
    )  # fmt: skip


def load_coordinator(path: Path) -> CoordinatorConfig:
    """A coordinator's configuration; its relative paths are relative to the file."""
    raw = read_yaml(path)
    raw = _section(raw, "coordinator", path)
    config = convert(raw, CoordinatorConfig, str(path))
    return msgspec.structs.replace(
        config, tls=_near_tls(config.tls, path),
        state=str((path.parent / config.state).resolve()), scenario=str((path.parent / config.scenario).resolve()),
    )  # fmt: skip


def _section(raw: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    """What stands under `node:` or `coordinator:`, which is then the file's only key; else the file itself."""
    if not isinstance(raw.get(key), dict):
        return raw
    for other in raw:
        if other != key:
            raise InputError(f"{path}: {other}: found beside {key}, expected {key} alone")
    section: dict[str, Any] = raw[key]
    return section


def _near_tls(tls: Tls | None, path: Path) -> Tls | None:
    if tls is None:
        return None
    found = {k: str((path.parent / v).resolve()) for k in ("ca", "cert", "key") if (v := getattr(tls, k))}
    return Tls(**found)
