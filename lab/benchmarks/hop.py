"""`hushgrid bench hop`: a token from one activation's commit to the next one's, beside the bare message and commit."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from hushgrid.broker.coordinator.token import TokenCoordinator
from hushgrid.broker.servers.choose import start
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.lab.benchmarks.common.bare import (
    BARE_COMMIT,
    BLOCK,
    PATIENCE_S,
    BareCommits,
    BareRounds,
    Watch,
    echo,
    processes,
)
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, row
from hushgrid.lab.benchmarks.common.served import attend, brokers_here, coordinate
from hushgrid.lab.benchmarks.fleet import CPU_MS
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR

FEATURES = 15
WARM = 100  #: first hops, not counted


def walk(hops: int, nodes: int, guarded: bool) -> Scenario:
    """RECAL around a ring: a token of about 400 bytes."""
    return small(nodes, guarded, name="recal", walk="hamiltonian", rounds=hops)


def small(nodes: int, guarded: bool, **algorithm: object) -> Scenario:
    """A ring with little to compute, of FEATURES unknowns. Guarded, each answer spends and adds exact noise."""
    privacy = {"epsilon": 50.0, "adjacency": {"replace-one-record": {"clip": 1.0}}}
    return scenario_from(
        {
            "hushgrid": 1,
            "name": "bench",
            "network": {"kind": "ring", "nodes": nodes},
            "problem": {
                "kind": "logistic",
                "row_bound": 1.0,
                "l2": 0.1,
                "data": {"synthetic": {"rows": 20, "features": FEATURES}, "normalize": "unit-rows"},
            },
            "algorithm": algorithm | {"variant": "guarded" if guarded else "none"},
        }
        | ({"privacy": privacy} if guarded else {})
    )


def hop(hops: int = 2000, rings: tuple[int, ...] = (2, 4)) -> Table:
    """Milliseconds a hop between member processes, each hop's state (guarded: and spend) in the ledger before it is
    sent.

    Between two of them, as many as the ping-pong has; and around a ring of more, which share this machine's processors.
    The first of them stops every BLOCK hops for as many bare messages and commits: what slows this machine slows both.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-", dir=os.environ.get("HUSHGRID_BENCH_DIR")) as scratch:
        for broker in brokers_here():
            with start(broker, Path(scratch, broker)) as running:
                for nodes, guarded in product(rings, (True, False)):
                    place = Path(scratch, f"{broker}-{nodes}-{guarded}")
                    what = f"{nodes} nodes, {'guarded' if guarded else 'variant none'}, {running.name}"
                    size, times = _beside_bare_parts(running.url, place, walk(hops, nodes, guarded), what)
                    rows += times
        summary = f"RECAL around a ring of member processes, a token of {size} bytes, ledgers on {file_system(scratch)}"
    return Table(name="hop", summary=summary, rows=rows)


def _beside_bare_parts(url: str, place: Path, scenario: Scenario, what: str) -> tuple[int, list[Row]]:
    """Bytes of a token, and the rows of one walk."""
    fleet, setup, prefix = f"bench-{secrets.token_hex(3)}", RowSetup(scenario), f"bare-{secrets.token_hex(3)}"
    first, *others = setup.plan.nodes
    members = [
        (_member, (url, fleet, name, scenario, str(place), prefix * (name == first))) for name in (first, *others)
    ]
    echoes = [(echo, (url, f"{prefix}/down/0", f"{prefix}/up/0"))]
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(Ledger(place / "coordinator.ledger", COORDINATOR)))
        stack.enter_context(processes(echoes))
        stack.enter_context(processes(members, farewell_s=5.0))
        used = time.process_time()
        coordinate(TokenCoordinator(fleet, setup.plan, "", ledger, silent_s=PATIENCE_S), url)
        used = time.process_time() - used
    records = {
        name: msgspec.msgpack.decode((place / f"{name}.hops").read_bytes(), type=_Seen) for name in setup.plan.nodes
    }
    watch = Watch(WARM)
    watch.parts = dict(records[first].parts)
    taken = watch.times({t: moment for seen in records.values() for t, moment in seen.ends.items()})
    way = row(f"half a bare paho ping-pong, {what}", "ms", watch.pooled(0))
    commit = row(f"{BARE_COMMIT}, {what}", "ms", watch.pooled(1))
    rival = Row(what=f"both of them, {what}", unit="ms", value=way.value + commit.value)
    ratio = float(np.median(watch.ratios(taken, sum)))
    ours = row(f"hop, {what}", "ms", list(taken.values()), rival=rival, ratio=ratio)
    processor = row(f"processor time an answer at a node, {what}", "ms", [seen.processor for seen in records.values()])
    rounds = scenario.algorithm.rounds
    return round(sum(seen.size for seen in records.values()) / (rounds - 1)), [
        against(ours, 2.0, "ratio", never=2.8) if "mosquitto" in what else ours,
        way,
        commit,
        rival,
        against(processor, CPU_MS),
        Row(what=f"processor time a hop at the coordinator, {what}", unit="ms", value=1e3 * used / rounds),
    ]


class _Seen(Struct):
    """What a member's process has seen: see `Watch`. `size`: bytes of its tokens."""

    ends: dict[int, tuple[float, float]]
    parts: dict[int, list[list[float]]]
    processor: float
    size: int


def _member(url: str, fleet: str, name: str, scenario: Scenario, place: str, prefix: str) -> None:
    """A member, and when it made which activation. `prefix`: of the bare messages, where it measures them."""
    device, watch, sent = RowSetup(scenario).device(name), Watch(WARM), 0
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(Ledger(Path(place) / f"{name}.ledger", name)))
        bare = stack.enter_context(BareRounds(url, prefix, 1)) if prefix else None
        commits = stack.enter_context(BareCommits(Path(place))) if prefix else None

        def observe(driver: Driver, fresh: bool) -> None:
            nonlocal sent
            messages, sent = driver.sent

            def measure() -> list[list[float]]:
                assert bare is not None
                assert commits is not None
                return [[ms / 2 for ms in bare.times(round(sent / messages), BLOCK)], commits.times(BLOCK)]

            watch.seen(driver.machine.state.t, measure if prefix else None)

        attend(Member(fleet, device, ledger, None, simulated=Simulated(), observe=observe), url)
    ends = {t: moment for t, moment in watch.ends.items() if t}
    record = _Seen(ends, {t: list(parts) for t, parts in watch.parts.items()}, watch.processor, sent)
    (Path(place) / f"{name}.hops").write_bytes(msgspec.msgpack.encode(record))


def file_system(path: str) -> str:
    """The kind of file system a path is on, as the kernel calls it."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    real = Path(path).resolve()
    return max((m for m in mounts if real.is_relative_to(m[0])), key=lambda m: len(m[0]))[1]
