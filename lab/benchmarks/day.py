"""`hushgrid bench day`: whole days ahead in three zones, a zone's step of such a day, and the memory of its daemon.

24 periods of an hour, storage and ramps, an AC dispatch at the end; true loads (variant none), the default stop.
"""

from __future__ import annotations

import csv
import json
import resource
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import numpy as np

from hushgrid import scenarios
from hushgrid.broker.servers.choose import start
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.kernels.types import Document
from hushgrid.lab.benchmarks import opf
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, row
from hushgrid.lab.benchmarks.common.served import brokers_here
from hushgrid.lab.benchmarks.common.shaped_day import by_shape
from hushgrid.lab.benchmarks.daemon import coordinator_file, daemon, peak_mb, run_once
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.problems.power_flow.device import model_of
from hushgrid.node.problems.power_flow.horizon import PROFILES
from hushgrid.node.schema.yaml_file import read_yaml
from hushgrid.node.wire import COORDINATOR

OPEN: Document = {"algorithm.variant": "none", "privacy": None}
GOALS_S = {"case14": 6.0, "case118": 45.0}  #: of the whole day
PEAK_MB = 300.0
PATIENCE_S = 120.0
STEPS = 20  #: rounds of which the steps are measured


def day(cases: tuple[str, ...] = tuple(GOALS_S), steps: int = STEPS) -> Table:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch:
        for name in cases:
            folder = Path(scratch, name)
            folder.mkdir()
            scenario = scenarios.find("day14") if name == "case14" else by_shape(folder, name)
            rows += [*_whole(name, scenario), *_steps(name, scenario, steps), *_memory(name, scenario, folder)]
    summary = f"24 hours in three zones with storage, ramps and AC; true loads; daemons through {brokers_here()[0]}"
    return Table(name="day", summary=summary, rows=rows)


def _whole(name: str, scenario: Path) -> list[Row]:
    """What `hushgrid run` takes, in one process."""
    before, began = _processor_s(), time.perf_counter()
    result = run(scenario, set=OPEN)
    whole = Row(what=f"{name}: the whole day in one process", unit="s", value=time.perf_counter() - began)
    return [
        against(whole, GOALS_S[name]) if name in GOALS_S else whole,
        Row(what=f"{name}: its processor time", unit="s", value=_processor_s() - before),
        Row(what=f"{name}: rounds to the stop", unit="rounds", value=result.rounds_done),
    ]


def _processor_s() -> float:
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in each)


def _steps(name: str, scenario: Path, rounds: int) -> list[Row]:
    """Zone steps beside the bare solver on the same matrices."""
    played = opf.played(ZoneSetup(load_scenario(scenario, OPEN | {"algorithm.rounds": rounds})))
    bare = row(f"{name}: clarabel update + solve alone", "ms", played.bare_ms)
    ratio = float(np.median(np.array(played.step_ms) / np.array(played.bare_ms)))  # of the same solve
    return [against(row(f"{name}: a zone's step", "ms", played.step_ms, rival=bare, ratio=ratio), 1.5, "ratio"), bare]


def _memory(name: str, scenario: Path, folder: Path) -> list[Row]:
    """Of the daemon that has held most."""
    place = folder / "fleet"
    with start(brokers_here()[0], folder / "broker") as running, ExitStack() as stack:
        children = [stack.enter_context(daemon(place, zone))[0] for zone in _fleet(place, scenario, running.url)]
        ready = max(peak_mb(child) for child in children)
        run_once(place)
        planned = max(peak_mb(child) for child in children)
    return [
        Row(what=f"{name}: most memory of a zone's daemon that is ready", unit="MB", value=ready),
        against(Row(what=f"{name}: the same once the day is planned", unit="MB", value=planned), PEAK_MB),
    ]


def _fleet(place: Path, scenario: Path, url: str) -> list[str]:
    """The files of a day's zones and of their coordinator, and the zones' names. Their models are in the cache."""
    place.mkdir()
    raw = read_yaml(scenario)
    problem = cast(Document, raw["problem"])
    horizon = cast(Document, problem["horizon"])
    with (scenario.parent / str(horizon.pop("profiles"))).open(newline="") as file:
        _, *rows = csv.reader(file)
    horizon["storage"] = str(scenario.parent / str(horizon["storage"]))
    adjacency = cast(Document, raw["privacy"])["adjacency"]
    zones = {f"z{k}": buses for k, buses in enumerate(cast(list[list[int]], problem["zones"]), 1)}
    for name, buses in zones.items():
        model_of(name, str(problem["case"]), tuple(buses))
        own = [",".join(cells) for cells in rows if int(cells[1]) in buses]
        (place / f"profiles-{name}.csv").write_text("\n".join([",".join(PROFILES), *own]) + "\n")
        data = {"case": problem["case"], "zone": buses, "profiles": f"profiles-{name}.csv"}
        device = {"node": name, "fleet": "bench", "broker": url, "state": f"state/{name}", "data": data}
        device |= {"budget": {"epsilon": 1e3, "adjacency": adjacency}}
        (place / f"{name}.yaml").write_text(json.dumps(device))  # JSON is YAML
    (place / "scenario.yaml").write_text(json.dumps(raw))
    coordinator_file(place, "bench", url)
    with (place / f"{COORDINATOR}.yaml").open("a") as file:
        file.write(f"silent_s: {PATIENCE_S:g}\n")  # a zone says nothing during its step
    return list(zones)
