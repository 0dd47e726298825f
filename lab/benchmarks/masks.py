"""`hushgrid bench masks`: what masking costs: its rounds beside plain ones, keys and pads by the number of devices,
memory.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.servers.choose import start
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.broker.simulation.progress import Progress
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.lab.benchmarks.common.bare import PATIENCE_S, processes
from hushgrid.lab.benchmarks.common.measure import Row, Table, row
from hushgrid.lab.benchmarks.common.served import attend, coordinate
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR

FEATURES = 123  #: as Adult's
WARM = 3  #: first rounds, not counted
RUN = bytes(16)


def masks(
    sizes: Sequence[int] = (4, 8, 60), wired: Sequence[int] = (4, 8), rounds: int = 40, repeats: int = 15
) -> Table:
    """wired: so many devices as processes, over mosquitto where it is installed."""
    rows: list[Row] = []
    for n in sizes:
        rows += _beside(*(_in_process(n, rounds, masked) for masked in (True, False)))
    for n in wired if find_mosquitto() else ():
        rows += _beside(*([_wired(n, 5 * rounds, masked)] for masked in (True, False)))
    for n in sizes:
        rows += _keys(n, repeats)
    rows += _memory(max(sizes))
    summary = f"fedavg, {FEATURES} unknowns, 50 rows a device, so that a round is messages and ledgers; t = 1"
    return Table(name="masks", summary=summary, rows=rows)


# --- rounds ---


class _Stopwatch(Progress):
    """Notes when each round is reported."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.moments: dict[int, float] = {}

    def round(self, t: int, total: int, residual: float | None) -> None:
        self.moments.setdefault(t, time.perf_counter())


def _taken(moments: Mapping[int, float]) -> list[float]:
    """Milliseconds of each round but the first ones; `moments`: the seconds at which it was over."""
    return [1e3 * (moments[t] - moments[t - 1]) for t in sorted(moments) if t > WARM and t - 1 in moments]


@contextmanager
def _commits() -> Iterator[list[str]]:
    """The nodes whose ledgers in this process commit a step, one after the other."""
    names: list[str] = []
    commit = Ledger.commit

    def counted(self: Ledger, *arguments: Any, **named: Any) -> Any:
        names.append(self.node)
        return commit(self, *arguments, **named)

    Ledger.commit = counted  # type: ignore[method-assign]
    try:
        yield names
    finally:
        Ledger.commit = commit  # type: ignore[method-assign]


def _scenario(n: int, rounds: int, masked: bool) -> Document:
    privacy: Document = {
        "mechanism": "gaussian",
        "accountant": "gdp",
        "epsilon": 10.0,
        "delta": 1e-5,
        "adjacency": {"replace-one-record": {"clip": 1.0}},
    }
    return {
        "hushgrid": 1,
        "name": "bench-masks",
        "problem": {
            "kind": "logistic",
            "row_bound": 1.0,
            "l2": 0.1,
            "data": {"synthetic": {"rows": 50, "features": FEATURES}, "nodes": n, "normalize": "unit-rows"},
        },
        "algorithm": {"name": "fedavg", "rounds": rounds, "step_size": 1.0},
        "privacy": privacy | ({"masked": {"corrupt": 1}} if masked else {}),
        "run": {"record": "end"},
    }


def _in_process(n: int, rounds: int, masked: bool) -> list[Row]:
    """Milliseconds, messages, bytes and commits of a round, all members in this process."""
    watch, what = _Stopwatch(), f"round of {n}, {'masked' if masked else 'plain'}, in process"
    with _commits() as committed:
        history = run(_scenario(n, rounds, masked), transport="memory", progress=watch).history
    return [
        row(what, "ms", _taken(watch.moments)),
        *(row(f"{what}: {name}", "", [float(v or 0) for v in history[name][WARM:]]) for name in ("messages", "bytes")),
        Row(what=f"{what}: commits, {rounds} rounds", unit="", value=len(committed)),
    ]


def _wired(n: int, rounds: int, masked: bool) -> Row:
    """Milliseconds from one round's commit at the coordinator to the next one's; each member is a process."""
    setup, fleet = prepare(scenario_from(_scenario(n, rounds, masked))), f"bench-{secrets.token_hex(3)}"
    moments: dict[int, float] = {}

    def observe(driver: Driver, fresh: bool) -> None:
        moments.setdefault(driver.machine.state.t, time.perf_counter())

    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hushgrid-bench-")))
        broker = stack.enter_context(start("mosquitto", place / "broker"))
        ledger = stack.enter_context(closing(Ledger(place / "coordinator.ledger", COORDINATOR)))
        centre = coordinator(fleet, setup.plan, "", ledger, silent_s=PATIENCE_S, observe=observe)
        members = [
            (_member, (broker.url, fleet, name, setup.child(name, place), str(place))) for name in setup.plan.nodes
        ]
        stack.enter_context(processes(members, farewell_s=2.0))
        coordinate(centre, broker.url)
    return row(f"round of {n}, {'masked' if masked else 'plain'}, {broker.name}", "ms", _taken(moments))


