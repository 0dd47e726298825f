"""`hushgrid study recovered-images`: which images an eavesdropper recovers from runs on handwritten digits, and which
not.

The digits that ship; MNIST, Fashion-MNIST (IDX files) and CIFAR-10 (a folder, its first batch) where HUSHGRID_MNIST,
HUSHGRID_FASHION_MNIST, HUSHGRID_CIFAR10 say.
Every line is a run with a transcript and `hushgrid attack` on it, scored with the images that the nodes had: RECAL
without noise, with the published noise and with noise at the gate, one image and batches a node; and the star. Then
gradients of RECAL's other losses.
"""

from __future__ import annotations

import bz2
import json
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from math import inf, isqrt, nan, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hushgrid import scenarios
from hushgrid.broker.simulation import run
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.types import Document, DocumentView, Matrix, Vector
from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.inversion.pictures import png, sheet
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.problems.images import by_path, collection

NAME = "recovered-images"
NODES, ANSWERS = 8, 20
MANY = 48  #: nodes, where shares of them are told: labels that are guessed right
EPSILONS = (0.1, 1.0, 10.0, 100.0)
SHOWN = 8  #: images of the picture
DIGITS = "digits"  #: those that ship
RECAL: Document = {"name": "recal", "walk": "hamiltonian"}
LADMM: Document = {"name": "ladmm", "rho": 1.0}
FEDAVG: Document = {"name": "fedavg", "step_size": 1.0}
SOFTMAX = {"kind": "softmax", "classes": 10, "row_bound": 1.0, "l2": 0.01}


class Ask(NamedTuple):
    """One run: an algorithm's keys, its noise, the images of a node. clip: beyond every gradient of a row, |s| <= sqrt
    2.
    """

    title: str
    keys: DocumentView
    variant: str
    epsilon: float = inf
    m: int = 1
    nodes: int = NODES
    problem: DocumentView = MappingProxyType({})
    images: str = DIGITS

    @property
    def noise(self) -> str:
        return {"none": "none", "published": f"published, epsilon {self.epsilon:g} claimed"}.get(
            self.variant, f"at the gate, epsilon {self.epsilon:g}"
        )


class Recovery(NamedTuple):
    """What came of one."""

    ask: Ask
    scores: DocumentView  #: what `hushgrid attack --json` prints
    images: Matrix  #: the first images that were recovered, in the nodes' order
    true: Matrix  #: and the true ones
    noise: float  #: guarded: mean |answer - gradient|_1 over its expectation
    seconds: float  #: of the attack


def every_setting() -> list[Ask]:
    """The lines of the table of images."""
    both: list[Ask] = [Ask("RECAL", RECAL, "none"), Ask("RECAL", RECAL, "published", 0.1)]
    both += [Ask("RECAL", RECAL, "guarded", epsilon) for epsilon in EPSILONS]
    both += [Ask("RECAL", RECAL, "none", m=4), Ask("RECAL", RECAL, "published", 0.1, m=4)]
    both += [Ask("RECAL", RECAL, "none", m=8, nodes=25), Ask("RECAL", RECAL, "published", 0.1, m=8, nodes=25)]
    both += [Ask("RECAL", RECAL, "guarded", 100.0, m=8)]
    both += [Ask(k["name"], k, "none", m=m) for k in (LADMM, FEDAVG) for m in (1, 8)]
    both += [Ask(f"{k['name']}, E = 5", k | {"local_updates": 5}, "none", m=m) for k in (LADMM, FEDAVG) for m in (1, 4)]
    both += [Ask("ladmm", LADMM, "guarded", epsilon) for epsilon in (1.0, 100.0)]
    many = ((title, keys, e) for title, keys in (("RECAL", RECAL), ("ladmm", LADMM)) for e in (10.0, 100.0, 1000.0))
    return both + [Ask(title, keys, "guarded", e, nodes=MANY) for title, keys, e in many]


def gradients_asked() -> list[Ask]:
    """The lines of the table of gradients: problems on made-up rows."""
    ridge: Document = {"kind": "least-squares", "l2": 0.1, "row_bound": 1.0}
    kinds = {
        "least squares": ridge,
        "logistic": ridge | {"kind": "logistic"},
        "least squares, l1": ridge | {"regularizer": {"l1": 0.01}},
    }
    ways = (("none", inf), ("published", 0.1), ("published", 12.0), ("guarded", 1.0))
    return [Ask(title, RECAL, v, e, m=200, problem=p) for title, p in kinds.items() for v, e in ways]


