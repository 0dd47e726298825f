"""A program: what a device makes of the largest plans, a line of JSON each; at last the peak of its memory beyond what
it began with.
"""

from __future__ import annotations

import json
import resource
import tempfile
from pathlib import Path

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.member import Member
from hushgrid.node.schema.sections import Budget
from hushgrid.node.wire import PLAN_LIMIT
from tests.support.scenarios import guarded_plans

N = 10_000
STAR = [[0, i] for i in range(1, N)]
RING = [[i, (i + 1) % N] for i in range(N)]


def network(name, n, edges, *, rows=10, route=(), **algorithm):
    raw = guarded_plans.raw_plan(name)
    raw["problem"] |= {
        "rows": [10] + [rows] * (n - 1),
        "L": raw["problem"]["L"][:1] * n,
        "edges": edges,
        "route": list(route),
    }
    raw["algorithm"] |= algorithm
    if isinstance(raw["privacy"].get("answers"), list):  # caps of other nodes: as many as the walk passes each
        raw["privacy"]["answers"] = None
    return name, raw


def zones(found):
    raw = guarded_plans.raw_plan("ladmm")
    raw["problem"]["zones"] = found
    return "ladmm", raw


LARGE = {
    "a walk between a hub and a "
    "leaf": lambda: network("recal, given walk", N, STAR, alpha=0.1, rounds=500_000, walk=[0, 9999] * 500_000),
    "a star": lambda: network("recal", N, STAR, rounds=10_000_000),
    "a complete graph": lambda: network("nids", 700, [[i, j] for i in range(700) for j in range(i)]),
    "an edge a thousand times": lambda: network("nids", 700, [[0, 1]] * 650_000),
    "a cycle through ten thousand": lambda: network("iadmm", N, RING, route=range(N)),
    "a cycle too long": lambda: network("iadmm", N, RING, route=[0, 1] * 900_000),
    "five thousand parts": lambda: network("nids", N, RING[::2]),
    "private minimisers of 10^9 rows each": lambda: network("admm", N, STAR, rows=10**9),
    "twenty thousand zones": lambda: zones({f"z{i}": [i] * 30 for i in range(20_000)}),
    "a zone of two million buses": lambda: zones({"z1": [1] * 1_900_000}),
}  # fmt: skip


def main() -> None:
    blobs = {}
    for what, make in LARGE.items():
        name, raw = make()
        blobs[what] = name, json.dumps(raw, separators=(",", ":")).encode()
        assert len(blobs[what][1]) < PLAN_LIMIT
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as place:
        for k, (what, (name, blob)) in enumerate(blobs.items()):
            device, _ = guarded_plans.device_and_plan(name)
            adjacency, ledger = (
                guarded_plans.decoded(name).privacy.adjacency,
                Ledger(Path(place) / f"{k}.ledger", device.name),
            )
            member, said = Member("fleet", device, ledger, Budget(epsilon=1e4, delta=1e-3, adjacency=adjacency)), None
            try:
                member._agreed(bytes(16), blob)
            except (InputError, Refused) as error:
                said = str(error)
            ledger.close()
            print(json.dumps({"plan": what, "said": said}))
    print(json.dumps({"MB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}))


main()
