"""Every kernel beside its naive twin, with right and wrong arguments."""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import dpladmm, dpp2, iadmm, radmm, recal
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.problems import losses, prox
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.lab.rollout.compiled import dpp2 as whole_dpp2
from hushgrid.lab.rollout.compiled import iadmm as whole_iadmm
from hushgrid.lab.rollout.compiled import recal as whole_recal
from hushgrid.lab.rollout.compiled import stacked
from hushgrid.lab.rollout.compiled.mixing import Edges, mix

M, C = 7, 4


rng = np.random.default_rng(1)


x, t, b = rng.normal(size=(3, M))


T = rng.normal(size=(C, M))


Y = (np.arange(C)[:, None] == rng.integers(0, C, M)).astype(np.float64)


SHORT = np.zeros(2)


class Row(NamedTuple):
    kernel: Callable[..., Any]
    twin: Callable[..., Any]
    right: tuple[Any, ...]
    wrong: tuple[Any, ...]


def activated(x, u, y, lam, g, alpha, beta, n, l1, l2, box):
    """(7a)-(7d) of one coordinate."""
    half = lam + beta * (x - y)
    v = x - (u + half - lam)
    shrunk = math.copysign(max(abs(v) - n * l1, 0), v) / (1 + n * l2)
    x_new, y_new = max(-box, min(box, shrunk)), y - alpha * (g - half)
    return x_new, y_new, half + beta * ((x_new - x) - (y_new - y))


def slope(kind, t, b):
    return -b / (1 + math.exp(b * t)) if kind in ("logistic", stacked.LOGISTIC) else t - b


def derivative(f, x):
    """f_i'(x), row by row."""
    o, total = f.objective, np.zeros(x.size)
    for a, b in zip(f.A, f.b, strict=True):
        total = total + slope(o.kind, sum(a * x), b) * a
    return o.scale / f.rows * total + [o.l2 * v + 2 * o.lam * o.omega * v / (1 + o.omega * v * v) ** 2 for v in x]


def recal_twin(fs):
    """Algorithm 1, the noise on the gradient, the paper's eps on u."""

    def run(f, walk, x, u, y, lam, last, alpha, beta, l1, l2, box, noise, eps, kept, record):
        for k, i in enumerate(walk):
            g, start, lam_i = derivative(fs[i], y[i]) + noise[k], x.copy(), lam[i].copy()
            for j in range(x.size):
                x[j], y[i, j], lam[i, j] = activated(
                    start[j], u[j], y[i, j], lam_i[j], g[j], alpha[i], beta, len(fs), l1, l2, box
                )
                u[j] += lam[i, j] - lam_i[j] - eps[k, j] + kept * last[i, j]
                last[i, j] = eps[k, j]
            record[k] = x, u

    return run


def iadmm_twin(fs, exact):
    """Algorithms 1 to 4; (4a) by solving its normal equations."""

    def run(f, walk, z, x, y, rho, gamma, omega, record):
        for k, i in enumerate(walk):
            r, A, o = rho * gamma[k], fs[i].A, fs[i].objective
            if exact:
                H = o.scale / fs[i].rows * A.T @ A + (o.l2 + r) * np.eye(z.size)
                new = np.linalg.solve(H, r * z + y[i] + o.scale / fs[i].rows * fs[i].b @ A)
            else:
                new = z + y[i] / r - derivative(fs[i], x[i]) / r
            new = new + omega[k]
            y_new = y[i] + r * (z - new)
            z += ((new - y_new / rho) - (x[i] - y[i] / rho)) / len(fs)
            x[i], y[i] = new, y_new
            record[k] = z, new

    return run


def mix_twin(start, near, weight, v, out):
    for i in range(len(v)):
        out[i] = sum(weight[e] * (v[i] - v[near[e]]) for e in range(start[i], start[i + 1]))


def dpp2_twin(fs, graph):
    """Algorithm 1 with the matrix P, the gate's noise on the gradient."""

    def run(f, edges, x, q, d, alpha, beta, rho, eta, noise, w, e, record):
        P = np.eye(graph.n) - graph.metropolis()
        for k in range(eta.size):
            y = x + (1 - eta[k]) * d + w[k]
            g = np.array([derivative(fs[i], x[i]) for i in range(graph.n)]) + noise[k]
            z = g + eta[k] * q + rho * P @ y + e[k]
            x[:] = x + w[k] - alpha * (z - e[k]) + beta * P @ z
            d[:], q[:] = eta[k] * d + y, eta[k] * q + rho * P @ y
            record[k] = x, q

    return run


