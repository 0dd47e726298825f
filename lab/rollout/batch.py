"""A batch of seeds of one plan: what planner, league and studies share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from hushgrid.kernels.types import Matrix, Tensor
from hushgrid.lab.rollout.machines import final_iterates
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.machines import machine_of, place
from hushgrid.node.problems.plan import RunPlan

#: Makes the gate of node i for some seeds. It is asked for and answers vectors of S d entries, d a seed.
GateFactory = Callable[[int, Sequence[int]], Any]
Reader = Callable[[RunPlan, Sequence[object], bytes], Matrix]  #: steps the machines of a run to its end: (n, S d)


@np.errstate(over="ignore", invalid="ignore")  # of what diverges
def rollout(
    plan: RunPlan,
    gate: GateFactory,
    seeds: Sequence[int],
    *,
    side_by_side: bool = False,
    read: Reader = final_iterates,
) -> Tensor:
    """Where the run of each seed ends, shape (S, n, d).

    `side_by_side`: the seeds share one machine a node. The machines of most algorithms only add vectors and multiply
    them by numbers, so that a machine that is given vectors of S d entries makes the runs of S seeds. A random walk
    would be the same for all of them. Raises InputError or Refused.
    """
    ends = []
    for group in [tuple(seeds)] if side_by_side else [(seed,) for seed in seeds]:
        key = 0 if side_by_side else group[0]
        run = key.to_bytes(16, "little")
        wide = replace(plan, problem=replace(plan.problem, features=len(group) * plan.problem.features))
        machines = [
            machine_of(wide, place(wide, run, i, gate(i, group), SeededNoise(key, node)))
            for i, node in enumerate(plan.nodes)
        ]
        x = read(wide, machines, run)
        ends.append(x.reshape(len(machines), len(group), -1).transpose(1, 0, 2))
    return np.concatenate(ends)
