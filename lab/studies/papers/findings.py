"""`hushgrid study findings`: claims of the papers that do not hold, beside what is true.

Findings that have a study of their own are elsewhere: RECAL's in `relay` and `recovered-images`, PI-ADMM's in
`incremental`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from math import log, sqrt
from pathlib import Path

import numpy as np

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.kernels.algorithms import dpp2
from hushgrid.kernels.privacy.accounting import Gaussian, Totals, total_epsilon
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Document, Vector
from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.rollout.machines import run_rounds
from hushgrid.lab.studies.common.study import Exact, Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.papers import findings_shown, recycled_runs
from hushgrid.lab.studies.papers.recovered_images import Ask, scenario

NAME = "findings-table"
DELTA = 1e-6
Curves = dict[str, tuple[Vector, Vector]]


def beside(title: str, counted: str, rows: Sequence[tuple[int, float, float]]) -> Panel:
    """The epsilon that is claimed and the true one, over what is counted."""
    n, claimed, true = np.array(rows, float).T
    curves = {"claimed": (n, claimed), "true": (n, true)}
    return Panel(title, counted, "epsilon in all", curves, xlog=True, marks=True)


# --- 2.1: a total that is too small ---


def theorem_4_6(answers: int, epsilon: float) -> float:
    """Ryu and Kim, Theorem 4.6: what `answers` = T E Gaussian answers of (epsilon, DELTA) each are said to cost at
    DELTA.
    """
    return epsilon * sqrt(answers * log(1 / DELTA) / log(1.25 / DELTA))


def exact(answers: int, epsilon: float) -> float:
    """What they cost: a Gaussian answer of that noise has mu = epsilon/sqrt(2 ln(1.25/DELTA))."""
    total = Totals()
    total.add(Gaussian(epsilon / sqrt(2 * log(1.25 / DELTA))), answers)
    return total_epsilon(total, DELTA)


def totals(counts: Iterable[int] = (1, 10, 100, 500, 1000, 5000)) -> tuple[Table, Panel]:
    """Finding 2.1."""
    rows = [(n, theorem_4_6(n, 1.0), exact(n, 1.0)) for n in counts]
    table = Table("Finding 2.1: epsilon of all answers, each (1, 1e-6)", ("answers", "Theorem 4.6", "exact"), rows)
    return table, beside("2.1: Gaussian answers", "answers", rows)


# --- 4.1 to 4.3: DPP2 ---

ROUNDS = 300  #: the published noise has then gone to 2e-14
DPP2: Document = {
    "name": "dpp2", "alpha": 1.0, "beta": 0.5, "rho": 0.5, "eta": 0.6, "decay": 0.9, "u_w": 1.0, "u_e": 1.0
}  # fmt: skip


def attacked(made: Result, place: Path) -> Document:
    """What `hushgrid attack --truth` finds in a run."""
    (place / "result.json").write_text(json.dumps(made.summary))
    (place / "transcript.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made.transcript or ()))
    return attack(place, place)


def decayed(rounds: int = ROUNDS) -> tuple[Table, Panel]:
    """Finding 4.1: the relative error of what is read off the messages as a node's gradient, round by round."""
    ask = Ask("DPP2", DPP2, "published", nodes=4)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        raw = scenario(ask, place)
        raw["algorithm"]["rounds"], raw["network"] = rounds, {"kind": "ring", "nodes": 4}
        del raw["privacy"]
        scores = attacked(run(raw), place)
        recovered = np.load(place / "attack/recovered.npz")
        errors = []
        for i in range(4):
            held = np.load(place / f"n{i}.npz")
            f = Loss(Objective(kind="softmax", l2=0.01), held["A"], held["b"], 10)
            true = np.array([f.gradient(point) for point in recovered[f"at_n{i}"]])
            errors.append(np.linalg.norm(recovered[f"g_n{i}"] - true, axis=1) / np.linalg.norm(true, axis=1))
    k, error = np.arange(1.0, rounds + 1), np.median(errors, axis=0)
    rows_shown = sorted({min(t, rounds) for t in (1, 50, 100, 150, 200, 250, 300)})
    columns = ("round", "relative error of the gradient that is read, median of 4 nodes")
    table = Table(
        "Finding 4.1: DPP2 as published, u = 1, r = 0.9", columns, [(t, float(error[t - 1])) for t in rows_shown]
    )
    last = "PSNR of the worst image, dB, from the last rounds"
    table = table._replace(rows=[*table.rows, (last, float(scores["scores"]["psnr_worst"]))])
    curves = {"what is read off the messages": (k, error)}
    return table, Panel("4.1: DPP2's gradients", "round", "relative error", curves)