def _member(url: str, fleet: str, name: str, data: Document, place: str) -> None:
    with closing(Ledger(Path(place) / f"{name}.ledger", name)) as ledger:
        attend(Member(fleet, RowSetup.node(name, data), ledger, None, simulated=Simulated()), url)


def _beside(ours: list[Row], rivals: list[Row]) -> list[Row]:
    """Each of ours, and behind it the rival's own."""
    rows = []
    for masked, rival in zip(ours, rivals, strict=True):
        rows += [msgspec.structs.replace(masked, rival=rival.what, ratio=masked.value / rival.value), rival]
    return rows


# --- keys and pads ---


def _keys(n: int, repeats: int) -> list[Row]:
    """Milliseconds of one device among n: its key made, signed and stored; all others checked; a pad of FEATURES
    words.
    """
    from hushgrid.node.masks.identity import made_up  # the other benchmarks need no cryptography
    from hushgrid.node.masks.run_masks import RunMasks

    nodes = [f"n{i}" for i in range(n)]
    identities, trust = made_up(nodes)
    taken: dict[str, list[float]] = {"introduction": [], "meet": [], "pad": []}
    x = np.zeros(FEATURES)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hushgrid-bench-")))
        members = []
        for node in nodes:
            ledger = stack.enter_context(closing(Ledger(place / f"{node}.ledger", node)))
            ledger.join(RUN, b"")
            members.append(RunMasks(node, RUN, ledger, identities[node], trust))
        rows = {}
        for member in members:
            began = time.perf_counter()
            rows[member.node] = member.introduction()
            taken["introduction"].append(1e3 * (time.perf_counter() - began))
        for _ in range(repeats):
            began = time.perf_counter()
            members[0].meet(rows)
            taken["meet"].append(1e3 * (time.perf_counter() - began))
        for k in range(repeats):
            began = time.perf_counter()
            members[0].pad(k + 1, 1, nodes, x, FEATURES)
            taken["pad"].append(1e3 * (time.perf_counter() - began))
    labels = {
        "introduction": "its key made, signed, stored",
        "meet": f"{n - 1} others checked",
        "pad": f"{FEATURES} words",
    }
    return [row(f"{what} of a device among {n}: {labels[what]}", "ms", values) for what, values in taken.items()]


# --- memory ---

#: A device's program with rows; then with masks; then as one of n that has met the others, who are in its process too
#: as far as they have an identity, and as far as they are met.
CHILD = """
import json, os, pathlib, sys, tempfile
import numpy as np
import hushgrid.node.problems.records.device, hushgrid.node.runtime.daemon

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

found = [resident()]
from hushgrid.node.masks.identity import made_up, statement
from hushgrid.node.masks.run_masks import Introduction, RunMasks, X25519PrivateKey
from hushgrid.node.privacy.ledger import Ledger

found.append(resident())
run, names = bytes(16), [f"n{i}" for i in range(int(sys.argv[1]))]
identities, trust = made_up(names)
with tempfile.TemporaryDirectory() as place:
    ledger = Ledger(pathlib.Path(place, "n0.ledger"), "n0")
    ledger.join(run, b"")
    own = RunMasks("n0", run, ledger, identities["n0"], trust)
    shown = {"n0": own.introduction()}
    for name in names[1:]:
        key, of = X25519PrivateKey.generate().public_key().public_bytes_raw(), identities[name]
        shown[name] = Introduction(key, of.certificate, of.sign(statement(run, name, key)))
    own.meet(shown)
    own.pad(1, 1, names, np.zeros(int(sys.argv[2])), int(sys.argv[2]))
    ledger.close()
found.append(resident())
print(json.dumps(found))
"""


def _memory(n: int) -> list[Row]:
    """Resident megabytes of a device's program, in a process of its own."""
    if not Path("/proc/self/statm").exists():
        return []
    child = [sys.executable, "-c", CHILD, str(n), str(FEATURES)]
    ended = subprocess.run(child, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ended.returncode:
        raise InputError(f"bench masks: {ended.stderr.decode(errors='replace').strip().splitlines()[-1]}")
    plain, imported, met = json.loads(ended.stdout)
    programs = {"a device's program": plain, "with masks": imported, f"with masks, {n - 1} others met": met}
    return [Row(what=f"resident memory: {what}", unit="MB", value=value) for what, value in programs.items()]
