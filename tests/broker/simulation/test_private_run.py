"""What a private run leaves is a function of gate answers and public data: said of every byte, and tried by attack."""

import itertools
import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import hushgrid.grid_cases
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems import power_flow
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.lab.attacks.zones import demand
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy import ledger
from hushgrid.node.privacy.gate import GateState
from hushgrid.node.privacy.ledger_log import Tables
from hushgrid.node.runtime.driver import Stored
from tests.support import examples
from tests.support.runs import background_run
from tests.support.runs.private_traces import EPSILON, MODES, private

pytestmark = pytest.mark.runs


NODES = ("z1", "z2", "z3")
RAW = ("objective", "optimality_gap", "relative_error")
POWER = ("generation_mw", "load_mw", "served_mw", "unserved_mw", "spilled_mw")


@pytest.mark.parametrize("mode", MODES)
def test_nothing_computed_from_raw_data_or_from_the_noise_is_filled(tmp_path, mode):
    run(private(mode), out=tmp_path / "out")
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert result["privacy"]["upheld"] is True
    told = [name for name in (*RAW, *POWER) if result[name] is not None]
    # The noisy loads of mode input are one answer: what is computed from them and the released flows is
    # post-processing.
    assert told == ([] if mode == "objective" else ["objective", "optimality_gap", *POWER])
    header, *rows = [line.split(",") for line in (tmp_path / "out/history.csv").read_text().splitlines()]
    assert {row[header.index(name)] for row in rows for name in ("objective", "noise_l1")} == {""}


# --- non-interference: other loads, the same answers, the same bytes ---


def left_with(monkeypatch, out, raw, d_of, release):
    """The files of a run whose loads are d_of(case, buses), with clock, identifiers and gate answers held still."""
    counter = itertools.count(1)
    entropy = os.urandom

    def urandom(size):  # 16 and 32 bytes: nonces, ledger numbers, keys; noise takes other amounts
        return next(counter).to_bytes(size, "big") if size in (16, 32) else entropy(size)

    with monkeypatch.context() as held:
        held.setattr(os, "urandom", urandom)
        held.setattr(time, "perf_counter", lambda: 0.0)
        held.setattr(Tables, "now", staticmethod(lambda: "2000-01-01T00:00:00Z"))
        held.setattr(power_flow, "loads", d_of)
        held.setattr(Lattice, "release", release)
        run(raw, out=out)
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def other_loads(case, buses):
    return 1.37 * loads(case, buses) + 0.11


RECORDS = [("objective", "trajectory"), ("objective", "transcript"), ("input", "trajectory")]
#: Each mechanism, mode and record, private and told; `make test-long` tries every combination.
FEW = [
    ("laplace", "objective", "trajectory", False), ("gaussian", "objective", "transcript", False),
    ("gaussian", "input", "trajectory", False), ("laplace", "objective", "trajectory", True),
]  # fmt: skip
EVERY = [
    (mechanism, *record, told) for mechanism in ("laplace", "gaussian") for record in RECORDS for told in (False, True)
]


@pytest.mark.parametrize(("mechanism", "mode", "record", "told"), examples.few(EVERY, FEW))
def test_the_same_answers_over_other_loads_leave_the_same_bytes(tmp_path, monkeypatch, mechanism, mode, record, told):
    delta = {"privacy.delta": 1e-5} if mechanism == "gaussian" else {}
    raw = private(mode, **delta, **{"privacy.mechanism": mechanism, "run.record": record, "run.truth": told})
    answers, honest = [], Lattice.release

    def listen(lattice, v, n):
        answers.append(honest(lattice, v, n))
        return answers[-1]

    one = left_with(monkeypatch, tmp_path / "one", raw, loads, listen)
    again = iter(answers)
    other = left_with(monkeypatch, tmp_path / "other", raw, other_loads, lambda lattice, v, n: next(again))
    assert next(again, None) is None, "not every answer was asked for again"
    assert one.keys() == other.keys()
    assert {"history.csv", "solution.npz", "report.html", "ledger/z1.ledger"} <= one.keys()
    differing = [name for name in one if one[name] != other[name]]
    assert ("history.csv" in differing and "result.json" in differing) if told else differing == []


