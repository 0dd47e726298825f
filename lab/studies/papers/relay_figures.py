"""`hushgrid study relay-figures`: Figures 2 to 9 of the RECAL paper, and Tables IV and V, on images of two classes.

The digits 0 and 1 that ship; the paper's two classes of MNIST, Fashion-MNIST (IDX files) and CIFAR-10 (a folder) where
HUSHGRID_MNIST, HUSHGRID_FASHION_MNIST, HUSHGRID_CIFAR10 say. Convergence: a ring of 8 and 2400
activations, as in lab/studies/relay/private.py. What an adversary sees: one gradient of an agent with one image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from hushgrid.broker.simulation import run
from hushgrid.kernels.problems.losses import Kind
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.attacks.recal import at_once, one_visit_late
from hushgrid.lab.attacks.transcript import parse
from hushgrid.lab.inversion.matching import Batch, Distance
from hushgrid.lab.inversion.pictures import png, sheet
from hushgrid.lab.inversion.scores import cosine, psnr
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.papers import recovered_images as images
from hushgrid.lab.studies.problems.images import by_path, two_of
from hushgrid.lab.studies.problems.relay import AGENTS, PENALTIES, Problem, of_images
from hushgrid.lab.studies.relay import private, rivals
from hushgrid.node.problems.records.files import Shard

NAME = "relay-figures"
KINDS: tuple[Kind, ...] = ("least-squares", "logistic")
CLAIMS = (1.0, 5.0, 10.0)  #: Figures 2 and 5
EPSILON = 12.0  #: Figures 3 and 6, Tables IV and V
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
    return by_name | {name: partial(two_of, name) for name in by_path()}


def digits() -> Shard:
    """The images of 0 and 1 that ship, pixels in [0, 1]."""
    A, b = images.digits()[:, :-1], images.digits()[:, -1]
    return Shard(A[b <= 1] / 16.0, np.where(b[b <= 1] > 0, 1.0, -1.0))


class Ask(NamedTuple):
    """One curve: the set, the loss, the regulariser; the way as in relay/private.py, or a method of relay/rivals.py."""

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
        return "RECAL, no noise" if self.ask.way == "none" else f"published, ε = {self.ask.epsilon:g} claimed"


def every_setting() -> list[Ask]:
    """Figures 2 and 5."""
    asks = []
    for name, kind, penalty in product(sets(), KINDS, PENALTIES):
        asks.append(Ask(name, kind, penalty, "none"))
        asks += [Ask(name, kind, penalty, "published", epsilon) for epsilon in (*CLAIMS, EPSILON)]
    return asks


def every_rival() -> list[tuple[Ask, str]]:
    """Figures 3 and 6, Tables IV and V: each with its noise."""
    asks = []
    for name, kind, penalty in product(sets(), KINDS, PENALTIES):
        methods = rivals.compared(PENALTIES[penalty])
        asks += [(Ask(name, kind, penalty, method, EPSILON), noise) for method, noise in methods]
    return asks


def measure_rival(task: tuple[Ask, str]) -> rivals.RivalLine:
    ask, noise = task
    return rivals.measure(problem(ask), ask.way, noise)._replace(problem=f"{ask.set}, {ask.kind}, {ask.penalty}")


def problem(ask: Ask) -> Problem:
    return of_images(ask.set, sets()[ask.set](), ask.kind, PENALTIES[ask.penalty])


def measure(ask: Ask) -> Curve:
    """A curve; of the way's free parameters the best by the error at the end, which no run could see."""
    p = problem(ask)
    line = private.best_of(p, private.Ask(p.name, ask.way, ask.epsilon))
    sent = np.array([2.0 * k for k in range(1, line.curve.size + 1)])
    return Curve(ask, sent, line.curve, line.chosen, line.error)


def rows_of_curves(curves: Sequence[Curve]) -> Table:
    """The relative error at the end."""
    columns = ("data", "loss", "regulariser", "method", "best", "vectors sent", "relative error")
    rows = [(c.ask.set, c.ask.kind, c.ask.penalty, c.label, c.chosen, int(c.sent[-1]), c.final) for c in curves]
    return Table("Figures 2 and 5: the relative error at the end", columns, rows)


def panels(curves: Sequence[Curve], lines: Sequence[rivals.RivalLine]) -> list[list[Panel]]:
    """Least squares beside logistic regression. Of each set a row of Figures 2 and 5 a regulariser, then Figures 3 and
    6: errors with either noise, accuracy with the gate's.
    """

    def claims(name: str, kind: Kind, penalty: str) -> Panel:
        here = [c for c in curves if (c.ask.set, c.ask.kind, c.ask.penalty) == (name, kind, penalty)]
        drawn = {c.label: (c.sent, np.maximum(c.error, 1e-17)) for c in here}
        return Panel(f"{name}, {kind}, {penalty}", "vectors sent", "relative error", drawn)

    def methods(name: str, kind: Kind, noise: str, what: str) -> Panel:
        place = f"{name}, {kind}, ridge"
        here = [line for line in lines if (line.problem, line.noise) == (place, noise)]
        drawn = {line.method: (line.curve.sent, getattr(line.curve, what)) for line in here if line.curve}
        label, linear = ("relative error", 0.0) if what == "error" else ("accuracy", inf)
        return Panel(f"{name}, {kind}, {noise}", "vectors sent", label, drawn, xlog=True, linear=linear)

    rows = []
    for name in sets():
        rows += [[claims(name, kind, penalty) for kind in KINDS] for penalty in PENALTIES]
        rows += [
            [methods(name, kind, noise, what) for kind in KINDS]
            for noise, what in (("published", "error"), ("gate", "error"), ("gate", "accuracy"))
        ]
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
    lines = on_two(measure_rival, every_rival(), lambda task: f"{', '.join(task[0][:4])}: {task[1]}")
    compared = rivals.table(f"Figures 3 and 6, Tables IV and V: all methods, ε = {EPSILON:g}", lines)
    table, picture, ninth = matched(seen())
    drawn = chart("Figures 2, 3, 5, 6 and 9 of the RECAL paper", [*panels(curves, lines), [ninth]])
    pictures: dict[str, str | bytes] = {f"{NAME}-table.svg": drawn, f"{NAME}.png": picture}
    return [Page(f"{NAME}-table", [rows_of_curves(curves), compared, table], pictures)]