def noise_that_decays(counts: Iterable[int] = (2, 5, 10, 20, 50, 100, 200, 500)) -> tuple[Table, Panel]:
    """Finding 4.2: noise of scale 1 in the first round, of 100 on the iterates; gradients that differ by 1, M = .01, d
    = 1.
    """
    rows: list[tuple[int, float, float]] = []
    for n in counts:
        p = dpp2.Params(
            variant="published", rounds=n, alpha=0.1, beta=0.05, rho=1.0, eta=0.5, decay=0.99, u_w=100.0, u_e=1.0
        )
        rows.append((n, dpp2.claimed_epsilon(p, 1.0, 0.01, 1), dpp2.epsilon(p, 1.0, 0.01, 1)))
    columns = ("rounds", "Theorem 3", "by its own proof, from the first round on")
    return Table("Finding 4.2: r = 0.99", columns, rows), beside("4.2: DPP2's epsilon", "rounds", rows)


def corollary_1(counts: Iterable[int] = (2, 4, 8, 16, 32)) -> tuple[Table, Panel]:
    """Finding 4.3: noise as Corollary 1 allows it for a total of 1, and what its messages cost by the theorem's own
    proof.

    K rounds k = 1..K-1 and round 0; r half-way from (c/epsilon)^(1/(K-1)) to 1, c the sum's first term.
    """
    M, delta, u_e, u_w = 0.01, 1.0, 1.05, 1e4
    alpha = 0.5 * min(1 / M, (1.0 - M / u_e) / (delta * (1 / u_w + 1.0)))
    c = (1 / (alpha * u_e) + 1 / u_w) * alpha * delta / (1 - alpha * M)
    rows: list[tuple[int, float, float]] = []
    for K in counts:
        p = dpp2.Params(
            variant="published", rounds=K + 1, alpha=alpha, beta=0.1 * alpha, rho=0.1, eta=0.5,
            decay=0.5 * (c ** (1 / (K - 1)) + 1), u_w=u_w, u_e=u_e,
        )  # fmt: skip
        rows.append((K, 1.0, dpp2.epsilon(p, delta, M, 1)))
    table = Table("Finding 4.3: r as Corollary 1 allows for epsilon = 1", ("K", "claimed", "by the proof"), rows)
    return table, beside("4.3: DPP2's Corollary 1", "K", rows)


# --- 5.1: a wrong limit ---


def wrong_limit(rounds: int = 120, rho: float = 25.0) -> tuple[Table, Panel]:
    """Finding 5.1: MR-ADMM on Adult, fixed penalties 3, 6, 9, 5, 4: how far the farthest node is from the optimum."""
    fs = recycled_runs.losses(5, rho)
    star = optimum(fs, Regularizer()).x
    curves: Curves = {}
    for penalties in ("node", "edge"):
        keys = {
            "eta": (3.0, 6.0, 9.0, 5.0, 4.0), "gamma": recycled_runs.GAMMA, "penalties": penalties, "rounds": rounds,
            "variant": "none",
        }  # fmt: skip
        oracles = [Exact(f) for f in fs]
        nodes = recycled_runs.fleet(
            recycled_runs.METHODS["MR-ADMM"], keys, oracles, recycled_runs.neighbours(5), fs[0].size
        )
        far = [
            float(np.max(np.linalg.norm(f - star, axis=1)) / np.linalg.norm(star))
            for f in run_rounds(nodes, of_messages=True)
        ]
        curves[f"penalties of {penalties}s"] = (np.arange(1.0, len(far) + 1), np.array(far))
    table = Table(
        "Finding 5.1: relative distance of the farthest node from the optimum",
        ("penalties", "after half of the rounds", f"after {rounds}"),
        [(name, float(y[len(y) // 2 - 1]), float(y[-1])) for name, (_, y) in curves.items()],
    )
    return table, Panel("5.1: MR-ADMM's limit", "round", "relative distance", curves)


# --- the study ---


def study() -> list[Page]:
    """Tables, one chart of five findings and one of each of the others."""
    rows = [[totals(), noise_that_decays(), corollary_1()], [decayed()], [wrong_limit()]]
    panels = [[panel for _, panel in row] for row in rows]
    more = on_two(findings_shown.finding, list(findings_shown.EVERY), str)
    tables = [table for row in rows for table, _ in row] + [table for table, _ in more]
    pictures = {f"{NAME}.svg": chart("Claims that do not hold", panels)}
    for name, (_, panel) in zip(findings_shown.EVERY, more, strict=True):
        pictures[f"finding-{name}.svg"] = chart("", [[panel]])
    return [Page(NAME, tables, pictures)]
