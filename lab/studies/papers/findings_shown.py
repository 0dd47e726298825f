"""The other half of `hushgrid study findings`: a picture each of findings 1.2, 2.2, 2.3, 4.4, 4.5, 5.2, 5.3 and of
loads of zones.

What is claimed is computed as the paper prints it, what is true by the product's own machines: its runs, gates, losses
and attacks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from math import inf, log, nan
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid import scenarios
from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.zone.model import gradient
from hushgrid.kernels.problems.losses import CURVATURE, Loss, Objective
from hushgrid.kernels.types import Document, Vector
from hushgrid.lab.attacks import registry, transcript
from hushgrid.lab.attacks.dpp2 import untied
from hushgrid.lab.studies.common.study import Panel, Table
from hushgrid.lab.studies.papers import dpp2_figures, recycled_limits
from hushgrid.lab.studies.papers.recovered_images import Ask, digits, scenario
from hushgrid.lab.studies.papers.relay_figures import digits as two_digits
from hushgrid.lab.studies.problems.relay import PENALTIES, of_images
from hushgrid.lab.studies.relay import private
from hushgrid.node.problems.power_flow.device import model_of
from hushgrid.node.schema.yaml_file import read_yaml

Shown = tuple[Table, Panel]


# --- 1.2: an accuracy that the claimed noise does not allow ---

PRINTED = 4.7e-15  #: Table IV, DP-RECAL on MNIST


def printed_accuracy() -> Shown:
    """Finding 1.2: the relative error of RECAL on its way, without noise and with the noise that Theorem 4 asks for."""
    p = of_images("digits", two_digits(), "least-squares", PENALTIES["ridge"])
    curves, rows = {}, []
    for name, way, epsilon in (
        ("no noise", "none", nan),
        ("published, ε = 12 claimed", "published", 12.0),
        ("ε = 100 claimed", "published", 100.0),
        ("ε = 1e4 claimed", "published", 1e4),
    ):
        line = private.best_of(p, private.Ask(p.name, way, epsilon))
        curves[name] = np.arange(1.0, line.curve.size + 1), line.curve
        rows.append((name, line.noise, line.chosen, line.error))
    k = np.array([1.0, line.curve.size])
    curves["Table IV, ε = 12, MNIST"] = k, np.full(2, PRINTED)
    columns = ("noise", "its last standard deviation, at least", "best", "relative error at the end")
    table = Table("Finding 1.2: RECAL on digits 0 and 1, least squares, ridge, 2400 activations", columns, rows)
    return table, Panel("1.2: Table IV and Theorem 4", "activations", "relative error", curves)


# --- 2.2: a sensitivity that is too small ---


def added_record(classes: Iterable[int] = (2, 3, 5, 10, 20, 62), rows: int = 1000) -> Shown:
    """Finding 2.2: how far adding a record moves (6.3) at z = 0, over (6.4), the largest |its own gradient|/(I + 1).

    Made up: all records have the same features, and another label than the new one. Digits of the first C classes: each
    of those that ship is added to all others, or to those of one other class; the largest.
    """
    worst_of_each: list[tuple[int, float, float, float]] = []
    for C in classes:
        A, others = np.ones((rows, 1)), np.ones(rows)
        worst = _added(A, others, C, np.ones(1), 0.0)
        images = [_added_digits(C)] if C <= 10 else []
        worst_of_each.append((C, worst, *(images[0] if images else (nan, nan))))
    columns = ("classes", "worst, made up", "digits, a node of all classes", "digits, a node of one class")
    table = Table("Finding 2.2: what adding a record changes, over (6.4)", columns, worst_of_each)
    n, worst_of, mixed, one = np.array(worst_of_each, float).T
    curves = {
        "(6.4)": (n, np.ones(len(n))), "worst, made up": (n, worst_of),
        "digits, a node of one class": (n[n <= 10], one[n <= 10]), "of all classes": (n[n <= 10], mixed[n <= 10]),
    }  # fmt: skip
    return table, Panel(
        "2.2: adding a record", "classes", "change, over (6.4)", curves, xlog=True, marks=True, linear=inf
    )


def _added(A: np.ndarray, b: Vector, C: int, row: Vector, label: float) -> float:
    """|change of the mean's gradient| over |the new record's own|/(I + 1), by the product's gradient."""

    def at_zero(A: np.ndarray, b: Vector) -> Vector:
        return Loss(Objective(kind="softmax"), A, b, C).gradient(np.zeros(C * A.shape[1]))

    alone = at_zero(row[None], np.array([label]))
    moved = at_zero(np.vstack([A, row]), np.append(b, label)) - at_zero(A, b)
    return float(np.linalg.norm(moved) * (len(b) + 1) / np.linalg.norm(alone))


