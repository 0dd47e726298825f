"""A real device under attack: its files, its `hushgrid node` process, and what its own ledger says it has spent."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from tests.support.daemons.deployed_fleet import HUSHGRID, Daemon

#: The zones of deploy's example, and how an honest coordinator would have the first one take part.
ZONES = ([1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13])
BETA = 0.01  #: p.u., 1 MW: the bounded change of the example
UNIT = {"bounded-change": BETA}
SCENARIO: dict[str, Any] = {
    "hushgrid": 1,
    "name": "demo",
    "problem": {"kind": "zones", "case": "case14", "zones": [list(z) for z in ZONES]},
    "algorithm": {"name": "ladmm", "rounds": 1},
    "privacy": {"mechanism": "laplace", "adjacency": UNIT, "epsilon": 5.0, "mode": "objective"},
}


class Account(NamedTuple):
    """What a ledger says."""

    answers: int  #: fresh answers paid for
    epsilon: float  #: of all of them
    nonprivate: bool


class Target:
    """A device in a directory of its own, on the broker at `url`. `config` is its file, without names and places."""

    def __init__(
        self, directory: Path, url: str, stack: ExitStack, name: str, config: Mapping[str, Any], fleet: str = "demo",
        mark: bool = True,
    ) -> None:  # fmt: skip
        self.directory, self.name, self.stack, self.starts = directory, name, stack, 0
        self.state, self.mark = directory / "state", directory / "marks" / f"{name}.mark" if mark else None
        self.ledger, self.file = self.state / f"{name}.ledger", directory / f"{name}.yaml"
        directory.mkdir(parents=True, exist_ok=True)
        self.config: dict[str, Any] = {"node": name, "fleet": fleet, "broker": url, "state": str(self.state), **config}
        if self.mark:
            self.config["mark"] = str(self.mark)
        self.write()

    def write(self) -> None:
        """The configuration as a file."""
        self.file.write_text(yaml.safe_dump(self.config))

    def start(self, *, ready: bool = True, **environment: str) -> Daemon:
        self.starts += 1
        log = self.directory / f"{self.starts}.log"
        self.daemon = Daemon(log, [*HUSHGRID, "node", str(self.file)], environment)
        self.stack.callback(self.daemon.kill)
        if ready:
            self.daemon.wait_for("ready on")
        return self.daemon

    def restart(self) -> Daemon:
        self.daemon.end()
        return self.start()

    @property
    def logged(self) -> int:
        """Bytes of all its logs."""
        return sum(log.stat().st_size for log in self.directory.glob("*.log"))

    @property
    def stored(self) -> int:
        """Bytes of its state directory."""
        return sum(file.stat().st_size for file in self.state.rglob("*") if file.is_file())

    def ledger_command(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        """`hushgrid ledger VERB` on its configuration, by which the mark and the budget are known too."""
        command = [*HUSHGRID, "ledger", verb, str(self.file), *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    def account(self) -> Account:
        """What the ledger of this device, which must have ended, has counted."""
        return account(self.file)


def account(ledger: Path) -> Account:
    """`hushgrid ledger show --json`, summed over every relation."""
    done = subprocess.run(
        [*HUSHGRID, "ledger", "show", str(ledger), "--json"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    costs = [total["epsilon"] for total in said["totals"]]
    known = [cost for cost in costs if cost is not None]
    answers = sum(total["answers"] for total in said["totals"])
    return Account(answers, float(sum(known)), len(known) < len(costs))


# --- the two kinds of device ---


def zone_config(directory: Path, budget: float = 20.0, per_run: float = 5.0, p3: float | None = None) -> dict[str, Any]:
    """Zone z1 of case14 with the case's loads; `p3`: another active load of bus 3, in MW."""
    directory.mkdir(parents=True, exist_ok=True)
    case, buses = load("case14"), tuple(ZONES[0])
    d = np.asarray(loads(case, buses)) * case.base_mva
    if p3 is not None:
        d[buses.index(3)] = p3
    place = directory / "loads.csv"
    replaced = place.with_suffix(".new")
    with replaced.open("w", newline="") as file:
        rows = zip(buses, d[: len(buses)].tolist(), d[len(buses) :].tolist(), strict=True)
        csv.writer(file).writerows([("bus", "p_mw", "q_mvar"), *rows])
    replaced.replace(place)  # as an intake would: a new file in the place of the old one
    return {
        "data": {"case": "case14", "zone": list(buses), "loads": str(place)},
        "budget": {"epsilon": budget, "adjacency": UNIT},
        "allow": {"algorithms": ["ladmm"], "per_run": {"epsilon": per_run}},
    }


def rows_config(
    directory: Path, A: Sequence[Sequence[float]], b: Sequence[float], adjacency: Mapping[str, Any],
    budget: float, per_run: float | None = None, *, labels: Mapping[str, Any] | None = None,
    problem: Mapping[str, Any] | None = None, algorithms: Sequence[str] = ("recal", "iadmm"),
) -> dict[str, Any]:  # fmt: skip
    """A device with rows. `labels`, `problem`: what its owner declares, where this version knows such keys."""
    directory.mkdir(parents=True, exist_ok=True)
    np.savez(directory / "rows.npz", A=np.array(A, dtype=float), b=np.array(b, dtype=float))
    config: dict[str, Any] = {
        "data": str(directory / "rows.npz"),
        "budget": {"epsilon": budget, "adjacency": dict(adjacency)},
        "allow": {"algorithms": list(algorithms)} | ({"per_run": {"epsilon": per_run}} if per_run else {}),
    }
    return declared(directory, config, labels=labels, problem=problem)


def declared(directory: Path, config: dict[str, Any], **declarations: Mapping[str, Any] | None) -> dict[str, Any]:
    """The configuration with those of its owner's declarations that this version of the program knows.

    A version before `labels` and `problem` refuses the keys: `hushgrid check` is asked, one key after the other.
    """
    names = {"node": "n0", "fleet": "demo", "broker": "mqtt://127.0.0.1:1", "state": str(directory / "nowhere")}
    for key, value in declarations.items():
        if value is None:
            continue
        file = directory / "declared.yaml"
        file.write_text(yaml.safe_dump({**names, **config, key: dict(value)}))
        done = subprocess.run([*HUSHGRID, "check", str(file)], capture_output=True, text=True, timeout=300)
        if not (done.returncode == 2 and f" {key}: unknown key" in done.stderr):
            config = {**config, key: dict(value)}
    return config
