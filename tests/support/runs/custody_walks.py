"""Walks of small fleets that are cut off, killed or lied to."""

import numpy as np

from tests.support.runs.walk_in_memory import token_of

FOUR = {"network": {"kind": "complete", "nodes": 4}}
LONG = {
    "recal": FOUR | {"algorithm.rounds": 60},
    "iadmm": FOUR | {"algorithm": {"name": "iadmm", "rounds": 60, "rho": 1.0}},
    "wadmm": FOUR | {"algorithm": {"name": "wadmm", "rounds": 60, "rho": 1.0}},
}
CUT = 9  #: the token whose receiver is cut off


def cut_off(walk, moment, hop=CUT):
    """Who is delivered token `hop` first is cut off before it, after it, or between taking it and saying so: its
    name.
    """
    victim = []

    def at(delivery):
        if token_of(delivery) == (hop, 0) and not victim:
            victim.append(delivery.dst)
            return moment
        return None

    walk.hub.moment = at
    return victim


# --- lost for good: without noise, so that the limit is an optimum ---

EXACT = {"privacy": None, "problem.kind": "least-squares", "network": {"kind": "complete", "nodes": 5}}
LOST = {
    "recal": EXACT | {"algorithm": {"name": "recal", "rounds": 1600, "variant": "none"}},
    "iadmm": EXACT | {"algorithm": {"name": "iadmm", "rounds": 600, "rho": 0.3, "variant": "none"}},
    "wadmm": EXACT | {"algorithm": {"name": "wadmm", "rounds": 900, "rho": 0.3, "variant": "none"}},
}


def stands_still(losses, linear=0.0, rho=0.0, at=0.0):
    """argmin sum_i f_i(x) + <linear, x> + rho/2 |x - at|^2 of least squares."""

    def slope(x):
        return sum(f.gradient(x) for f in losses) + linear + rho * (x - at)

    zero, axes = np.zeros(3), np.eye(3)
    H = np.array([slope(axis) - slope(zero) for axis in axes])
    return np.linalg.solve(H, -slope(zero))


def assert_solved(walk, result, nodes):
    """The answer is the optimum of these nodes' problem to 1e-9, and the result says whose it is."""
    best = stands_still([f for i, f in enumerate(walk.setup.losses) if f"n{i}" in nodes])
    whole = stands_still(walk.setup.losses)
    assert result.solved == nodes
    assert result.frozen == []
    assert np.linalg.norm(result.solution["x"] - best) <= 1e-9
    assert result.relative_error <= 1e-9
    assert len(nodes) == 5 or np.linalg.norm(best - whole) > 0.01