def _added_digits(C: int) -> tuple[float, float]:
    """The largest change over the largest (6.4), of all digits of C classes: added to all others, and to those of one
    other class.
    """
    every = digits()[digits()[:, -1] < C]
    A, b = every[:, :-1] / 16.0, every[:, -1]
    S = np.full((C, len(b)), 1.0 / C) - (np.arange(C)[:, None] == b)  # slopes at 0
    alone = np.einsum("cm,mq->mcq", S, A)
    most = float(np.max(np.linalg.norm(alone, axis=(1, 2))))

    def far(new: np.ndarray, mean: np.ndarray) -> float:
        return float(np.max(np.linalg.norm(new - mean, axis=(1, 2)))) / most

    mixed = max(far(one[None], (alone.sum(axis=0) - one) / (len(b) - 1)) for one in alone)
    return mixed, max(far(alone[b != c], alone[b == c].mean(axis=0)) for c in range(C))


# --- 2.3: the row of A that Section 6.1 forgets ---


def forgotten_row(cases: Iterable[str] = ("case5", "case14", "case30", "case57", "case118", "case300")) -> Shown:
    """Finding 2.3: how far a zone's gradient moves if one load moves by beta, over the 2 beta of Table 1; the worst
    bus.
    """
    beta = 0.01
    rows: list[tuple[str, int, float, float]] = []
    for name in cases:
        buses = tuple(int(b) for b in load(name).buses.numbers)
        model = model_of("z1", name, buses)
        z, d = model.start, np.zeros(2 * len(buses))
        here = gradient(model.A, z, d)
        most = [0.0, 0.0]
        for k in range(d.size):
            moved = gradient(model.A, z, d + beta * (np.arange(d.size) == k)) - here
            most = [
                max(a, float(np.linalg.norm(moved, order)) / (2 * beta)) for a, order in zip(most, (1, 2), strict=True)
            ]
        rows.append((name, len(buses), most[0], most[1]))
    columns = ("case", "buses", "L1 (Laplace)", "L2 (Gaussian)")
    table = Table("Finding 2.3: what one load moves the gradient by, over 2 beta", columns, rows)
    n = np.array([row[1] for row in rows], float)
    curves = {
        "Table 1": (n, np.ones(len(n))),
        "L1, Laplace": (n, np.array([row[2] for row in rows])), "L2, Gaussian": (n, np.array([row[3] for row in rows])),
    }  # fmt: skip
    return table, Panel("2.3: one load moves", "buses", "change, over 2 β", curves, xlog=True, marks=True)


# --- 4.4: the final x ---


