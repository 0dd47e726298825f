"""`hushgrid study relay-figures`: Figures 2 to 9 of the RECAL paper, and a line of Tables IV and V, on images of two
classes.

The digits 0 and 1 that ship; classes 0 and 1 of MNIST, Fashion-MNIST and CIFAR-10 by path, as IDX files, where
HUSHGRID_MNIST, HUSHGRID_FASHION_MNIST, HUSHGRID_CIFAR10 say where they are. Convergence: a ring of 8 and 2400
activations, as in relay_private.py. What an adversary sees: one gradient of an agent with one image.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from hushgrid.broker.simulation import run
from hushgrid.kernels.problems.losses import Kind
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Document, Matrix, Vector
from hushgrid.lab.attacks.recal import at_once, one_visit_late
from hushgrid.lab.attacks.transcript import parse
from hushgrid.lab.inversion.matching import Batch, Distance
from hushgrid.lab.inversion.pictures import png, sheet
from hushgrid.lab.inversion.scores import cosine, psnr
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.papers import recovered_images as images
from hushgrid.lab.studies.papers import relay_private as private
from hushgrid.lab.studies.problems.relay import AGENTS, PENALTIES, Problem, of_images
from hushgrid.node.problems.records.files import Shard
from hushgrid.node.problems.records.images import read_idx

NAME = "relay-figures"
KINDS: tuple[Kind, ...] = ("least-squares", "logistic")
CLAIMS = (1.0, 5.0, 10.0)  #: Figures 2 and 5
EPSILON = 12.0  #: Figures 3 and 6, Tables IV and V
RIVALS = ("extra", "nids", "dgd")  #: that the gate guards under a regulariser, the paper's first two among them
GRID = (
    (20, 60, 200),
    (1.0, 1.9),
    (1.0, 4.0),
)  #: of a rival: answers, step in units of 1/L, clip; the best by the error
SEEDS = private.SEEDS  #: of a rival's noise, as many as of RECAL's walks
ITERATIONS, SHOWN = 300, 8  #: of gradient matching; images of the picture
MATCHED: dict[str, tuple[Distance, float]] = {
    "4: DLG": ("squared", 0.0),
    "7: cosine, total variation": ("cosine", 1e-5),
    "8: squared, total variation": ("squared", 1e-5),
}


# --- Figures 2, 3, 5, 6 and Tables IV, V ---


def sets() -> dict[str, Callable[[], Shard]]:
    """Name -> rows of two classes, labels -1 and 1, and how to have them."""
    by_name: dict[str, Callable[[], Shard]] = {"digits": digits}
    return by_name | {name: partial(two_of, Path(os.environ[images.PATHS[name]])) for name in images.by_path()}


def digits() -> Shard:
    """The images of 0 and 1 that ship, pixels in [0, 1]."""
    rows = images.digits()
    return _signed(Shard(rows[:, :-1] / 16.0, rows[:, -1]))


def two_of(path: Path) -> Shard:
    """Classes 0 and 1 of an IDX collection."""
    return _signed(read_idx(path, "least-squares"))


def _signed(every: Shard) -> Shard:
    A, b = every
    return Shard(A[b <= 1], np.where(b[b <= 1] > 0, 1.0, -1.0))


class Ask(NamedTuple):
    """One curve: the set, the loss, the regulariser; the way as in relay_private.py, or a rival's name."""

    set: str
    kind: Kind
    penalty: str
    way: str
    epsilon: float = inf


class Curve(NamedTuple):
    """Vectors sent and the relative error after them."""

    ask: Ask
    sent: Vector
    error: Vector  #: of one walk
    chosen: str
    final: float  #: the median over walks, or seeds of noise, at the end

    @property
    def label(self) -> str:
        way = {"none": "RECAL, no noise", "published": f"published, ε = {self.ask.epsilon:g} claimed"}
        return way.get(self.ask.way, f"{self.ask.way}, gate, ε = {self.ask.epsilon:g}")


def every_setting() -> list[Ask]:
    """Figures 2 and 5 in both regularisers; Figures 3 and 6 with the ridge, where there is something to learn."""
    asks = []
    for name, kind, penalty in product(sets(), KINDS, PENALTIES):
        asks.append(Ask(name, kind, penalty, "none"))
        asks += [Ask(name, kind, penalty, "published", epsilon) for epsilon in (*CLAIMS, EPSILON)]
    for name, kind in product(sets(), KINDS):
        asks += [Ask(name, kind, "ridge", way, EPSILON) for way in ("RECAL", *RIVALS)]
    return asks