def rounds_rows():
    """Four nodes of unlike numbers of rows on a path: in Gram form, logistic and nonconvex."""
    graph, draw, K, q = Network(kind="path", nodes=4).build(), np.random.default_rng(3), 3, 2
    edges = Edges.from_graph(graph)
    v, out, noise, w, e = draw.normal(size=(4, q)), np.zeros((4, q)), *draw.normal(size=(3, K, 4, q))
    yield Row(mix, mix_twin, (*edges, v, out), (*edges, v, out[:2]))
    yield Row(
        dpp2.merged, lambda g, q, Py, eta, rho: [g + eta * q + rho * Py, eta * q + rho * Py],
        (v, *draw.normal(size=(2, 4, q)), 0.3, 2.0), (v, v[:3], v, 0.3, 2.0),
    )  # fmt: skip
    for kind in ("least-squares", "logistic"):
        o = Objective(kind=kind, l2=0.3, nonconvex=losses.Nonconvex(lam=0.1, omega=2.0))
        fs = [Loss(o, draw.normal(size=(m, q)), np.sign(draw.normal(size=m))) for m in (3, 4, 5, 6)]
        state, record = draw.normal(size=(3, 4, q)), np.zeros((K, 2, 4, q))
        numbers = 0.1, 0.05, 2.0, draw.uniform(0.1, 0.9, K)
        yield Row(
            whole_dpp2.whole_run,
            dpp2_twin(fs, graph),
            (stacked.stack(fs), edges, *state, *numbers, noise, w, e, record),
            (stacked.stack(fs), edges, *state, *numbers, noise[1:], w, e, record),
        )


def agents_rows():
    """Two agents of unlike numbers of rows: as rows, in Gram form, by their spectra."""
    for number in (stacked.LEAST_SQUARES, stacked.LOGISTIC):
        yield Row(
            stacked.slope, lambda kind, t, b: [slope(kind, t[j], b[j]) for j in range(M)],
            (number, t, np.sign(b)), (number, t, SHORT),
        )  # fmt: skip
    draw, K, q = np.random.default_rng(2), 5, 3
    walk, noise, eps, gamma = np.array([0, 1, 1, 0, 1]), *draw.normal(size=(2, K, q)), draw.uniform(0.9, 1.1, K)
    for kind, rows in (("least-squares", 2), ("logistic", 7), ("least-squares", 5)):
        nonconvex = losses.Nonconvex(lam=0.1, omega=2.0) if kind == "logistic" else None
        o = Objective(kind=kind, scale=1.5, l2=0.3, nonconvex=nonconvex)
        fs = [Loss(o, draw.normal(size=(m, q)), np.sign(draw.normal(size=m))) for m in (rows, rows - 1)]
        f = stacked.stack(fs)
        point, out, own = draw.normal(size=q), np.zeros(q), slice(*f.start[:2])
        arguments = f.kind, f.A[own], f.b[own], f.factor[0], f.l2, f.lam, f.omega

        def gradient_twin(*a, fs=fs):
            a[-1][:] = derivative(fs[0], a[-2])

        yield Row(stacked.gradient, gradient_twin, (*arguments, point, out), (*arguments, SHORT, out))
        x, u, record = *draw.normal(size=(2, q)), np.zeros((K, 2, q))
        y, lam, last = draw.normal(size=(3, 2, q))
        numbers = np.array([0.3, 0.2]), 0.15, 0.02, 0.1, 0.9
        yield Row(
            whole_recal.whole_walk, recal_twin(fs),
            (f, walk, x, u, y, lam, last, *numbers, noise, eps, 1.0, record),
            (f, walk + 1, x, u, y, lam, last, *numbers, noise, eps, 1.0, record),
        )  # fmt: skip
        for exact in (False, True) if kind == "least-squares" else (False,):
            f = stacked.stack(fs, exact)
            yield Row(
                whole_iadmm.whole_walk, iadmm_twin(fs, exact), (f, walk, x, y, lam, 5.0, gamma, noise, record),
                (f, walk, x, y, lam, 5.0, gamma[1:], noise, record),
            )  # fmt: skip
    e, V, h = f.e[0], f.A[:q].copy(), f.b[:q].copy()

    def minimizer_twin(e, V, h, linear, rho, out):
        out[:] = np.linalg.solve((V.T * e) @ V + rho * np.eye(q), h @ V - linear)

    yield Row(stacked.minimizer, minimizer_twin, (e, V, h, point, 2.0, out), (e, V, h, SHORT, 2.0, out))
    yield Row(stacked.check, lambda *a: None, (walk, y, noise, record), (walk - 1, y, noise, record))


