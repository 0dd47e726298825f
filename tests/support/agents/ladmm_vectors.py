"""The stored runs of Algorithm 3.1 on rows (tests/vectors/README.md), and the machines that go through them."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import msgspec
import numpy as np

from hushgrid.kernels.algorithms.ladmm import Agent, Params, Server
from hushgrid.kernels.patterns.star import ServerContext
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Box

PLACE = Path(__file__).resolve().parents[2] / "vectors"
ABOUT = json.loads((PLACE / "ladmm_data.json").read_text())
STORED = np.load(PLACE / "ladmm_data.npz")
NODES = [f"n{i}" for i in range(5)]


def stored(name, key):
    return STORED[f"{name}/{key}"]


def losses(name):
    about = ABOUT[name]
    objective = Objective(kind=about["kind"], scale=about["scale"], l2=about["l2"])
    return [Loss(objective, stored(name, f"A_{n}"), stored(name, f"b_{n}"), about["classes"]) for n in NODES]


class Oracle:
    """A node's gradients without a gate, with the stored noise where its mode has it."""

    def __init__(self, loss, xi):
        self.loss, self.xi = loss, iter(xi)

    def exact_gradient(self, x):
        return self.loss.gradient(x)

    def gradient(self, x):
        return self.loss.gradient(x) + next(self.xi)

    def perturb(self, x):
        return x + next(self.xi)


def machines(name, params):
    """The server, and the agents by name."""
    about, fs = ABOUT[name], losses(name)
    size, L, epsilon = fs[0].size, max(f.L for f in fs), about["epsbar"] or inf
    every = np.arange(size)
    centre = ServerContext(
        position=dict.fromkeys(NODES, every), start=dict.fromkeys(NODES, np.zeros(size)),
        epsilon=epsilon, tolerance=0.0, patience=0,
    )  # fmt: skip
    mode = about["mode"] if about["noise_sd"] else "none"
    agents = {}
    for p, (node, loss) in enumerate(zip(NODES, fs, strict=True)):
        xi = stored(name, "xi")[:, :, p].reshape(-1, size) if about["noise_sd"] else []
        perturbation = "gate" if mode == "objective" else mode
        agents[node] = Agent(
            params, Oracle(loss, xi), Box(about["box"]), every, np.zeros(size), L,
            perturbation=perturbation, epsilon=epsilon, alpha=about["l2"],
        )  # fmt: skip
    return Server(params, centre), agents


def params(name):
    about = ABOUT[name]
    raw = {"rounds": about["T"], "rho": about["rho"], "eta": about["eta"], "local_updates": about["E"]}
    return msgspec.convert(raw, Params)
