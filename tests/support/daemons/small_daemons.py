"""Small fleets of real daemons: a ring of four sensors, a pair of zones, and coordinators by command or in this
process.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from shutil import copy2
from typing import Any

import numpy as np
import yaml

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.create import coordinator as coordinator_of
from hushgrid.broker.coordinator.daemon import prepare
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.power_flow.kind import KIND as POWER_FLOW
from hushgrid.node.problems.records.kind import KIND as RECORDS
from hushgrid.node.problems.registry import algorithms_of
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.event_loop import link_for, serve
from hushgrid.node.runtime.member import Member
from tests.support.daemons.attacked_device import Target, rows_config
from tests.support.daemons.deployed_fleet import HUSHGRID, Daemon
from tests.support.devices.ledgers import copy_of

SENSORS = ("n0", "n1", "n2", "n3")
PAIR = {"z1": (1, 2), "z2": (3, 4, 5)}  #: zones of case5, by the case file's bus numbers
CLIP = {"replace-one-record": {"clip": 1.0}}
CHANGE = {"bounded-change": 0.01}
ROWS, FEATURES = 20, 3
BUDGET = 1e6  #: of a device: its budget is not what is tried here

Raw = dict[str, Any]


# --- devices ---


def ring(directory: Path, url: str, stack: ExitStack) -> dict[str, Target]:
    """Four sensors with made-up rows, whose owners allow every algorithm."""
    found = {}
    for i, name in enumerate(SENSORS):
        dice = np.random.default_rng(i)
        A = dice.normal(size=(ROWS, FEATURES))
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        b = np.where(A @ np.ones(FEATURES) > 0, 1.0, -1.0)
        place, algorithms = directory / name, list(algorithms_of(RECORDS.name))
        config = rows_config(place, A.tolist(), b.tolist(), CLIP, BUDGET, labels={"classes": 2}, algorithms=algorithms)
        found[name] = Target(place, url, stack, name, config, "small")
    return found


def write_loads(path: Path, zone: str, factor: float = 1.0) -> None:
    """The loads of a zone of case5 times a factor, in a new file that takes the old one's place."""
    case, buses = load("case5"), PAIR[zone]
    p, q = np.split(factor * np.asarray(loads(case, buses)) * case.base_mva, 2)
    new = path.with_suffix(".new")
    with new.open("w", newline="") as file:
        csv.writer(file).writerows([("bus", "p_mw", "q_mvar"), *zip(buses, p.tolist(), q.tolist(), strict=True)])
    new.replace(path)


def pair(directory: Path, url: str, stack: ExitStack) -> dict[str, Target]:
    """Two zones of case5 with the case's loads."""
    found = {}
    for name, buses in PAIR.items():
        place = directory / name
        place.mkdir(parents=True)
        write_loads(place / "loads.csv", name)
        config = {
            "data": {"case": "case5", "zone": list(buses), "loads": str(place / "loads.csv")},
            "budget": {"epsilon": BUDGET, "adjacency": CHANGE},
            "allow": {"algorithms": sorted(POWER_FLOW.algorithms)},
        }
        found[name] = Target(place, url, stack, name, config, "small")
    return found


# --- scenarios ---


def on_rows(name: str, rounds: int, epsilon: float, **algorithm: Any) -> Raw:
    """A guarded run among the four sensors, on a ring if they speak with each other."""
    networked = (
        name not in ALGORITHMS or ALGORITHMS[name].pattern != "star"
    )  # one from outside is known to its devices alone
    network, nodes = ({"network": {"kind": "ring", "nodes": 4}}, {}) if networked else ({}, {"nodes": 4})
    return {
        "hushgrid": 1,
        "name": name,
        **network,
        "problem": {
            "kind": "logistic",
            "data": {"devices": {"features": FEATURES, "rows": ROWS}, **nodes},
            "row_bound": 1.0,
            "l2": 0.1,
        },
        "algorithm": {"name": name, "rounds": rounds} | algorithm,
        "privacy": {"adjacency": CLIP, "epsilon": epsilon},
    }


def summed_rows(epsilon: float) -> Raw:
    """The total of the four sensors' features, in one answer of each."""
    raw = on_rows("sum", 1, epsilon)
    return raw | {"problem": {"kind": "total", "data": raw["problem"]["data"]}}