def final_x(counts: Iterable[int] = (2, 5, 10, 20, 40, 80), nodes: int = 4) -> Shown:
    """Finding 4.4: the relative error of the last gradient, from the messages, and with the final x beside them.

    DPP2 as published, one digit a node; u = 1, r = 0.99, so that the noise hardly decays. Where x^{K-1} was is read off
    a second run with the same bits, for the score alone.
    """
    keys: Document = {
        "name": "dpp2", "alpha": 1.0, "beta": 0.5, "rho": 0.5, "eta": 0.6, "decay": 0.99, "u_w": 1.0, "u_e": 1.0
    }  # fmt: skip
    rows: list[tuple[int, float, float]] = []
    for K in counts:
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            raw = scenario(Ask("DPP2", keys, "published", nodes=nodes), place)
            raw["algorithm"]["rounds"], raw["network"] = K, {"kind": "ring", "nodes": nodes}
            del raw["privacy"]
            made, way = (run(raw | {"run": {"record": what}}) for what in ("transcript", "trajectory"))
            held = [np.load(place / f"n{i}.npz") for i in range(nodes)]
            fs = [Loss(Objective(kind="softmax", l2=0.01), h["A"], h["b"], 10) for h in held]
        messages = transcript.parse(made.transcript or [], "4.4")
        p: Any = messages.plan.running
        P, shares = np.eye(nodes) - messages.problem.graph.metropolis(), messages.shares(2 * K, messages.problem.size)
        x, g = untied(shares[0::2], shares[1::2], np.array([p.eta_k(k) for k in range(K)]), p.rho, P)
        final = np.array([made.solution[f"x_{node}"] for node in messages.nodes])
        e = (final - (x[-1] - (p.alpha * np.eye(nodes) - p.beta * P) @ shares[-1])) / p.alpha  # by (18)
        assert way.trajectory is not None
        true = np.array([f.gradient(v) for f, v in zip(fs, way.trajectory["x"][K - 1], strict=True)])
        far = [np.linalg.norm(guess - true, axis=1) / np.linalg.norm(true, axis=1) for guess in (g[-1], g[-1] - e)]
        rows.append((K, float(np.median(far[0])), float(np.median(far[1]))))
    columns = ("rounds", "from the messages", "with the final x")
    table = Table(
        "Finding 4.4: relative error of the last gradient, median of the nodes (u = 1, r = 0.99)", columns, rows
    )
    k, alone, also = np.array(rows, float).T
    curves = {"from the messages": (k, alone), "with the final x": (k, also)}
    return table, Panel("4.4: the final x", "rounds", "relative error", curves, xlog=True, marks=True)


# --- 4.5: what the paper's own experiment costs ---


def own_experiment(decays: Iterable[float] = (0.9, 0.95, 0.99), upto: int = 500) -> Shown:
    """Finding 4.5: epsilon of Section VI over its rounds, by Theorem 3 and, for its r = .9, by the theorem's own
    proof.
    """
    K = np.unique(np.geomspace(2, upto, 40).astype(int))
    curves, rows = {}, []
    for r in decays:
        tasks = [dpp2_figures.Dpp2Task("1", "DPP2", r, 1.0, 0.5, dpp2_figures.N, int(k) + 1) for k in K]
        totals = np.array([dpp2_figures.claims(task) for task in tasks])
        curves[f"r = {r:g}, Theorem 3"] = K.astype(float), totals[:, 0]
        if r == 0.9:
            curves["r = 0.9, by its proof"] = K.astype(float), totals[:, 1]
        marks = (10, 50, upto)
        some = [
            dpp2_figures.claims(dpp2_figures.Dpp2Task("1", "DPP2", r, 1.0, 0.5, dpp2_figures.N, k + 1)) for k in marks
        ]
        rows.append((r, *(claimed for claimed, _ in some), some[-1][1]))
    columns = ("r", "K = 10", "K = 50", f"K = {upto}", "by its proof")
    table = Table(
        "Finding 4.5: epsilon of Section VI, u = 1, alpha = .1, M = 5.03, d = 10, gradients 1 apart", columns, rows
    )
    return table, Panel("4.5: DPP2's own experiment", "K", "epsilon in all", curves, xlog=True)


# --- 5.2: the gradient that is recycled ---


def recycled_gradient(steps: Iterable[int] = (1, 3, 10, 30), games: int = 200) -> Shown:
    """Finding 5.2: how often the data set is named by what an even message recycles, over the steps of the inexact
    solve.
    """
    rows: list[tuple[int | str, int | str, int]] = [(k, *recycled_limits.won(games, steps=k)) for k in steps]
    certified = recycled_limits.won_by_the_gate(games)
    columns = ("steps of descent", "the stored gradient", "KKT's, public")
    k, stored, public = np.array(rows, float).T
    curves = {
        "the stored gradient": (k, stored), "KKT's, public": (k, public),
        "the gate's answer, KKT's": (k[[0, -1]], np.full(2, float(certified))),
    }  # fmt: skip
    table = Table(
        f"Finding 5.2: data sets one record apart of 8000 that are named rightly, of {games}", columns,
        [*rows, ("certified, the gate's", "", certified)],
    )  # fmt: skip
    title = "5.2: which data set?"
    return table, Panel(title, "steps of the solve", f"right, of {games}", curves, xlog=True, marks=True, linear=inf)


# --- 5.3: a bound that is loose ---


