"""`hushgrid study federated`: Section 6.2 of Ryu and Kim at honest totals: testing error against epsilon, E and the
box.

Ten nodes, softmax regression of images in unit rows, `scale: share`, one record replaced, Gaussian noise counted by GDP
at delta 1e-5. Each setting is a scenario; its seeds are played by the machines and gates that runs have, without
ledgers, and nothing was tuned on them. Images of other files: `hushgrid study federated --set images.train=FILE`, see
`Keys`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf, nan
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from hushgrid import scenarios
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.star import Feasible
from hushgrid.kernels.ranges import Classes, Count
from hushgrid.kernels.types import Document, Vector
from hushgrid.lab.rollout.machines import AllowAll, run_star
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.machines import machine_of, place
from hushgrid.node.problems.records.images import IMAGES

RUN = bytes(16)
SHIPPED = tuple(str(scenarios.FOLDER / "data" / f"digits.{part}.csv.bz2") for part in ("trn", "tst"))
NODES = 10
DELTA = 1e-5
EPSILONS = (1.0, 4.0, 10.0)  #: of the whole run, a node
SEEDS = 20
ANSWERS = 60  #: of a node, whatever E is
PLAIN = 300  #: rounds without privacy
SLACK, TIGHT = 10.0, 0.5  #: boxes: no entry of the optimum that is looked for is beyond the first
#: eta, rho and clip by epsilon: the best of eta 30, 100, 300, rho .003 to .1, clip .5, .7 (a record's gradient is at
#: most sqrt 2 long), for the gate's noise in the slack box with E = 1, on seeds from 1000 on.
TUNED = {1.0: (300.0, 0.03, 0.5), 4.0: (300.0, 0.01, 0.7), 10.0: (300.0, 0.003, 0.7), inf: (300.0, 0.01, 1.0)}
IN_TIGHT = (30.0, 0.03)  #: eta and rho in the tight box, chosen alike at epsilon 4

Mode = Literal["objective", "output", "output-projected"]
MODES: tuple[Mode, ...] = ("objective", "output", "output-projected")


class Images(Struct, forbid_unknown_fields=True, frozen=True):
    """Where the images are, in formats that `problem.data` and `problem.test` read. Raises InputError if one file alone
    is named.
    """

    #: IDX if images-idx3 is in its name (MNIST), LEAF's JSON if it ends so (FEMNIST), else CSV with the label last
    train: str = SHIPPED[0]
    test: str = SHIPPED[1]
    classes: Classes = 10
    nodes: Count = NODES  #: who share the rows; of LEAF's users the first so many
    pool: Count = 1  #: IDX: squares of so many pixels a side are one number

    def __post_init__(self) -> None:
        if (self.train == SHIPPED[0]) != (self.test == SHIPPED[1]):
            raise InputError("images: found one of train and test, expected both or none")

    @property
    def data(self) -> Document:
        """The scenario's section."""
        path, name = str(Path(self.train).resolve()), Path(self.train).name
        key = "idx" if IMAGES in name else "leaf" if ".json" in name else "csv"
        return {key: path, "nodes": self.nodes, "normalize": "unit-rows"} | (
            {"pool": self.pool} if key == "idx" else {}
        )


class Keys(Struct, forbid_unknown_fields=True, frozen=True):
    """What `--set` changes of the study. The steps stay those that were tuned for the digits that ship."""

    images: Images = Images()
    answers: Count = ANSWERS  #: of a node in the whole run: T with E = 1
    seeds: Count = SEEDS


class FederatedTask(NamedTuple):
    images: Images
    epsilon: float  #: inf: without privacy
    rounds: int
    local_updates: int
    box: float
    mode: Mode  #: output perturbation is a published variant
    seeds: Sequence[int]
    name: str = "ladmm"  #: the algorithm
    rho: Any = None  #: the penalty, a number or (E.1) [the tuned one]


class FederatedResult(NamedTuple):
    task: FederatedTask
    error: Vector  #: (seeds,) share of the test's rows that the mean of all models gets wrong
    single: Vector  #: (seeds,) the same of a node's own model, mean over the nodes
    average: Vector  #: (seeds,) the same of the mean of the averaged iterates (5.1c)
    outside: float  #: largest |x_k| of a node's own model over the box, mean over the seeds


