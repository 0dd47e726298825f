"""How near what was recovered comes to the truth that somebody held aside: cosine, PSNR, SSIM, labels, gradients."""

from __future__ import annotations

from math import inf, log10
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from hushgrid.broker.report.run_directory import arrays
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Declared, Loss
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.inversion.recovered import Gradients, Rows

WINDOW = 7  #: pixels a side, of SSIM
BEST = 320.0  #: dB: an image that is right in every bit has no noise to compare with


class Truth(NamedTuple):
    """A node's rows."""

    A: Matrix  #: (m, q)
    b: Vector  #: (m,)


class Pairs(NamedTuple):
    """Recovered rows beside the true ones, each true row once at most."""

    recovered: Matrix  #: (r, q)
    true: Matrix  #: (r, q)
    labels: Vector  #: (r,)
    right: Vector  #: (r,) the true labels


def truth(directory: Path, node: str, f: Declared) -> Truth:
    """The rows in DIR/<node>.npz: A (m, q), b (m,). Raises InputError, one line."""
    path = directory / f"{node}.npz"
    if not path.is_file():
        raise InputError(f"{path}: found no such file, expected A (m, q) and b (m,) of {node} (--truth)")
    held = arrays(path)
    if missing := [name for name in ("A", "b") if name not in held]:
        raise InputError(f"{path}: found no {', '.join(missing)}, expected A (m, q) and b (m,)")
    A, b = np.asarray(held["A"], np.float64), np.asarray(held["b"], np.float64)
    if A.shape != (f.rows, f.features) or b.shape != (f.rows,):
        expected = f"A {(f.rows, f.features)} and b {(f.rows,)}"
        raise InputError(f"{path}: found A {A.shape} and b {b.shape}, expected {expected}, as the plan says")
    return Truth(A, b)


def pairs(f: Declared, rows: Rows, true: Truth) -> Pairs:
    """Each recovered row beside the true row that it is most like, no true row twice.

    Of logistic regression (a, b) is taken for b a with label 1, of least squares up to a common sign: what can be told.
    """
    A, b = true.A, true.b.astype(np.float64)
    if f.objective.kind == "logistic":
        A, b = A * b[:, None], np.ones_like(b)
    like = np.array([[cosine(row, a) for a in A] for row in rows.rows]).reshape(len(rows.rows), len(A))
    signed = f.objective.kind == "least-squares"
    i, j = linear_sum_assignment(np.abs(like) if signed else like, maximize=True)
    sign = np.where(signed & (like[i, j] < 0), -1.0, 1.0)
    return Pairs(rows.rows[i] * sign[:, None], A[j], rows.labels[i] * sign, b[j])


def cosine(a: Vector, b: Vector) -> float:
    """a.b/(|a| |b|) over the entries that are known; 0 of a zero vector."""
    known = np.isfinite(a) & np.isfinite(b)
    size = float(np.linalg.norm(a[known]) * np.linalg.norm(b[known]))
    return float(a[known] @ b[known]) / size if size else 0.0


def psnr(image: Vector, true: Vector) -> float:
    """10 log10(peak^2/mean squared error) in dB, at most BEST; the peak is the largest entry of the true row."""
    peak = float(np.max(np.abs(true)))
    error = float(np.mean((image - true) ** 2))
    if not peak or error != error:
        return -BEST
    return min(10 * log10(peak**2 / error), BEST) if error else BEST


def ssim(image: Vector, true: Vector, shape: tuple[int, int]) -> float:
    """Structural similarity: its mean over all windows of 7 x 7 pixels, K1 = .01, K2 = .03, range that of the true
    image.

    Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, Image quality assessment (2004), (13), with uniform windows.
    """
    side = min(WINDOW, *shape)
    x, y = (np.lib.stride_tricks.sliding_window_view(v.reshape(shape), (side, side)) for v in (image, true))
    span = float(np.ptp(true)) or 1.0
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    axes, n = (2, 3), side * side
    mx, my = x.mean(axis=axes), y.mean(axis=axes)
    vx, vy = x.var(axis=axes) * n / (n - 1), y.var(axis=axes) * n / (n - 1)
    cov = ((x * y).mean(axis=axes) - mx * my) * n / (n - 1)
    index = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    return float(index.mean())


def score(
    f: Declared, seen: Gradients | None, rows: Rows, true: Truth, shape: tuple[int, int] | None
) -> dict[str, object]:
    """A node's scores: lists over its recovered rows, and the relative errors of its gradients."""
    paired = pairs(f, rows, true)
    both = list(zip(paired.recovered, paired.true, strict=True))
    return {
        "cosine": [cosine(a, t) for a, t in both],
        "psnr": [psnr(a, t) for a, t in both],
        "ssim": [ssim(a, t, shape) for a, t in both] if shape else [],
        "labels": [
            bool(abs(x - y) <= 1e-6 * max(1.0, abs(y))) for x, y in zip(paired.labels, paired.right, strict=True)
        ],
        "gradient_error": gradient_errors(f, seen, true) if seen is not None else [],
    }


def gradient_errors(f: Declared, seen: Gradients, true: Truth) -> list[float]:
    """|g - f'(at)|/|f'(at)| of every gradient, over the coordinates that are known of it, where the point is."""
    loss = Loss(f.objective, true.A, true.b, f.classes)
    errors = []
    for point, g in zip(seen.points, seen.g, strict=True):
        if np.isfinite(point).all() and (known := np.isfinite(g)).any():
            right = loss.gradient(point)
            errors.append(float(np.linalg.norm((g - right)[known]) / (np.linalg.norm(right[known]) or inf)))
    return errors


def together(nodes: dict[str, dict[str, Any]]) -> dict[str, object]:
    """The scores of all nodes: medians, the worst PSNR, the share of labels that are right; and each node's."""

    def every(key: str) -> list[float]:
        return [value for node in nodes.values() for value in node[key]]

    def median(key: str) -> float | None:
        return float(np.median(values)) if (values := every(key)) else None

    return {
        "cosine": median("cosine"),
        "psnr": median("psnr"),
        "psnr_worst": min(every("psnr"), default=None),
        "ssim": median("ssim"),
        "labels": float(np.mean(values)) if (values := every("labels")) else None,
        "gradient_error": median("gradient_error"),
        "nodes": nodes,
    }