# --- least squares on everything that is left ---


def guesses(out, raw):
    """{from what: an attacker's (28,) loads}, all zones' d after each other, computed from a run directory."""
    setup = ZoneSetup(scenario_from(raw))
    models = [setup.models[p] for p in NODES]
    found = {}
    with np.load(out / "trajectory.npz") as rows:
        flow = np.hstack([rows[f"z_{m.name}"] @ m.A.T.toarray() for m in models])  # A z of every round
    # Any column might be the objective, or a multiple.
    for name, column in rundir_columns(out).items():
        known = np.isfinite(column)
        if known.sum() > flow.shape[1] + 1:
            found[name] = demand(flow[known], column[known])
    found["the flow of the last round"] = -flow[-1]
    found["the mean flow"] = -flow.mean(axis=0)
    found["the gates' state in the ledgers"] = np.concatenate([remembered(out / f"ledger/{p}.ledger") for p in NODES])
    return found


def rundir_columns(out):
    header, *rows = [line.split(",") for line in (out / "history.csv").read_text().splitlines()]
    return {n: np.array([float(row[k] or "nan") for row in rows]) for k, n in enumerate(header)}


def remembered(path):
    """The mean of a gate's answers, as its ledger remembers it."""
    with sqlite3.connect(path) as db:
        (blob,) = db.execute("SELECT state FROM run").fetchone()
    db.close()
    gate = wire.decode_state(GateState, wire.decode_state(Stored, blob).gate)
    return gate.kept if gate.kept.size else gate.total / gate.answers


def truth():
    setup = ZoneSetup(scenario_from(private()))
    return np.concatenate([loads(setup.case, setup.models[p].buses) for p in NODES])


@pytest.mark.parametrize("told", [{"run.truth": True}, {"algorithm.variant": "published"}])
def test_an_attack_that_finds_every_load_where_the_objective_is_told(tmp_path, told):
    raw = private(rounds=60, **{"run.record": "trajectory"}, **told)
    run(raw, out=tmp_path / "out")
    assert np.abs(guesses(tmp_path / "out", raw)["objective"] - truth()).max() < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_the_same_attack_finds_nothing_in_a_private_run(tmp_path, mode):
    raw = private(mode, rounds=60, **{"run.record": "trajectory"})
    run(raw, out=tmp_path / "out")
    found = guesses(tmp_path / "out", raw)
    assert "objective" not in found
    assert {"consensus_residual", "max_violation", "messages", "the gates' state in the ledgers"} <= found.keys()
    # The mean of a coordinate's answers has density at most epsilon / (2 x 0.01), whatever their number: within t of
    # the load with chance at most t epsilon / 0.01. All 28 within a tenth of 0.01 / epsilon: 10^-28.
    for name, guess in found.items():
        assert np.abs(guess - truth()).max() > 0.1 * 0.01 / EPSILON, name


# --- no byte of it: run directory, wire, logs ---


def test_a_case_file_that_was_replaced_is_a_new_data_version_of_ledgers_that_are_kept(tmp_path):
    """The same file again repeats its answer at no cost; another one is answered anew, and paid."""
    path, state = tmp_path / "own.m", tmp_path / "state"
    path.write_bytes((Path(hushgrid.grid_cases.__file__).parent / "pglib_opf_case5_pjm.m").read_bytes())

    def spends(times=1):
        for _ in range(times):
            run(
                background_run.scenario({"problem.case": str(path), "problem.zones": 2, "privacy.mode": "input"}),
                state=state,
            )
        with closing(ledger.Ledger(state / "z1.ledger", "z1")) as kept:
            return len(kept.spends.rows()), kept.data_version

    assert spends(2) == (1, 1)
    (tmp_path / "new.m").write_bytes(path.read_bytes())
    os.replace(tmp_path / "new.m", path)  # with the same loads: that is not looked at
    assert spends(2) == (2, 2)