def problem(ask: Ask) -> Problem:
    return of_images(ask.set, sets()[ask.set](), ask.kind, PENALTIES[ask.penalty])


def measure(ask: Ask) -> Curve:
    """A curve; of the way's free parameters the best by the error at the end, which no run could see."""
    p = problem(ask)
    if ask.way in RIVALS:
        return _rival(ask, p)
    line = private.best_of(p, private.Ask(p.name, ask.way, ask.epsilon))
    sent = np.array([2.0 * k for k in range(1, line.curve.size + 1)])
    return Curve(ask, sent, line.curve, line.chosen, line.error)


def _rival(ask: Ask, p: Problem) -> Curve:
    """Noise at the gate of each node of the same ring, counted by GDP; of each point of the grid the seed in the
    middle.
    """
    curves = []
    for T, step, clip in product(*GRID):
        errors = []
        for seed in range(1, SEEDS + 1):
            made = run(_scenario(ask, p, T, step, clip, seed), data=[(f.A, f.b) for f in p.losses])
            assert made.trajectory is not None
            errors.append(np.array([p.error(v) for v in made.trajectory["x"].mean(axis=1)[1:]]))
        error = sorted(errors, key=lambda one: float(one[-1]))[SEEDS // 2]
        sent = np.array([2.0 * AGENTS * k for k in range(1, len(error) + 1)])  # to both neighbours
        curves.append(Curve(ask, sent, error, f"T = {T}, step = {step:g}/L, c = {clip:g}", float(error[-1])))
    return min(curves, key=lambda curve: curve.final)


def _scenario(ask: Ask, p: Problem, T: int, step: float, clip: float, seed: int) -> Document:
    r, bound = p.regularizer, float(p.losses[0].R)
    L = max(f.L for f in p.losses)
    return {
        "hushgrid": 1, "name": NAME, "seed": seed, "network": {"kind": "ring", "nodes": AGENTS},
        "problem": {
            "kind": ask.kind, "row_bound": bound, "regularizer": {"l1": r.l1, "l2": r.l2},
            "data": {"arrays": [list(f.A.shape) for f in p.losses]},
        },
        "algorithm": {"name": ask.way, "rounds": T, "step_size": step / L},
        "privacy": {
            "mechanism": "gaussian", "adjacency": {"replace-one-record": {"clip": clip}}, "epsilon": ask.epsilon,
            "delta": private.DELTA, "accountant": "gdp",
        },
        "run": {"record": "trajectory"},
    }  # fmt: skip


def rows_of_curves(curves: Sequence[Curve]) -> Table:
    """Tables IV and V: the relative error at the end."""
    columns = ("data", "loss", "regulariser", "method", "best", "vectors sent", "relative error")
    rows = [(c.ask.set, c.ask.kind, c.ask.penalty, c.label, c.chosen, int(c.sent[-1]), c.final) for c in curves]
    return Table("Figures 2, 3, 5 and 6, Tables IV and V: the relative error at the end", columns, rows)


def panels(curves: Sequence[Curve]) -> list[list[Panel]]:
    """A row a set and figure: least squares and logistic regression."""

    def panel(title: str, chosen: list[Curve]) -> Panel:
        curves = {c.label: (c.sent, np.maximum(c.error, 1e-17)) for c in chosen}
        return Panel(title, "vectors sent", "relative error", curves)

    def chosen(name: str, kind: Kind, penalty: str, rival: bool) -> list[Curve]:
        here = [c for c in curves if (c.ask.set, c.ask.kind, c.ask.penalty) == (name, kind, penalty)]
        return [c for c in here if (c.ask.epsilon == EPSILON or c.ask.way == "none") == rival or c.ask.way == "none"]

    rows = []
    for name in sets():
        rows += [[panel(f"{name}, {k}, {p}", chosen(name, k, p, rival=False)) for k in KINDS] for p in PENALTIES]
        rows.append(
            [panel(f"{name}, {k}, ridge, ε = {EPSILON:g}", chosen(name, k, "ridge", rival=True)) for k in KINDS]
        )
    return rows


# --- Figures 4, 7, 8 and 9 ---


class Seen(NamedTuple):
    """The first gradient of each agent as an adversary has it, at x = 0, and the images."""

    source: str
    H: np.ndarray  #: (n, C, q)
    true: Matrix  #: (n, q)


def seen() -> list[Seen]:
    """RECAL's; DP-RECAL's by u alone, as if x said nothing, and by x; and the gates'."""
    sources = []
    ways: list[tuple[str, str, float, bool]] = [
        ("RECAL", "none", inf, False), ("DP-RECAL, from u alone", "published", EPSILON, False),
        ("DP-RECAL, from x", "published", EPSILON, True), ("noise at the gate", "guarded", EPSILON, False),
    ]  # fmt: skip
    for source, variant, epsilon, late in ways:
        ask = images.Ask(source, images.RECAL, variant, epsilon)
        rows = list(images.rows_for(ask))
        messages = parse(run(images.in_memory(ask), data=rows).transcript or [], source)
        p: Any = messages.algorithm
        problem, zero = messages.problem, np.zeros(messages.problem.size)
        alpha, beta = [p.alpha_i(i, L) for i, L in enumerate(problem.L)], p.beta_n(AGENTS)
        visits = messages.visits((zero, zero))
        read = (
            one_visit_late(visits, alpha, beta, problem.regularizer, problem.size)
            if late
            else at_once(visits, alpha, beta, problem.size)
        )
        H = np.array([read[i][0][2].reshape(problem.classes, problem.features) for i in range(AGENTS)])
        sources.append(Seen(source, H, np.concatenate([A for A, _ in rows])))
    return sources


class Matching(NamedTuple):
    """An image by gradient matching, and how far from the true one it was on the way."""

    image: Vector
    way: Vector  #: (iterations,) mean squared error


def match(H: Matrix, true: Vector, distance: Distance, tv: float) -> Matching:
    """One image behind one gradient H (C, q) at 0, by L-BFGS from a random start; `true` scores the way, at the best
    length.
    """
    C, q = H.shape
    task = Batch(np.zeros((1, C, q)), H[None], 1, distance, tv)
    draw = counter_generator(0, "figure", q)
    errors: list[float] = []

    def taken(v: Vector) -> None:
        errors.append(float(np.mean((_scaled(task.split(v)[0][0], true) - true) ** 2)))

    start = np.concatenate([draw.random(q), 0.1 * draw.normal(size=C)])
    taken(start)
    how = {"maxiter": ITERATIONS, "ftol": 1e-30, "gtol": 1e-14}
    optimum = minimize(task.value, start, jac=True, method="L-BFGS-B", callback=taken, options=how)
    return Matching(task.split(optimum.x)[0][0], np.array(errors))


def matched(every: Sequence[Seen]) -> tuple[Table, bytes, Panel]:
    """Figures 4, 7 and 8 as a table, Figure 4 as a picture too (the images, then a line a source), Figure 9 as a
    panel.
    """
    rows, lines, ways = [], [list(every[0].true[:SHOWN])], {}
    for figure, (distance, tv) in MATCHED.items():
        for s in every:
            got = [match(H, true, distance, tv) for H, true in zip(s.H, s.true, strict=True)]
            scored = [_scaled(m.image, t) for m, t in zip(got, s.true, strict=True)]
            cosines = [abs(cosine(m.image, t)) for m, t in zip(got, s.true, strict=True)]
            dB = [psnr(image, t) for image, t in zip(scored, s.true, strict=True)]
            rows.append((figure, s.source, float(np.median(cosines)), float(np.median(dB)), float(min(dB))))
            if tv == 0:
                lines.append([np.maximum(image, 0) for image in scored[:SHOWN]])
                length = max(m.way.size for m in got)
                padded = [np.pad(m.way, (0, length - m.way.size), mode="edge") for m in got]
                ways[s.source] = np.arange(1.0, length + 1), np.maximum(np.median(padded, axis=0), 1e-33)
    columns = ("figure", "gradient of", "cosine, median", "PSNR dB, median", "PSNR dB, worst")
    table = Table("Figures 4, 7 and 8: one image behind one gradient, by gradient matching", columns, rows)
    return table, png(sheet(lines, (8, 8))), Panel("Figure 9: DLG", "iterations", "mean squared error, median", ways)


def _scaled(image: Vector, true: Vector) -> Vector:
    """An image at the best length: soft labels and a row's length can be exchanged, and a cosine sees neither."""
    size = float(image @ image)
    scaled: Vector = image * (float(image @ true) / size if size else 0.0)
    return scaled


def study() -> list[Page]:
    """Tables, chart and picture."""
    curves = on_two(measure, every_setting(), lambda a: f"{a.set}, {a.kind}, {a.penalty}: {a.way} {a.epsilon:g}")
    table, picture, ninth = matched(seen())
    drawn = chart("Figures 2, 3, 5, 6 and 9 of the RECAL paper", [*panels(curves), [ninth]])
    pictures: dict[str, str | bytes] = {f"{NAME}-table.svg": drawn, f"{NAME}.png": picture}
    return [Page(f"{NAME}-table", [rows_of_curves(curves), table], pictures)]
