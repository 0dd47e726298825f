"""`hushgrid` in this process, and small scenarios to give to it."""

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from hushgrid.grid_cases.setpoints import COLUMNS
from tests.support.paths import SCENARIOS

SCENARIO = SCENARIOS / "case14.yaml"


class Said(NamedTuple):
    code: int
    out: str
    err: str


def good() -> dict[str, Any]:
    return {
        "hushgrid": 1, "name": "small",
        "problem": {"kind": "zones", "case": "case14", "zones": 3},
        "algorithm": {"name": "ladmm", "rounds": 3},
        "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0},
    }  # fmt: skip


def write(path: Path, over: dict[str, Any] | None = None) -> Path:
    """A scenario; over: dotted key paths to values, None takes the key away."""
    raw = good()
    for key, value in (over or {}).items():
        *parents, last = key.split(".")
        here = raw
        for parent in parents:
            here = here.setdefault(parent, {})
        here.update({last: value}) if value is not None else here.pop(last)
    path.write_text(yaml.safe_dump(raw))
    return path


def tree(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


RESULT = [
    "name",
    "algorithm",
    "variant",
    "transport",
    "broker",
    "nodes",
    "lost",
    "solved",
    "frozen",
    "walk",
    "rounds_done",
    "stopped_because",
    "quality",
    "objective",
    "optimality_gap",
    "relative_error",
    "consensus_residual",
    "max_violation",
    "generation_mw",
    "load_mw",
    "served_mw",
    "unserved_mw",
    "spilled_mw",
    "load_noise_mw",
    "slack_mvar",
    "bound",
    "gap",
    "disagreement_mw",
    "prices",
    "prices_relaxed",
    "ac",
    "messages",
    "bytes",
    "wall_s",
    "privacy",
    "notes",
    "versions",
]
PRIVACY = [
    "claimed",
    "spent",
    "per_node",
    "adjacency",
    "mechanism",
    "accountant",
    "sampler",
    "answers",
    "capped",
    "upheld",
    "findings",
    "ledgers",
]
HISTORY = [
    "round",
    "objective",
    "consensus_residual",
    "max_violation",
    "noise_l1",
    "noise_l1_expected",
    "messages",
    "bytes",
    "epsilon_z1",
    "epsilon_z2",
    "epsilon_z3",
]
FILES = ["history.csv", "ledger", "report.html", "result.json", "scenario.yaml", "setpoints.csv", "solution.npz"]


def assert_a_private_run_leaves_what_the_contract_says(hushgrid, tmp_path, transport, *options) -> None:
    """Every file with its fields, and no figure of raw data."""
    said = hushgrid("run", write(tmp_path / "s.yaml"), *options, "--out", "run", "--json")
    assert (said.code, said.err) == (0, "")
    run = tmp_path / "run"
    assert said.out == (run / "result.json").read_text()
    assert sorted(p.name for p in run.iterdir()) == FILES
    assert sorted(p.name for p in (run / "ledger").iterdir()) == [
        f"{n}.ledger" for n in ("coordinator", "z1", "z2", "z3")
    ]

    result = json.loads(said.out)
    assert list(result) == RESULT
    assert sorted(result["privacy"]) == sorted(PRIVACY)
    assert (result["transport"], result["nodes"], result["rounds_done"]) == (transport, 3, 3)
    assert result["privacy"]["upheld"] is True
    assert result["privacy"]["claimed"] == {"epsilon": 5.0, "delta": 0.0}
    assert [result[k] for k in ("objective", "optimality_gap", "relative_error")] == [None] * 3

    with (run / "history.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == HISTORY
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert {row[header.index(name)] for row in rows for name in ("objective", "noise_l1")} == {""}
    assert sum(int(row[header.index("messages")]) for row in rows) == result["messages"]
    assert float(rows[-1][header.index("epsilon_z1")]) == pytest.approx(5.0)

    with np.load(run / "solution.npz", allow_pickle=False) as solution:
        assert sorted(solution) == sorted(["w", "keys_w", *(f"{k}_z{i}" for k in ("z", "keys") for i in (1, 2, 3))])
        assert solution["w"].shape == solution["keys_w"].shape
        assert solution["z_z1"].shape == solution["keys_z1"].shape
    with (run / "setpoints.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["node", *COLUMNS]
    assert {row[0] for row in rows} == {"z1", "z2", "z3"}
    assert {row[4] for row in rows} == {"MW", "MVAr", "p.u."}
    assert hushgrid("check", run / "scenario.yaml").code == 0

    page = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    assert hushgrid("report", run).out == f"{run / 'report.html'}\n"
    assert (run / "report.html").read_bytes() == page