def loose_bound(strengths: Iterable[float] = (0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)) -> Shown:
    """Finding 5.3: the second term of (32) of one answer, the sharper one, and what a pair of data sets attains.

    At 0 a record of norm 1 bends the logistic loss by c1, a record of zeros not at all: ln of the ratio of the
    determinants of both Hessians, by differences of the product's gradient. C/B = 1, so that B mu/C is mu.
    """
    c1, rows = CURVATURE["logistic"], []
    for mu in strengths:
        dets = []
        for row in ([1.0, 0.0], [0.0, 0.0]):
            f, h = Loss(Objective(kind="logistic"), np.array([row]), np.ones(1)), 1e-4
            bent = np.array([(f.gradient(h * e) - f.gradient(-h * e)) / (2 * h) for e in np.eye(2)])
            dets.append(float(np.linalg.det(bent + mu * np.eye(2))))
        rows.append((mu, 2 * 1.4 * c1 / mu, log(1 + c1 / mu), log(dets[0] / dets[1])))
    columns = ("B mu/C", "second term of (32)", "ln(1 + C c1/(B mu))", "attained")
    table = Table("Finding 5.3: what the change of the Jacobian costs, an answer", columns, rows)
    mu, paper, ours, attained = np.array(rows, float).T
    curves = {"(32)": (mu, paper), "ln(1 + C c1/(B μ))": (mu, ours), "attained": (mu, attained)}
    return table, Panel("5.3: the bound (32)", "B μ/C", "epsilon, an answer", curves, xlog=True, marks=True)


# --- zones: loads from messages ---


def loads_heard(counts: Iterable[int] = (1, 2, 3, 4), epsilons: Iterable[float] = (1.0, 10.0, 100.0)) -> Shown:
    """The largest error of a load of case14 by the rounds that were heard: without noise, and of runs with noise at the
    gate.

    A guess counts as a find only if it says so itself, and says that it is of loads, not of a gate's noisy copy of
    them; of all guesses the error is shown.
    """
    raw: Document = read_yaml(Path(scenarios.__file__).parent / "case14-nonprivate.yaml")
    true = {f"z{i}": loads(load("case14"), buses) for i, buses in enumerate(raw["problem"]["zones"], 1)}
    ways: dict[str, Document] = {"without noise": {}}
    ways |= {
        f"at the gate, ε = {epsilon:g}": {
            "mechanism": "laplace", "adjacency": {"bounded-change": 0.01}, "epsilon": epsilon, "mode": "objective"
        }
        for epsilon in epsilons
    }  # fmt: skip
    rows: list[tuple[str, int, str, float, float]] = []
    for way, privacy in ways.items():
        for rounds in counts:
            one = raw | {"seed": 1, "run": {"record": "transcript"}}
            one["algorithm"] = raw["algorithm"] | {
                "rounds": rounds,
                "variant": "guarded" if privacy else "none",
                "rho": 100,
            }
            made = run(one | ({"privacy": privacy} if privacy else {}))
            messages = transcript.parse(made.transcript or [], way)
            recovered = registry.fitting(messages)[0].recover(messages).loads
            errors = [float(np.max(np.abs(recovered[zone].d - d))) for zone, d in true.items()]
            sure = sum(guess.consistent and guess.what == "gradient" for guess in recovered.values())
            rows.append(
                (
                    way,
                    rounds,
                    f"{sure} of {len(recovered)}",
                    max(guess.residual for guess in recovered.values()),
                    max(errors),
                )
            )
    columns = ("noise", "rounds", "finds", "left of what was heard", "largest error of a load, p.u.")
    curves = {
        way: (np.array([float(r[1]) for r in rows if r[0] == way]), np.array([r[4] for r in rows if r[0] == way]))
        for way in ways
    }
    curves["the largest load"] = (
        np.array([float(k) for k in counts]),
        np.full(len(tuple(counts)), max(float(np.max(np.abs(d))) for d in true.values())),
    )
    panel = Panel("zones: loads of case14", "rounds heard", "largest error, p.u.", curves, marks=True)
    return Table("Zones: the best guess at the loads of case14", columns, rows), panel


EVERY: dict[str, Callable[[], Shown]] = {
    "1-2": printed_accuracy, "2-2": added_record, "2-3": forgotten_row, "4-4": final_x, "4-5": own_experiment,
    "5-2": recycled_gradient, "5-3": loose_bound, "zones": loads_heard,
}  # fmt: skip


def finding(name: str) -> Shown:
    """One of them."""
    return EVERY[name]()
