"""Whole runs of `hushgrid run` in one process, and a sweep: seconds of processor time, from the scenario to the result.

Runs stand side by side with the kernels plain and compiled, in fresh processes; what is compiled is in its cache.
"""

from __future__ import annotations

import os
import resource
import sys
import time

from hushgrid.broker.simulation.fleet import run_fleet
from hushgrid.broker.simulation.inputs import lay_rows
from hushgrid.kernels import jit
from hushgrid.kernels.types import Document
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, in_each_mode, print_rows, row
from hushgrid.lab.benchmarks.common.simulator import Case, rows_of, scenario
from hushgrid.node.config.scenario import scenario_from

#: Runs, and the seconds that one may take, if that is settled.
RUNS = (
    (Case("star", 1000, 10, 10, 10), 8.0),
    (Case("star", 300, 10, 10, 10, masked=True), 15.0),
    (Case("star", 60, 105, 500, 100), None),
    (Case("ring", 60, 105, 500, 100), None),
    (Case("token", 60, 105, 500, 3000), None),
    (Case("ring", 60, 105, 500, 100, private=False), None),
)
OVER: dict[str, list[object]] = {
    "privacy.epsilon": [0.3, 1.0, 3.0, 10.0, 30.0],
    "algorithm": [
        {"name": "recal", "rounds": 400, "walk": "hamiltonian", "alpha": 0.378},
        {"name": "dgd", "rounds": 50, "step_size": 1},
        {"name": "nids", "rounds": 51, "step_size": 1},
    ],
}
SEEDS, WORKERS = 20, 2
SWEEP_S = 60.0  #: of wall time on WORKERS cores that nobody else uses


def runs() -> Table:
    """Both modes, numba where it is installed."""
    rows = in_each_mode("hushgrid.lab.benchmarks.common.runs")
    return Table(name="runs", summary="whole runs in one process, processor time", rows=rows)


def measured(repeats: int = 3) -> list[Row]:
    """The rows of this process's mode."""
    rows = []
    for case, limit in RUNS:
        data, taken = rows_of(case), []
        for _ in range(repeats + 1):
            raw: Document = scenario(case)
            arrays = lay_rows(raw, data)
            began = time.process_time()
            run_fleet(scenario_from(raw), arrays=arrays)
            taken.append(time.process_time() - began)
        one = row(
            f"{case.words}, {case.rounds} {'hops' * (case.pattern == 'token') or 'rounds'}, {jit.MODE}", "s", taken[1:]
        )
        rows.append(one if limit is None else against(one, limit))
    return rows


def sweep() -> Table:
    """A sweep of 300 runs of three algorithms. Processor time is that of all its processes, loading included."""
    from hushgrid.lab.sweep.sweeps import sweep as run_sweep  # it needs the extra `sweep`

    began, used = time.perf_counter(), _processor_s()
    run_sweep("adult-ring", OVER, SEEDS, set={"run.record": "end"}, workers=WORKERS)
    seconds, processor = time.perf_counter() - began, _processor_s() - used
    count = SEEDS * len(OVER["algorithm"]) * len(OVER["privacy.epsilon"])
    rows = [
        against(row(f"{count} runs, {WORKERS} workers, processor time", "s", [processor]), WORKERS * SWEEP_S),
        against(row(f"{count} runs, {WORKERS} workers, wall time beside what else ran", "s", [seconds]), SWEEP_S),
    ]
    return Table(name="sweep", summary=f"adult-ring; load {os.getloadavg()[0]:.1f} at the end", rows=rows)


def _processor_s() -> float:
    """Processor time of this process and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


if __name__ == "__main__":
    print_rows(measured)
    sys.exit()