def on_zones(mode: str, rounds: int, epsilon: float = 20.0, name: str = "ladmm") -> Raw:
    """A guarded run of both zones."""
    return {
        "hushgrid": 1, "name": name,
        "problem": {"kind": "zones", "case": "case5", "zones": [list(buses) for buses in PAIR.values()]},
        "algorithm": {"name": name, "rounds": rounds},
        "privacy": {"adjacency": CHANGE, "epsilon": epsilon, "mode": mode},
    }  # fmt: skip


# --- coordinators ---


class Centre:
    """Coordinators of one fleet, one run after the other, on one ledger."""

    def __init__(self, directory: Path, url: str, stack: ExitStack, plugins: Sequence[str] = ()) -> None:
        self.directory, self.url, self.stack, self.count = directory, url, stack, 0
        self.plugins = list(plugins)
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, scenario: Raw, silent_s: float = 10.0) -> Path:
        """The configuration of a run."""
        (self.directory / "scenario.yaml").write_text(yaml.safe_dump(scenario))
        file = self.directory / "coordinator.yaml"
        config = {"fleet": "small", "broker": self.url, "scenario": "scenario.yaml", "state": "state"}
        config |= {"plugins": self.plugins} if self.plugins else {}
        file.write_text(yaml.safe_dump(config | {"wait_s": 60, "silent_s": silent_s}))
        return file

    def command(self, scenario: Raw, **environment: str) -> Daemon:
        """`hushgrid coordinator --once`."""
        self.count += 1
        command = [*HUSHGRID, "coordinator", str(self.write(scenario)), "--once"]
        daemon = Daemon(self.directory / f"{self.count}.log", command, environment)
        self.stack.callback(daemon.kill)
        return daemon

    def finish(self, scenario: Raw) -> None:
        """A run by the command, which ends well."""
        daemon = self.command(scenario)
        assert daemon.code() == 0, daemon.said

    def here(self, scenario: Raw, watch: Callable[[Coordinator], None], silent_s: float = 10.0) -> Coordinator:
        """A run by a coordinator in this process; `watch` sees it at every turn of its loop."""
        config = load_coordinator(self.write(scenario))
        case, plan = prepare(config, "")
        Path(config.state).mkdir(exist_ok=True)
        with closing(Ledger(Path(config.state) / "coordinator.ledger", "coordinator", durable=False)) as ledger:
            made = coordinator_of(config.fleet, plan, case, ledger, wait_s=60.0, silent_s=silent_s)
            link = link_for(made, config.broker)

            def until() -> bool:
                watch(made)
                return made.finished

            try:
                serve(made, link, until)
            finally:
                link.close(clear=(), forget=False)
            made.conclude()
        return made


# --- what a device has left ---


def copied(target: Target, to: Path) -> Ledger:
    """The ledger of a device that may run, and has nothing to do: opened as a copy."""
    to.mkdir(parents=True, exist_ok=True)
    for old in to.iterdir():
        old.unlink()
    for suffix in ("", "-wal", "-log"):
        with suppress(FileNotFoundError):
            copy2(f"{target.ledger}{suffix}", to)
    return Ledger(to / target.ledger.name, target.name, durable=False)


def committed(target: Target, ledger: Ledger) -> tuple[Any, dict[str, np.ndarray], str]:
    """The machine's last committed state, the outcome it declares, and the status of the run."""
    config = load_device(target.file)
    device = config.kind.device(config, str(target.file))
    stored = ledger.runs.last()
    assert stored is not None
    member = Member(config.fleet, device, ledger, config.budget, config.allow)
    _, driver, _ = member._agreed(stored.id, stored.plan)
    assert isinstance(driver, Driver)
    return driver.machine.state, driver.machine.outcome(), stored.status  # type: ignore[attr-defined]


def outcome_file(target: Target) -> Path:
    zone = isinstance(target.config["data"], Mapping)
    return target.state / f"{target.name}{'.setpoints.csv' if zone else '.model.npz'}"


def outcome(target: Target) -> dict[str, np.ndarray]:
    """The numbers of an outcome file: a model's arrays, or the set-points under `z`, in the order of the file."""
    path = outcome_file(target)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    with path.open(newline="") as file:
        return {"z": np.array([float(row["value"]) for row in csv.DictReader(file)])}


def spends_by_run(ledger: Path) -> dict[bytes, int]:
    """How many spends each run has in a ledger."""
    with copy_of(ledger) as copy:
        return dict(Counter(spend.run for spend in copy.spends.rows()))