def asked_by_path() -> list[Ask]:
    """The lines of the table of images by path."""
    ways = [
        Ask("RECAL", RECAL, "none"),
        Ask("RECAL", RECAL, "published", 0.1),
        Ask("RECAL", RECAL, "published", 0.1, m=8),
    ]
    ways += [Ask("RECAL", RECAL, "guarded", epsilon) for epsilon in (1.0, 100.0)]
    ways += [Ask("ladmm", LADMM, "none", m=8), Ask("ladmm", LADMM, "guarded", 100.0)]
    return [ask._replace(images=name) for name in by_path() for ask in ways]


@cache
def images_of(name: str) -> Matrix:
    """(m, q + 1) images as rows, their labels in the last column."""
    if name == DIGITS:
        return digits()
    A, b = collection(name, batches=1)
    return np.column_stack([A, b])


@cache
def digits() -> Matrix:
    """(1438, 65) the images that ship, their labels in the last column."""
    with bz2.open(Path(scenarios.__file__).parent / "data/digits.trn.csv.bz2", "rt") as file:
        return np.loadtxt(file, delimiter=",")


def rows_for(ask: Ask) -> Iterator[tuple[Matrix, Vector]]:
    """Each node's rows, of unit norm: images at random, or made up (22 features, a common model)."""
    draw = np.random.default_rng(7)
    if not ask.problem:
        every = images_of(ask.images)
        for chosen in draw.permutation(len(every))[: ask.nodes * ask.m].reshape(ask.nodes, ask.m):
            A = every[chosen, :-1]
            yield A / np.linalg.norm(A, axis=1, keepdims=True), every[chosen, -1]
        return
    model = draw.normal(size=22)
    for _ in range(ask.nodes):
        A = draw.normal(size=(ask.m, 22))
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        b = A @ model + 0.1 * draw.normal(size=ask.m)
        yield A, np.sign(b) if ask.problem["kind"] == "logistic" else b


def scenario(ask: Ask, place: Path) -> Document:
    """The run as a scenario, its rows in files of `place`."""
    for i, (A, b) in enumerate(rows_for(ask)):
        np.savez(place / f"n{i}.npz", A=A, b=b)
    return _scenario(ask, {"files": [str(place / f"n{i}.npz") for i in range(ask.nodes)]})


def in_memory(ask: Ask) -> Document:
    """The run as a scenario whose rows are given in Python."""
    return _scenario(ask, {"arrays": [list(A.shape) for A, _ in rows_for(ask)]})


def _scenario(ask: Ask, data: DocumentView) -> Document:
    walks = "walk" in ask.keys
    raw: Document = {
        "hushgrid": 1,
        "name": NAME,
        "seed": 1,
        "problem": dict(ask.problem or SOFTMAX) | {"data": data},
        "algorithm": {**ask.keys, "variant": ask.variant, "rounds": ANSWERS * (ask.nodes if walks else 1)},
        "run": {"record": "transcript"},
    }
    if walks:
        raw["network"] = {"kind": "ring", "nodes": ask.nodes}
    if ask.variant != "none":
        raw["privacy"] = {
            "mechanism": "gaussian",
            "adjacency": {"replace-one-record": {"clip": sqrt(2) if not ask.problem else 10.0}},
            "epsilon": ask.epsilon,
            "delta": 1e-5,
            "accountant": "gdp",
        }
    return raw


def measure(ask: Ask) -> Recovery:
    """A run, and the attack on it."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        made = run(scenario(ask, place))
        (place / "result.json").write_text(json.dumps(made.summary))
        (place / "transcript.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made.transcript or ()))
        began = time.perf_counter()
        scores = attack(place, place)
        seconds = time.perf_counter() - began
        recovered = np.load(place / "attack/recovered.npz")
        true = [np.load(place / f"n{i}.npz")["A"] for i in range(ask.nodes)]
        images = [recovered[f"rows_n{i}"] for i in range(ask.nodes) if f"rows_n{i}" in recovered]
        noise = _noise(ask, recovered, place, made.history) if ask.variant == "guarded" else nan
        sheet_images = np.concatenate(images)[:SHOWN] if images else np.zeros((0, true[0].shape[1]))
        return Recovery(ask, scores, sheet_images, np.concatenate(true)[:SHOWN], noise, seconds)


def _noise(ask: Ask, recovered: Any, place: Path, history: DocumentView) -> float:
    """The mean of |answer - gradient|_1 over what the gates' noise is expected to be, a public number."""
    p: Any = ask.problem or SOFTMAX
    total = 0.0
    for i in range(ask.nodes):
        held = np.load(place / f"n{i}.npz")
        loss = Loss(Objective(kind=p["kind"], l2=p["l2"]), held["A"], held["b"], 10 if not ask.problem else 1)
        pairs = zip(recovered[f"at_n{i}"], recovered[f"g_n{i}"], strict=True)
        total += sum(float(np.abs(g - loss.gradient(point)).sum()) for point, g in pairs)
    gradients = sum(len(recovered[f"g_n{i}"]) for i in range(ask.nodes))
    answers = ANSWERS * ask.nodes
    return float(total / gradients / (sum(v for v in history["noise_l1_expected"] if v) / answers))


