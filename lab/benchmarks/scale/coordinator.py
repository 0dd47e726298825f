"""`hushgrid bench coordinator`: what a member and round cost a coordinator, by its processor time.

The coordinator is the real one, with a durable ledger, and has this process to itself. All members are real too, each
on a connection of its own, in another process: what they cost is not counted. Beside it stands a paho client that sends
as many messages of the same size and takes as many answers, and keeps nothing.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.servers.choose import start
from hushgrid.broker.simulation.inputs import lay_rows
from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Document
from hushgrid.lab.benchmarks.common.bare import PATIENCE_S, WARM, BareRounds, Watch, echoes, processes
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, row
from hushgrid.lab.benchmarks.common.served import brokers_here, coordinate
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.event_loop import link_for, serve_all
from hushgrid.node.runtime.member import Member, Simulated

FEATURES, ROWS = 10, 10


class Case(NamedTuple):
    """A run. `limit`: what a member and round may cost, ms."""

    pattern: str
    nodes: int
    rounds: int
    limit: float | None = None


#: The limits are half of what was measured before a message cost no look at all members, on the same machine.
CASES = (Case("star", 50, 100, 0.09), Case("star", 200, 40, 0.09), Case("ring", 200, 40, 0.06))
ALGORITHMS: dict[str, Document] = {
    "star": {"name": "fedavg", "step_size": 1.0},
    "ring": {"name": "dgd", "step_size": 1.0},
}


def coordinators(cases: tuple[Case, ...] = CASES) -> Table:
    """Milliseconds of the coordinator's processor time, a member and round."""
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="hushgrid-bench-", dir=os.environ.get("HUSHGRID_BENCH_DIR")) as scratch,
        start(brokers_here()[0], Path(scratch, "broker")) as running,
    ):
        for case in cases:
            place = Path(scratch, f"{case.pattern}-{case.nodes}")
            place.mkdir()
            rows += _measured(running.url, place, case)
        summary = f"processor time of a coordinator, a member and round, {FEATURES} entries, {running.name}"
    return Table(name="coordinator", summary=summary, rows=rows)


def setup_of(case: Case) -> Setup:
    """A run with little to compute, of FEATURES unknowns: each answer spends and adds exact noise."""
    raw: Document = {
        "hushgrid": 1,
        "name": "bench",
        "problem": {"kind": "logistic", "row_bound": 1.0, "l2": 0.1},
        "algorithm": ALGORITHMS[case.pattern] | {"rounds": case.rounds},
        "privacy": {"epsilon": 50.0, "adjacency": {"replace-one-record": {"clip": 1.0}}},
    }
    if case.pattern != "star":
        raw["network"] = {"kind": case.pattern, "nodes": case.nodes}
    draw = counter_generator(0, "bench coordinator", 0)
    A = draw.normal(size=(case.nodes, ROWS, FEATURES))
    A /= np.linalg.norm(A, axis=2, keepdims=True) * (1 + 1e-9)
    arrays = lay_rows(raw, zip(A, np.sign(draw.normal(size=(case.nodes, ROWS))), strict=True))
    return prepare(scenario_from(raw), arrays=arrays)


def _measured(url: str, place: Path, case: Case) -> list[Row]:
    fleet, setup = f"bench-{secrets.token_hex(3)}", setup_of(case)
    watch, bare = Watch(), f"bare-{secrets.token_hex(3)}"
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(Ledger(place / "coordinator.ledger", "coordinator")))
        stack.enter_context(processes([(_members, (url, fleet, case))], farewell_s=5.0))

        def progress(t: int, total: int, residual: float | None) -> None:
            watch.seen(t)

        centre = coordinator(fleet, setup.plan, "", ledger, silent_s=PATIENCE_S, progress=progress)
        began = time.process_time()
        coordinate(centre, url)
        whole = time.process_time() - began
    with ExitStack() as stack:
        stack.enter_context(processes([(echoes, (url, bare, case.nodes))]))
        client = stack.enter_context(BareRounds(url, bare, case.nodes))
        began = time.process_time()
        client.times(8 * FEATURES, case.rounds)
        each = 1e3 * (time.process_time() - began) / (case.rounds + 1) / case.nodes
    what = f"{case.pattern} of {case.nodes}"
    rival = Row(what=f"{what}: bare paho, a message and its answer", unit="ms", value=each)
    ours = row(what, "ms", [watch.processor / case.nodes], rival=rival)
    gathering = (1e3 * whole - watch.processor * (case.rounds - WARM)) / case.nodes
    return [
        against(ours, case.limit) if case.limit else ours,
        rival,
        Row(what=f"{what}: joining, first rounds and farewell, a member", unit="ms", value=gathering),
    ]


def _members(url: str, fleet: str, case: Case) -> None:
    """All members, until the run has ended or whoever started the process is gone. Their ledgers end with it."""
    setup = setup_of(case)
    members = [
        Member(
            fleet,
            setup.device(name),
            Ledger(Path("unused"), name, durable=False, buffered=True),
            None,
            simulated=Simulated(),
        )
        for name in setup.plan.nodes
    ]
    pairs = [(member, link_for(member, url, None)) for member in members]
    serve_all(pairs, lambda: all(member.finished for member in members) or os.getppid() == 1)
    for member, link in pairs:
        link.close(clear=member.retained, forget=True)
