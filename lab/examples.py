"""Short runs of every algorithm that converge on a small problem: tests, the golden record, audits and docs run
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import fields

from hushgrid.kernels.algorithms.base import Algorithm, Keys, Variant
from hushgrid.kernels.algorithms.registry import variants

Examples = Mapping[Variant, Sequence[Keys]]


def alike(*keys: Keys) -> Examples:
    """The same keys in all three variants."""
    return {"guarded": keys, "published": keys, "none": keys}


#: Keys, without name and rounds, by name and variant. What stands for no algorithm here has the default of `examples`.
EXAMPLES: Mapping[str, Examples] = {
    "admm": alike({"eta": 0.5}),
    "diadsp": {
        "guarded": [{"alpha": 0.1}],
        "published": [{"alpha": 0.1, "decay": 0.9, "u_x": 0.1, "u_y": 0.1}],
        "none": [{"alpha": 0.1}],
    },
    "dmsp": {
        "guarded": [{"c": 2.0, "q": 0.95}],
        "published": [{"c": 2.0, "q": 0.95, "b": 0.1, "p": 0.97}],
        "none": [{"c": 2.0, "q": 0.95}],
    },
    "dpadmm": {
        "guarded": [{"eta": 0.5, "perturb": "primal"}, {"eta": 0.5, "perturb": "dual"}],
        "published": [{"eta": 0.5, "perturb": "primal"}],
        "none": [{"eta": 0.5, "perturb": "primal"}],
    },
    "dpladmm": alike({"eta": 0.5, "step": 1.0}),
    "dpp2": {
        "guarded": [{"alpha": 1.0, "beta": 0.5, "rho": 0.5}],
        "published": [{"alpha": 1.0, "beta": 0.5, "rho": 0.5, "eta": 0.5, "decay": 0.9, "u_w": 0.1, "u_e": 0.1}],
        "none": [{"alpha": 1.0, "beta": 0.5, "rho": 0.5}],
    },
    "extra": {"guarded": [{"step_size": 2.0}], "none": [{"step_size": 2.0}]},
    "fedavg": {
        "guarded": [{"step_size": 1.0}],
        "none": [{"step_size": 1.0, "local_updates": 2}, {"step_size": 0.5, "momentum": 0.5}],
    },
    "fedprox": {
        "guarded": [{"step_size": 1.0, "mu": 0.5}],
        "none": [{"step_size": 1.0, "mu": 0.5, "local_updates": 3}],
    },
    "gradient-tracking": {"guarded": [{"step_size": 0.5}], "none": [{"step_size": 0.5}]},
    "iadmm": {
        "guarded": [{"rho": 1.0}, {"rho": 1.0, "update": "exact"}],
        "published": [{"rho": 1.0, "gamma": (0.5, 1.5)}, {"rho": 1.0, "noise_sd": 0.1}],
        "none": [{"rho": 1.0}],
    },
    "madmm": alike({"eta": {"start": 0.5, "growth": 1.001}, "theta": 0.3}),
    "mradmm": alike({"eta": {"start": 0.5, "growth": 1.001}, "gamma": 0.2}),
    "nids": {"guarded": [{"step_size": 2.0}], "none": [{"step_size": 2.0}]},
    "ppdc": {
        "guarded": [{"eta": 0.5, "gamma": 0.5, "omega": 0.1}],
        "published": [{"eta": 0.5, "gamma": 0.5, "omega": 0.1, "decay": 0.9, "u_x": 0.1, "u_v": 0.1}],
        "none": [{"eta": 0.5, "gamma": 0.5, "omega": 0.1}],
    },
    "privsgp": {"guarded": [{"step_size": 2.0}], "none": [{"step_size": 2.0}]},
    "radmm": alike({"eta": 0.5, "gamma": 0.2}),
    "sum": {"guarded": [{"rounds": 1}], "none": [{"rounds": 1}]},
    "wadmm": {
        "guarded": [{"rho": 1.0}, {"rho": 1.0, "update": "exact"}],
        "published": [{"rho": 1.0, "noise_sd": 0.1}],
        "none": [{"rho": 1.0}],
    },
    "weakening": {
        "guarded": [{"step": 2.0, "a": 0.9, "chi": 0.7, "b": 0.7}],
        "published": [{"step": 2.0, "a": 0.9, "chi": 0.7, "b": 0.7, "u": 0.1, "s": 0.1}],
        "none": [{"step": 2.0, "a": 0.9, "chi": 0.7, "b": 0.7}],
    },
}


def examples(algorithm: type[Algorithm]) -> Examples:
    """Those of an algorithm, at least one a variant; by default every number that its section requires is 1."""
    required = {f.encode_name: 1.0 for f in fields(algorithm) if f.required and f.name != "rounds"}
    return EXAMPLES.get(str(algorithm.__struct_config__.tag), {v: [required] for v in variants(algorithm)})
