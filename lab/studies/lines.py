"""The league's lines: which settings of an algorithm race, and which keys are tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hushgrid.kernels.algorithms.base import Algorithm, Keys
from hushgrid.lab.examples import examples


class Race(NamedTuple):
    """A line of the league's table: one setting of an algorithm, and the keys that are tuned."""

    title: str  #: the line's title
    #: candidates: the league tunes the keys in which they differ, and begins at the one in the middle
    grid: Sequence[Keys]
    keys: Keys = {}  # noqa: RUF012  #: keys that are the same in every run; without name and rounds


def each(key: str, *values: float) -> list[Keys]:
    """Candidates that differ in one key."""
    return [{key: value} for value in values]


GROWN: Sequence[Keys] = [{"start": start, "growth": 1.05} for start in (0.02, 0.06, 0.2)]  #: penalties that grow

#: By an algorithm's name. What stands for no algorithm here has the default of `races`.
RACES: Mapping[str, Sequence[Race]] = {
    "admm": [Race("ADMM", each("eta", 0.02, 0.06, 0.2, 0.6))],
    "dgd": [Race("DGD", each("step_size", 0.1, 0.3, 1.0, 2.0))],
    "diadsp": [Race("DiaDSP", each("alpha", 0.03, 0.1, 0.3, 1.0))],
    "dmsp": [Race("DMSP", [{"c": c, "q": q} for c in (0.3, 1.0, 3.0) for q in (0.9, 0.99)])],
    "dpadmm": [Race("ADMM (primal perturbation)", each("eta", 0.02, 0.06, 0.2, 0.6), {"perturb": "primal"})],
    "dpladmm": [
        Race(
            "DP-ADMM, linearised",
            [{"eta": eta, "step": step} for eta in (0.06, 0.2, 0.6) for step in (0.3, 1.0, 3.0)],
            {"schedule": "constant"},
        )
    ],
    "dpp2": [
        Race(
            "DPP2",
            [
                {"alpha": a, "beta": b, "rho": r}
                for a, b, r in ((0.4, 0.2, 0.5), (0.4, 0.2, 2.0), (0.2, 0.1, 1.0), (0.1, 0.05, 2.0))
            ],
        )
    ],
    "extra": [Race("EXTRA", each("step_size", 0.1, 0.3, 1.0, 2.0))],
    "gradient-tracking": [Race("gradient tracking (DIGing)", each("step_size", 0.03, 0.1, 0.3, 1.0))],
    "iadmm": [
        Race("I-ADMM, first-order", each("rho", 0.4, 1.0, 2.5, 6.0), {"update": "first-order"}),
        Race("I-ADMM, exact", each("rho", 0.1, 0.3, 1.0, 3.0), {"update": "exact"}),
    ],
    "madmm": [Race("M-ADMM", [{"eta": eta, "theta": eta["start"]} for eta in GROWN])],
    "mradmm": [Race("MR-ADMM", [{"eta": eta} for eta in GROWN], {"gamma": 0.5})],
    "nids": [Race("NIDS", each("step_size", 0.1, 0.3, 1.0, 2.0, 4.0))],
    "ppdc": [
        Race("PPDC", [{"eta": e, "gamma": 0.8 / e, "omega": w / e} for e in (0.1, 0.3, 1.0, 2.0) for w in (0.3, 0.6)])
    ],
    "privsgp": [Race("PrivSGP-VR", each("step_size", 0.1, 0.3, 1.0, 2.0))],
    "radmm": [Race("R-ADMM", [{"eta": eta, "gamma": c} for eta in (0.06, 0.2, 0.6) for c in (0.5, 2.0)])],
    "recal": [Race("RECAL, cycle", each("alpha", 0.1, 0.2, 0.38), {"walk": "hamiltonian"})],
    "wadmm": [Race("W-ADMM, first-order", each("rho", 0.4, 1.0, 2.5, 6.0), {"update": "first-order"})],
    "weakening": [Race("weakening factor", each("step", 0.3, 1.0, 3.0), {"a": 0.9, "chi": 0.7, "b": 0.7})],
}


def races(algorithm: type[Algorithm]) -> Sequence[Race]:
    """The lines of an algorithm; by default one, which tunes nothing and runs the guarded examples."""
    name = str(algorithm.__struct_config__.tag)
    return RACES.get(name) or (Race(algorithm.title, examples(algorithm)["guarded"]),)
