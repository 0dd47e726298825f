"""`hushgrid bench masks`: what masking costs: its rounds beside plain ones, keys and pads by the number of devices, memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from hushgrid.benchmarks.measure import Row, Table, row
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.progress import Progress
from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.ledger import Ledger

FEATURES = 123  #: as Adult's
WARM = 3  #: first rounds, not counted
RUN = bytes(16)


def masks(
    sizes: Sequence[int] = (4, 8, 60), wired: Sequence[int] = (4, 8), rounds: int = 40, repeats: int = 15
) -> Table:
    """wired: so many devices as processes, over mosquitto where it is installed."""
    rows: list[Row] = []
    for transport, each in (("memory", sizes), ("mqtt", wired if find_mosquitto() else ())):
        for n in each:
            count = rounds if transport == "memory" else 5 * rounds
            plain, masked = (_rounds(n, count, transport, way) for way in (False, True))
            rows += [new for pair in zip(masked, plain, strict=True) for new in _beside(*pair)]
    for n in sizes:
        rows += _keys(n, repeats)
    rows += _memory(max(sizes))
    about = f"fedavg, {FEATURES} unknowns, 50 rows a device, so that a round is messages and ledgers; t = 1"
    return Table(name="masks", about=about, rows=rows)


# --- rounds ---


class _Rounds(Progress):
    """Notes when rounds are reported. Those of another process are looked for now and then: some are passed over."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.at: list[tuple[int, float]] = []

    def round(self, t: int, total: int, residual: float | None) -> None:
        if t > WARM and (not self.at or t > self.at[-1][0]):
            self.at.append((t, time.perf_counter()))

    def row(self, what: str, each: bool) -> Row:
        """Milliseconds of a round: of each, or of all that were seen together."""
        if each:
            return row(what, "ms", [1e3 * (after - before) for (_, before), (_, after) in pairwise(self.at)])
        (first, early), (last, late) = self.at[0], self.at[-1]
        return Row(what=what, unit="ms", value=1e3 * (late - early) / max(1, last - first))


@contextmanager
def _commits() -> Iterator[list[str]]:
    """The nodes whose ledgers in this process commit a step, one after the other."""
    found: list[str] = []
    commit = Ledger.commit

    def counted(self: Ledger, *given: Any, **named: Any) -> Any:
        found.append(self.node)
        return commit(self, *given, **named)

    Ledger.commit = counted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Ledger.commit = commit  # type: ignore[method-assign]


def _scenario(n: int, rounds: int, masked: bool) -> dict[str, Any]:
    privacy: dict[str, Any] = {
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


def _rounds(n: int, rounds: int, transport: str, masked: bool) -> list[Row]:
    """Milliseconds, messages, bytes and, in this process, commits of a round."""
    watch, broker = _Rounds(), "mosquitto" if transport == "mqtt" else "auto"
    with _commits() as committed:
        result = run(_scenario(n, rounds, masked), transport=transport, broker=broker, progress=watch)
    what = (
        f"round of {n}, {'masked' if masked else 'plain'}, {'in process' if transport == 'memory' else result.broker}"
    )
    found = [watch.row(what, each=transport == "memory")]
    history = result.history
    for column in ("messages", "bytes"):
        found.append(row(f"{what}: {column}", "", [float(v or 0) for v in history[column][WARM:]]))
    if transport == "memory":
        found.append(Row(what=f"{what}: commits, {rounds} rounds", unit="", value=len(committed)))
    return found


def _beside(ours: Row, rival: Row) -> list[Row]:
    return [msgspec.structs.replace(ours, rival=rival.what, ratio=ours.value / rival.value), rival]


# --- keys and pads ---


def _keys(n: int, repeats: int) -> list[Row]:
    """Milliseconds of one device among n: its key made, signed and stored; all others checked; a pad of FEATURES words."""
    from hushgrid.node.masks.identity import made_up  # the other benchmarks need no cryptography
    from hushgrid.node.masks.run_masks import RunMasks

    nodes = [f"n{i}" for i in range(n)]
    identities, trust = made_up(nodes)
    taken: dict[str, list[float]] = {"introduction": [], "meet": [], "pad": []}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hushgrid-bench-")))
        members = []
        for node in nodes:
            ledger = stack.enter_context(closing(Ledger(place / f"{node}.ledger", node)))
            ledger.join(RUN, b"")
            members.append(RunMasks(node, RUN, ledger, identities[node], trust))
        shown = {}
        for member in members:
            began = time.perf_counter()
            shown[member.node] = member.introduction()
            taken["introduction"].append(1e3 * (time.perf_counter() - began))
        for _ in range(repeats):
            began = time.perf_counter()
            members[0].meet(shown)
            taken["meet"].append(1e3 * (time.perf_counter() - began))
        for k in range(repeats):
            began = time.perf_counter()
            members[0].pad(k + 1, 1, nodes, FEATURES)
            taken["pad"].append(1e3 * (time.perf_counter() - began))
    words = {
        "introduction": "its key made, signed, stored",
        "meet": f"{n - 1} others checked",
        "pad": f"{FEATURES} words",
    }
    return [row(f"{what} of a device among {n}: {words[what]}", "ms", values) for what, values in taken.items()]


# --- memory ---

#: A device's program with rows; then with masks; then as one of n that has met the others, who are in its process too as far as they
#: have an identity, and as far as they are met.
CHILD = """
import json, os, pathlib, sys, tempfile
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
    own.pad(1, 1, names, int(sys.argv[2]))
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
    words = {"a device's program": plain, "with masks": imported, f"with masks, {n - 1} others met": met}
    return [Row(what=f"resident memory: {what}", unit="MB", value=value) for what, value in words.items()]