def scenario(task: FederatedTask, seed: int) -> Document:
    """The run of one seed, as in a scenario file."""
    eta, rho, clip = TUNED[task.epsilon]
    if task.box == TIGHT:
        eta, rho = IN_TIGHT
    rho = rho if task.rho is None else task.rho
    private, images = task.epsilon < inf, task.images
    variant = "none" if not private else "guarded" if task.mode == "objective" else "published"
    section = {"name": task.name, "rounds": task.rounds, "local_updates": task.local_updates, "variant": variant}
    section |= {"eta": eta, "rho": rho} if task.name == "ladmm" else {"step_size": 1 / (1 / eta + rho)}
    raw = {
        "hushgrid": 1,
        "name": "federated",
        "seed": seed,
        "problem": {
            "kind": "softmax",
            "classes": images.classes,
            "data": images.data,
            "test": str(Path(images.test).resolve()),
            "row_bound": 1.0,
            "scale": "share",
            "box": task.box,
        },
        "algorithm": section,
    }
    privacy = {
        "adjacency": {"replace-one-record": {"clip": clip}},
        "mechanism": "gaussian",
        "accountant": "gdp",
        "epsilon": task.epsilon,
        "delta": DELTA,
        "mode": task.mode,
    }
    return raw | ({"privacy": privacy} if private else {})


def played(setup: RowSetup, seed: int, feasible: Feasible | None = None) -> Iterator[list[Vector]]:
    """What the nodes have sent, after each round. feasible: in the place of the box."""
    plan, members, gates = setup.plan, [], []
    for i, name in enumerate(plan.nodes):
        noise = SeededNoise(seed, name)
        gates.append(setup.device(name).gate(plan, noise, AllowAll()))  # type: ignore[arg-type]
        context = place(plan, RUN, i, gates[-1], noise)
        members.append(machine_of(plan, context if feasible is None else replace(context, feasible=lambda D: feasible)))
    for _ in run_star(plan, members):
        for gate in gates:
            gate.committed()
        yield [member.outcome()["z"] for member in members]


def measured(task: FederatedTask) -> FederatedResult:
    """All seeds of a setting; without privacy there is nothing to draw, and one run."""
    setup = RowSetup(scenario_from(scenario(task, 0)))
    assert setup.tests is not None
    figures = []
    for seed in task.seeds[: None if task.epsilon < inf else 1]:
        models = np.array(list(played(setup, seed)))  # (T, nodes, d)
        last, test = models[-1], setup.tests.errors
        wrong = np.array(test(np.array([last.mean(axis=0), models.mean(axis=(0, 1)), *last])), dtype=np.float64)
        figures.append([wrong[0], np.mean(wrong[2:]), wrong[1], np.max(np.abs(last)) / task.box])
    error, single, average, outside = np.array(figures).T
    return FederatedResult(task, error, single, average, float(outside.mean()))