def admm_rows():
    """A node with three neighbours, and one without."""
    draw = np.random.default_rng(3)
    f, lam, v, s = draw.normal(size=(4, M))
    for V in (3, 0):
        eta, F = draw.uniform(0.2, 2.0, V), draw.normal(size=(V, M))
        yield Row(
            radmm.linear,
            lambda f, lam, eta, F: [
                2 * lam[k] - sum(eta[j] * (f[k] + F[j][k]) for j in range(len(F))) for k in range(M)
            ],
            (f, lam, eta, F),
            (f, SHORT, np.ones(2), np.ones((2, M))),
        )
        yield Row(
            radmm.disagreement,
            lambda f, eta, F: [sum(eta[j] * (f[k] - F[j][k]) for j in range(len(F))) for k in range(M)],
            (f, eta, F),
            (SHORT, np.ones(2), np.ones((2, M))),
        )
    yield Row(
        radmm.recycled,
        lambda f, lam, v, s, eta, gamma: [
            f[k] - (2 * lam[k] + s[k] - v[k] - 2 * eta * f[k]) / (2 * eta + gamma) for k in range(M)
        ],
        (f, lam, v, s, 1.5, 0.5),
        (f, SHORT, v, s, 1.5, 0.5),
    )
    yield Row(
        dpladmm.linearised,
        lambda f, g, v, quadratic, s: [(f[k] / s - g[k] - v[k]) / (quadratic + 1 / s) for k in range(M)],
        (f, lam, v, 1.5, 0.3),
        (f, SHORT, v, 1.5, 0.3),
    )


TABLE = [
    Row(prox.soft, lambda v, t: [math.copysign(max(abs(a) - t, 0), a) for a in v], (x, 0.4), (x, SHORT)),
    Row(prox.shrink, lambda v, t: [a / (1 + t) for a in v], (x, 0.4), (x, SHORT)),
    Row(prox.clip, lambda v, bound: [max(-bound, min(bound, a)) for a in v], (x, 0.5), (x, SHORT)),
    Row(
        prox.elastic_net,
        lambda v, t, l1, l2, bound: [
            max(-bound, min(bound, math.copysign(max(abs(a) - t * l1, 0), a) / (1 + t * l2))) for a in v
        ],
        (x, 3.0, 0.1, 0.2, 0.5),
        (x, 3.0, SHORT, 0.2, 0.5),
    ),
    Row(losses.least_squares_slope, lambda t, b: [t[j] - b[j] for j in range(M)], (t, b), (t, SHORT)),
    Row(
        losses.logistic_slope,
        lambda t, b: [-b[j] / (1 + math.exp(b[j] * t[j])) for j in range(M)],
        (t, np.sign(b)),
        (t, SHORT),
    ),
    Row(
        losses.softmax_slope,
        lambda T, Y: [
            [math.exp(T[c, j]) / sum(math.exp(T[k, j]) for k in range(C)) - Y[c, j] for j in range(M)] for c in range(C)
        ],
        (T, Y),
        (T, Y[:2].copy()),
    ),
    Row(
        losses.public_gradient,
        lambda x, l2, lam, omega: [l2 * a + 2 * lam * omega * a / (1 + omega * a * a) ** 2 for a in x],
        (x, 0.5, 0.1, 2.0),
        (x, SHORT, 0.1, 2.0),
    ),
    Row(
        losses.clip_slope,
        lambda S, size, rows, c: [S[j] * min(1, c / (size[j] * rows[j])) for j in range(M)],
        (b, np.abs(b), np.abs(t), 0.5),
        (b, np.abs(b), SHORT, 0.5),
    ),
    Row(
        losses.clip_slope,
        lambda S, size, rows, c: [[S[k, j] * min(1, c / (size[j] * rows[j])) for j in range(M)] for k in range(C)],
        (T, np.linalg.norm(T, axis=0), np.abs(t), 0.5),
        (T, np.abs(b), SHORT, 0.5),
    ),
    Row(
        recal.activation,
        lambda x, u, y, lam, g, *numbers: np.transpose(
            [activated(*scalars, *numbers) for scalars in zip(x, u, y, lam, g, strict=True)]
        ),
        (x, t, b, *T[:2, :M], 0.3, 0.1, 4.0, 0.05, 0.2, 0.8),
        (x, SHORT, b, *T[:2, :M], 0.3, 0.1, 4.0, 0.05, 0.2, 0.8),
    ),
    Row(
        iadmm.first_order,
        lambda z, y, g, rho: [z[j] + y[j] / rho - g[j] / rho for j in range(M)],
        (x, t, b, 2.5),
        (x, t, SHORT, 2.5),
    ),
    Row(
        iadmm.dual,
        lambda y, z, x, rho: [y[j] + rho * (z[j] - x[j]) for j in range(M)],
        (x, t, b, 2.5),
        (x, t, SHORT, 2.5),
    ),
    Row(
        iadmm.token,
        lambda z, x, y, x_new, y_new, rho, N: [
            z[j] + ((x_new[j] - y_new[j] / rho) - (x[j] - y[j] / rho)) / N for j in range(M)
        ],
        (x, t, b, *T[:2, :M], 2.5, 8.0),
        (x, t, b, SHORT, T[0], 2.5, 8.0),
    ),
    *admm_rows(),
    *agents_rows(),
    *rounds_rows(),
]


def named(row: Row) -> str:
    return row.kernel.__name__.lstrip("_")


def answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What it returns, or its arrays as they are after it; one row of numbers."""
    arguments = copy.deepcopy(arguments)
    returned = function(*arguments)
    found = [a for a in arguments if isinstance(a, np.ndarray)] if returned is None else [np.asarray(returned)]
    return np.concatenate([a.ravel() for a in found])
