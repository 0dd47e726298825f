"""What a private run leaves is a function of gate answers and public data: said of every byte, and tried by attack."""

import base64
import itertools
import json
import os
import re
import shutil
import sqlite3
import struct
import time
import zipfile
from pathlib import Path

import fleet
import numpy as np
import pytest

import hushgrid.grid_cases
from hushgrid.broker import processes, zone_runs
from hushgrid.broker.simulation import run
from hushgrid.broker.zone_runs import ZoneSetup
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.noise import Lattice
from hushgrid.node import ledger, wire, zones
from hushgrid.node.config import scenario_from
from hushgrid.node.driver import Stored
from hushgrid.node.gate import GateState
from hushgrid.node.mqtt import MqttLink

NODES = ("z1", "z2", "z3")
RAW = ("objective", "optimality_gap", "relative_error")
MODES = ["objective", "input"]
EPSILON = 1.0  # on a bounded change of 0.01 p.u.


def private(mode="objective", rounds=5, **over):
    return fleet.scenario({"privacy.mode": mode, "privacy.epsilon": EPSILON, "algorithm.rounds": rounds}, **over)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_computed_from_raw_data_or_from_the_noise_is_filled(tmp_path, mode):
    run(private(mode), out=tmp_path / "out")
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert result["privacy"]["upheld"] is True
    assert [result[name] for name in RAW] == [None] * 3
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
        held.setattr(ledger, "_now", lambda: "2000-01-01T00:00:00Z")
        held.setattr(zone_runs, "loads", d_of)
        held.setattr(Lattice, "release", release)
        # A keyed digest of the data, under a secret that stays on the device: another run has another anyway.
        held.setattr(zones.AnswerMemory, "key", lambda self, answer, data: b"a keyed digest")
        run(raw, out=out)
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def other_loads(case, buses):
    return 1.37 * loads(case, buses) + 0.11


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("mode", "record"), [("objective", "trajectory"), ("objective", "transcript"), ("input", "trajectory")]
)
@pytest.mark.parametrize("told", [False, True], ids=["private", "truth"])
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
    # |A z + d|^2 = |A z|^2 + 2 (A z).d + |d|^2: linear in (d, |d|^2). Any column might be it, or a multiple.
    for name, column in rundir_columns(out).items():
        known = np.isfinite(column)
        if known.sum() > flow.shape[1] + 1:
            system = np.hstack([2 * flow[known], np.ones((known.sum(), 1))])
            target = column[known] - np.sum(flow[known] ** 2, axis=1)
            found[name] = np.linalg.lstsq(system, target, rcond=None)[0][:-1]
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


def test_an_attack_that_finds_every_load_where_the_objective_is_told(tmp_path):
    raw = private(rounds=60, **{"run.record": "trajectory", "run.truth": True})
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


def odd_case(path):
    """case14 with loads that no chance repeats: many digits each."""
    source = Path(hushgrid.grid_cases.__file__).with_name("pglib_opf_case14_ieee.m").read_text()
    head, table, rest = re.split(r"(?<=mpc\.bus = \[\n)(.*?)(?=\];)", source, maxsplit=1, flags=re.DOTALL)
    dice, lines = np.random.default_rng(3), []
    for line in table.splitlines():
        cells = line.split()
        cells[2:4] = [repr(float(cell) + dice.uniform(0.1, 1.0)) for cell in cells[2:4]]
        lines.append("\t" + "\t ".join(cells))
    path.write_text(head + "\n".join(lines) + "\n" + rest)
    return str(path)


def traces(d, base_mva, secrets):
    """Every way a load or a secret might stand in a file."""
    needles = [s for secret in secrets for s in (secret, secret.hex().encode(), base64.b64encode(secret))]
    for value in np.concatenate([d, d * base_mva]):
        needles += [struct.pack(order + "d", sign * value) for order in "<>" for sign in (1, -1)]
        digits = f"{abs(value):.8e}".replace(".", "").split("e")[0][:8]  # significant ones: no chance repeats eight
        point = int(np.floor(np.log10(abs(value)))) + 1
        needles += [f"{digits[:1]}.{digits[1:]}".encode()]
        needles += [(f"{digits[:point]}.{digits[point:]}" if point > 0 else f"0.{'0' * -point}{digits}").encode()]
    return needles


def haystack(directory):
    """{name: bytes} of every file, archives and base64 opened."""
    found = {}
    for path in directory.rglob("*"):
        if path.is_file():
            found[path.name] = path.read_bytes()
            if path.suffix == ".npz":
                with zipfile.ZipFile(path) as archive:
                    found |= {f"{path.name}:{n}": archive.read(n) for n in archive.namelist()}
            if path.suffix == ".jsonl":
                lines = [json.loads(line) for line in path.read_text().splitlines()]
                found[f"{path.name}, decoded"] = b"\n".join(base64.b64decode(line["bytes"]) for line in lines)
    return found


def found_in(directory, needles):
    return sorted({name for name, text in haystack(directory).items() for needle in needles if needle in text})


@pytest.mark.parametrize("mode", MODES)
def test_no_load_and_no_secret_stands_in_a_file_on_the_wire_or_in_a_log(tmp_path, monkeypatch, embedded, mode):
    case = odd_case(tmp_path / "odd.m")
    logs, end = tmp_path / "logs", processes.Fleet.end

    def keep(children):
        end(children)
        logs.mkdir()
        for log in children.directory.glob("*.log"):
            shutil.copy2(log, logs)

    monkeypatch.setattr(processes.Fleet, "end", keep)
    raw = private(mode, rounds=200, **{"problem.case": case, "run.record": "transcript"})
    background = fleet.Background(
        raw, transport="mqtt", broker=embedded.url, state=tmp_path / "state", out=tmp_path / "out"
    )
    background.child("z1").kill()  # its log goes on over the restart
    name = background.when(lambda: [t for t in fleet.retained(embedded.url, 0.2) if t.endswith("z2")])[0]
    with_garbage(embedded.url, name.replace("state/z2", "edge/coordinator/z2"))
    result = background.wait(60)
    assert result.privacy["upheld"] is True

    odd = load(case)
    d = loads(odd, tuple(odd.buses.numbers.tolist()))
    secrets = [path.read_bytes() for path in (tmp_path / "state").glob("*.key")]
    assert len(secrets) == 3
    needles = traces(d[d != 0], odd.base_mva, secrets)
    assert found_in(tmp_path / "out", needles) == []
    assert found_in(logs, needles) == []
    assert "joined" in (logs / "z1.log").read_text()
    assert "dropped" in (logs / "z2.log").read_text()
    # The search can find: what is private does hold them.
    (tmp_path / "device").mkdir()
    np.savez(tmp_path / "device/loads.npz", d=d)
    shutil.copy2(tmp_path / "odd.m", tmp_path / "device")
    shutil.copy2(tmp_path / "state/z1.key", tmp_path / "device")
    assert set(found_in(tmp_path / "device", needles)) >= {"loads.npz:d.npy", "odd.m", "z1.key"}


def with_garbage(url, topic):
    link = MqttLink(url, "stranger", persistent=False)
    link.connect(5.0)
    link.publish(topic, b"\xc1 not a message")
    link.close()
