"""`hushgrid study recycled`: Figures 1 to 5 of X. Zhang, M. M. Khalili, M. Liu, Recycled ADMM, on Adult; Findings 5.1
and 5.2.

The private runs pay honest totals at the gate: one record replaced, everything a node ever sends told. At equal totals
a method with fewer answers has less noise; each is also shown with fewer rounds. `lab/studies/papers/recycled_runs.py`
has the problem and the methods, `lab/studies/papers/recycled_limits.py` Figure 2 and the findings.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from hushgrid.kernels.algorithms.radmm import Growth
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.papers import recycled_limits as limits
from hushgrid.lab.studies.papers.recycled_runs import METHODS, ROUNDS, RUNS, RunsResult, Setting, lowest, measure

EPSILONS = {
    5: (1.0, 4.0, 16.0),
    20: (4.0, 16.0, 64.0),
}  #: honest totals by N: the same alpha, for alpha is epsilon B/2C
SHORTER = (15, 4)  #: rounds, beside ROUNDS; ADMM in 15 has as many answers as R-ADMM in 30
Q2 = (0.01, 0.005, 0.003, 0.015, 0.01)  #: Figure 1(b): q1 = 1 + k q2
ETA_HAT = (1.0, 1.03, 1.02, 0.8, 1.01)


def every_setting(runs: int = RUNS, rounds: int = ROUNDS) -> list[Setting]:
    """Every setting of Figures 1, 3, 4 and 5."""
    long = 2 * rounds
    plain = [Setting("1a", "ADMM", {"eta": 0.5}, N=N, rounds=long) for N in (5, 20)]
    plain += [
        Setting("1a", "R-ADMM", {"eta": 0.5, "gamma": g}, N=N, rounds=long) for N in (5, 20) for g in (0.5, 2.0, 8.0)
    ]
    for k in (1, 3, 5):
        unlike = Growth(ETA_HAT, tuple(1 + k * q for q in Q2))
        plain += [Setting("1b", "MR-ADMM", {"eta": unlike, "penalties": p}, rounds=long) for p in ("node", "edge")]
    plain += [Setting("1c", "MR-ADMM", {"eta": Growth(1.0, q)}, rounds=long) for q in (1.0, 1.01, 1.03, 1.05)]
    plain += [Setting("3", "ADMM", {}, N=N, rounds=rounds) for N in EPSILONS]  # the green curve of every other figure
    noisy = []
    for N, epsilons in EPSILONS.items():
        like = {"N": N, "rounds": rounds, "runs": runs}
        for e in epsilons[1:]:
            etas = [(g, Growth(1.0, 1.01)) for g in (0.1, 0.5, 1.0, 2.0)]
            noisy += [Setting("3", "MR-ADMM", {"eta": eta, "gamma": g}, e, **like) for g, eta in etas]
            growths = (1.01, 1.02, 1.03, 1.04, 1.05)
            noisy += [Setting("4", "MR-ADMM", {"eta": Growth(1.0, q)}, e, **like) for q in growths]
        for e in epsilons:
            noisy += [Setting("5", m, {}, e, **like | {"rounds": T}) for T in (rounds, *SHORTER) for m in METHODS]
    return plain + noisy


def label(s: Setting) -> str:
    """What tells a curve from the others of its figure."""
    eta: Any = s.keys.get("eta")
    if s.method == "ADMM" and s.epsilon == inf:
        return "ADMM, no noise"
    if s.figure == "1a":
        return f"R-ADMM, γ = {s.keys['gamma']:g}"
    if s.figure == "3":
        return f"γ = {s.keys['gamma']:g}"
    if s.figure == "1b":
        return f"k = {round((eta.growth[0] - 1) / Q2[0])}, penalties of {s.keys['penalties']}s"
    return f"q₁ = {eta.growth:g}" if isinstance(eta, Growth) else s.method


def panel(title: str, lines: Sequence[RunsResult]) -> Panel:
    """L above that of the optimum over iterations, the mean of all runs and their range."""
    curves, ranges = {}, {}
    for f in lines:
        if not np.isnan(f.loss).any():
            t = np.arange(1.0, f.loss.shape[1] + 1)
            above = f.loss - lowest(f.setting.N)
            curves[label(f.setting)] = (t, above.mean(axis=0))
            ranges[label(f.setting)] = (above.min(axis=0), above.max(axis=0))
    return Panel(title, "iteration", "L(t) − L(x*)", curves, ranges=ranges)


def pictures(lines: Sequence[RunsResult], rounds: int) -> list[str]:
    """Figure 1; Figures 3 to 5 of 5 nodes, and of 20."""

    def chosen(figure: str, **like: object) -> list[RunsResult]:
        return [
            f for f in lines if f.setting.figure == figure and all(getattr(f.setting, k) == v for k, v in like.items())
        ]

    one = [
        [panel(f"1(a), N = {N}", chosen("1a", N=N)) for N in (5, 20)],
        [panel("1(b), N = 5", chosen("1b")), panel("1(c), N = 5", chosen("1c"))],
    ]
    charts = [chart("Figure 1 of the Recycled ADMM paper again: no noise", one)]
    for N, epsilons in EPSILONS.items():
        green = chosen("3", epsilon=inf, N=N)
        panels = [
            [panel(f"{n}, ε = {e:g}", green + chosen(n, epsilon=e, N=N)) for e in epsilons[1:]] for n in ("3", "4")
        ]
        panels.append([panel(f"5, ε = {e:g}", green + chosen("5", epsilon=e, N=N, rounds=rounds)) for e in epsilons])
        charts.append(chart(f"Figures 3 to 5 of the Recycled ADMM paper again, N = {N}, at honest totals", panels))
    return charts


def tables(lines: Sequence[RunsResult]) -> list[Table]:
    plain, noisy = [], []
    for f in lines:
        s, (loss, spread, error, errors) = f.setting, f.last
        if s.epsilon == inf:
            ends = f"{f.loss[0, 0]:.4f}", f"{f.loss[0, -2]:.4f}", f"{loss:.4f}"
            plain.append((s.figure, s.N, label(s), f.answers, *ends, error))
        else:
            chosen = f"step {f.step:g}/L" if f.step == f.step else ""
            row = (s.figure, s.N, s.method, label(s) if s.figure != "5" else chosen, s.rounds, f.answers, s.epsilon)
            noisy.append((*row, f.stated, *f.alpha, loss, spread, error, errors))
    return [
        Table(
            "Figure 1: without noise",
            ("figure", "N", "curve", "answers", "L(1)", "L, last odd round", "L, last even round", "wrong"),
            plain,
        ),
        Table(
            "Figures 3 to 5: honest totals, mean and range over runs; no figure where the gate refuses",
            (
                "figure",
                "N",
                "method",
                "curve",
                "rounds",
                "answers",
                "epsilon",
                "stated",
                "alpha, first",
                "last",
                "L",
                "range",
                "wrong",
                "range",
            ),
            noisy,
        ),
    ]


def study(runs: int = RUNS, rounds: int = ROUNDS) -> list[Page]:
    """All figures and both findings."""
    settings = every_setting(runs, rounds)
    lines = on_two(
        measure,
        settings,
        lambda s: f"figure {s.figure}: N = {s.N}, {s.method} {s.keys} ε = {s.epsilon:g}, {s.rounds} rounds",
    )
    more = [limits.figure_two(), limits.wrong_limit(), limits.recycled_gradient()]
    plain, private, of_20 = pictures(lines, rounds)
    charts = {"recycled-plain.svg": plain, "recycled-figures.svg": private, "recycled-figures-of-20.svg": of_20}
    return [Page("recycled-figures", [*tables(lines), *more], charts)]