def tasks(
    images: Images, epsilons: Sequence[float], seeds: Sequence[int], answers: int = ANSWERS
) -> list[FederatedTask]:
    """Without privacy; E at one number of answers; (3.4) in both boxes; the rivals."""
    tasks_ = [FederatedTask(images, inf, PLAIN, 1, box, "objective", seeds) for box in (SLACK, TIGHT)]
    for epsilon in epsilons:
        for box in (SLACK, TIGHT):
            for mode in MODES if box == TIGHT else MODES[:2]:
                tasks_.append(FederatedTask(images, epsilon, answers, 1, box, mode, seeds))
        tasks_ += [FederatedTask(images, epsilon, max(answers // E, 1), E, SLACK, "objective", seeds) for E in (3, 10)]
        tasks_ += [FederatedTask(images, epsilon, answers, 5, SLACK, "objective", seeds)]
        tasks_ += [
            FederatedTask(images, epsilon, max(answers // E, 1), E, SLACK, "objective", seeds, "fedavg") for E in (1, 3)
        ]
    return tasks_


COLUMNS = (
    "epsilon", "algorithm", "noise", "box", "rounds", "E", "answers", "testing error", "standard error",
    "a node's own", "averaged iterates", "largest |x_k| over the box",
)  # fmt: skip


def row(line: FederatedResult) -> Sequence[str | float]:
    """A line of the table: means over the seeds."""
    t, n = line.task, line.error.size
    noise = "none" if t.epsilon == inf else "gate" if t.mode == "objective" else t.mode
    spread = float(np.std(line.error, ddof=1) / n**0.5) if n > 1 else nan
    setting = (f"{t.epsilon:g}" if t.epsilon < inf else "none", t.name, noise, t.box, t.rounds, t.local_updates)
    figures = (float(line.error.mean()), spread, float(line.single.mean()), float(line.average.mean()))
    return (*setting, t.rounds * t.local_updates, *figures, line.outside)


def picture(lines: Sequence[FederatedResult]) -> str:
    """Testing error over epsilon, a panel a box: the gate's noise, and (3.4)."""
    panels = []
    for box, title in ((SLACK, "slack box"), (TIGHT, "tight box")):
        curves: dict[str, tuple[Vector, Vector]] = {}
        for mode in MODES if box == TIGHT else MODES[:2]:
            same = [
                li
                for li in lines
                if (li.task.mode, li.task.box, li.task.name) == (mode, box, "ladmm")
                and li.task.local_updates == 1
                and li.task.epsilon < inf
            ]
            x, y = [li.task.epsilon for li in same], [float(li.error.mean()) for li in same]
            curves["noise at the gate" if mode == "objective" else mode] = (np.array(x), np.array(y))
        panels.append(Panel(f"{title}, u = {box:g}", "total epsilon", "testing error", curves, xlog=True, marks=True))
    return chart("Testing error, ten nodes", [panels])


# --- Figure 7: the penalty of output perturbation ---

#: rho of (3.4), among them Figure 7's five: three numbers, (E.1) as it stands for MNIST, and a hundredth of it.
PENALTIES: tuple[object, ...] = (
    0.001, 0.01, 0.1, 1.0, 10.0,
    {"c1": 2.0, "period": 10000, "c2": 5.0}, {"c1": 0.02, "period": 10000, "c2": 0.05},
)  # fmt: skip


def penalty(images: Images, epsilons: Sequence[float], seeds: Sequence[int], rounds: Sequence[int]) -> Page:
    """Testing errors of output perturbation (3.4) in the slack box at several penalties; the chart has the first
    rounds.
    """
    each = [
        FederatedTask(images, epsilon, T, 1, SLACK, "output", seeds, rho=rho)
        for T, epsilon, rho in product(rounds, epsilons, PENALTIES)
    ]
    lines = on_two(measured, each, lambda t: f"{t.epsilon:g} {t.rho}")
    rows: list[Sequence[str | float]] = []
    for line in lines:
        rho, n = line.task.rho, line.error.size
        label = f"(E.1), c1 {rho['c1']:g}, c2 {rho['c2']:g}" if isinstance(rho, dict) else f"{rho:g}"
        spread = float(np.std(line.error, ddof=1) / n**0.5) if n > 1 else nan
        rows.append((f"{line.task.epsilon:g}", line.task.rounds, label, float(line.error.mean()), spread))
    columns = ("epsilon", "rounds", "rho", "testing error", "standard error")
    drawn = [li for li in lines if li.task.rounds == rounds[0] and not isinstance(li.task.rho, dict)]
    curves = {}
    for epsilon in epsilons:
        same = [li for li in drawn if li.task.epsilon == epsilon]
        errors = np.array([float(li.error.mean()) for li in same])
        curves[f"epsilon {epsilon:g}"] = (np.array([li.task.rho for li in same]), errors)
    panel = Panel("slack box, (3.4)", "rho", "testing error", curves, xlog=True, marks=True)
    picture = chart("The penalty of output perturbation", [[panel]])
    table = Table("Figure 7: the penalty of output perturbation", columns, rows)
    return Page("federated-penalty", [table], {"federated-penalty.svg": picture})


def study(
    images: Images | None = None,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = SEEDS,
    answers: int = ANSWERS,
) -> list[Page]:
    """Testing errors, and Figure 7 on the first ten seeds. `images`: [the digits that ship]."""
    images, each = images or Images(), range(seeds)
    lines = on_two(measured, tasks(images, epsilons, each, answers), lambda t: " ".join(map(str, t[1:6])))
    table = Table("Testing error", COLUMNS, [row(line) for line in lines])
    errors = Page("federated-figures", [table], {"federated-figures.svg": picture(lines)})
    return [errors, penalty(images, epsilons, each[:10], (answers,))]