def image_table(lines: list[Recovery], title: str = "Images that were recovered") -> Table:
    """A line a run."""
    rows = []
    for li in lines:
        s, nodes = li.scores["scores"], li.scores["rows"].values()
        sure, most = sum(r["consistent"] for r in nodes), max((r["residual"] or 0.0 for r in nodes), default=nan)
        cosines = [abs(c) for node in s["nodes"].values() for c in node["cosine"]]
        error = s["gradient_error"] if s["gradient_error"] is not None else nan
        rows.append(
            (
                li.ask.title if li.ask.images == DIGITS else f"{li.ask.images}: {li.ask.title}",
                li.ask.nodes,
                li.ask.m,
                li.ask.noise,
                error,
                f"{sure} of {len(nodes)}",
                most,
                float(np.median(cosines)),
                s["psnr"],
                s["psnr_worst"],
                s["ssim"],
                f"{s['labels']:.0%}",
                li.noise,
                li.seconds,
            )
        )
    columns = (
        "algorithm",
        "nodes",
        "images a node",
        "noise",
        "gradient error, median",
        "nodes with rows consistent",
        "largest residual",
        "cosine, median",
        "PSNR dB, median",
        "PSNR dB, worst",
        "SSIM, median",
        "labels right",
        "noise over expected",
        "seconds",
    )
    return Table(title, columns, rows)


def gradient_table(lines: list[Recovery]) -> Table:
    """A line a problem and noise."""
    rows = []
    for li in lines:
        count = sum(g["count"] for g in li.scores["gradients"].values())
        complete = sum(g["complete"] for g in li.scores["gradients"].values())
        worst = max(e for node in li.scores["scores"]["nodes"].values() for e in node["gradient_error"])
        rows.append(
            (li.ask.title, li.ask.noise, count, complete, li.scores["scores"]["gradient_error"], worst, li.noise)
        )
    columns = ("problem", "noise", "gradients read", "complete", "error, median", "error, worst", "noise over expected")
    return Table("RECAL's gradients on other losses: 8 nodes of 200 made-up rows, 20 visits each", columns, rows)


def picture(lines: list[Recovery]) -> bytes:
    """The first images: true; recovered without noise, with the published, and with the gate's; of one collection."""
    ones = [li for li in lines if li.ask.title == "RECAL" and li.ask.m == 1 and li.ask.nodes < MANY]
    q = ones[0].true.shape[1]
    side = isqrt(q) if isqrt(q) ** 2 == q else isqrt(q // 3)  # three colours, one below the other
    return png(sheet([list(ones[0].true), *(list(li.images) for li in ones)], (q // side, side)))


def curves(lines: list[Recovery]) -> str:
    """PSNR against the epsilon that is claimed, of one image a node."""
    ways = {"noise at the gate": "guarded", "published noise": "published"}
    by_way = {
        name: [
            li for li in lines if (li.ask.title, li.ask.m, li.ask.variant) == ("RECAL", 1, way) and li.ask.nodes < MANY
        ]
        for name, way in ways.items()
    }
    psnr = {
        n: (np.array([li.ask.epsilon for li in ls]), np.array([li.scores["scores"]["psnr"] for li in ls]))
        for n, ls in by_way.items()
    }
    panel = Panel(
        "One image a node", "epsilon that is claimed", "PSNR, dB, median", psnr, xlog=True, marks=True, linear=10.0
    )
    return chart("Images recovered from RECAL's token", [[panel]])


def study() -> list[Page]:
    """Tables, chart and pictures; of images by path one more table, and a picture of each collection."""
    digit, other, further = every_setting(), gradients_asked(), asked_by_path()
    lines = on_two(measure, [*digit, *other, *further], lambda a: f"{a.images}: {a.title}, {a.m} a node: {a.noise}")
    images, gradients, others = lines[: len(digit)], lines[len(digit) :][: len(other)], lines[len(digit) + len(other) :]
    made = [image_table(images), gradient_table(gradients)]
    made += [image_table(others, "Images by path")] if others else []
    sheets = {NAME: images} | {f"{NAME}-{name}": [li for li in others if li.ask.images == name] for name in by_path()}
    pictures: dict[str, str | bytes] = {f"{name}.png": picture(runs) for name, runs in sheets.items()}
    return [Page(f"{NAME}-table", made, {f"{NAME}-table.svg": curves(images)} | pictures)]
