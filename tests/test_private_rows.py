"""What a private run over rows leaves is a function of gate answers and public data: of every byte, and tried by attack."""

import itertools
import os
import shutil
import time

import numpy as np
import pytest
from fleet import envelopes
from sensor_runs import GAUSSIAN, iadmm, scenario
from sensors import eavesdrop
from test_private_run import found_in, traces

from hushgrid.broker import processes
from hushgrid.broker.row_runs import RowSetup
from hushgrid.broker.simulation import run
from hushgrid.kernels.baton import Token
from hushgrid.kernels.noise import Lattice
from hushgrid.node import ledger, rows
from hushgrid.node.config import scenario_from
from hushgrid.node.data import Shard, load, unit_rows

KINDS = {
    "recal": scenario(),
    "recal, l1": scenario({"problem.regularizer": {"l1": 0.01}, "algorithm.walk": "hamiltonian"}),
    "recal, bounded change": scenario({"privacy.adjacency": {"bounded-change": 0.1}}),
    "iadmm": iadmm(GAUSSIAN),
    "softmax": scenario({"problem.kind": "softmax", "problem.classes": 3}),
}


# --- non-interference: other rows, the same answers, the same bytes ---


def other_rows(*arguments):
    """Other rows and labels, as many and as wide, within the bound."""
    dice = np.random.default_rng(1)
    found = load(*arguments)
    return [Shard(0.9 * unit_rows(dice.normal(size=s.A.shape)), np.roll(s.b, 1)) for s in found]


def left_with(monkeypatch, out, raw, rows_of, release):
    """The files of a run over rows_of(...), with clock, identifiers and gate answers held still."""
    counter, entropy = itertools.count(1), os.urandom

    def urandom(size):  # 16 and 32 bytes: nonces, ledger numbers, keys; noise takes other amounts
        return next(counter).to_bytes(size, "big") if size in (16, 32) else entropy(size)

    with monkeypatch.context() as held:
        held.setattr(os, "urandom", urandom)
        held.setattr(time, "perf_counter", lambda: 0.0)
        held.setattr(ledger, "_now", lambda: "2000-01-01T00:00:00Z")
        held.setattr(rows, "load", rows_of)
        held.setattr(Lattice, "release", release)
        run(raw, out=out)
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    ("kind", "record", "told"),
    [
        *((kind, "trajectory", False) for kind in KINDS), ("recal", "summary", False), ("recal", "transcript", False),
        ("iadmm", "transcript", False), ("recal", "trajectory", True), ("iadmm", "trajectory", True),
    ],
)  # fmt: skip
def test_the_same_answers_over_other_rows_leave_the_same_bytes(kind, record, told, tmp_path, monkeypatch):
    raw = KINDS[kind] | {"run": {"record": record, "truth": told}}
    answers, honest = [], Lattice.release

    def listen(lattice, v, n):
        answers.append(honest(lattice, v, n))
        return answers[-1]

    one = left_with(monkeypatch, tmp_path / "one", raw, load, listen)
    again = iter(answers)
    other = left_with(monkeypatch, tmp_path / "other", raw, other_rows, lambda lattice, v, n: next(again))
    assert next(again, None) is None, "not every answer was asked for again"
    assert len(answers) >= 15
    assert one.keys() == other.keys()
    assert {"history.csv", "solution.npz", "report.html", "ledger/n0.ledger", "ledger/coordinator.ledger"} <= one.keys()
    differing = [name for name in one if one[name] != other[name]]
    assert ("history.csv" in differing and "result.json" in differing) if told else differing == []


# --- no byte of it: run directory, wire, logs ---


def test_no_row_and_no_secret_stands_in_a_file_on_the_wire_or_in_a_log(tmp_path, monkeypatch, embedded):
    logs, end = tmp_path / "logs", processes.Fleet.end

    def keep(children):
        end(children)
        logs.mkdir()
        for log in children.directory.glob("*.log"):
            shutil.copy2(log, logs)

    monkeypatch.setattr(processes.Fleet, "end", keep)
    raw = scenario({"run.record": "transcript"})
    found = run(raw, transport="mqtt", broker=embedded.url, state=tmp_path / "state", out=tmp_path / "out")
    assert found.privacy["upheld"] is True
    values = np.concatenate([shard.A.ravel() for shard in RowSetup(scenario_from(raw)).shards])
    secrets = [path.read_bytes() for path in (tmp_path / "state").glob("*.key")]
    needles = traces(values, 1.0, secrets)
    for left in ("out", "logs", "state"):
        assert [name for name in found_in(tmp_path / left, needles) if not name.endswith(".key")] == []
    assert "joined" in "".join(log.read_text() for log in logs.iterdir())
    # The search can find: what is private does hold them.
    (tmp_path / "device").mkdir()
    np.savez(tmp_path / "device/n0.npz", A=values)
    assert found_in(tmp_path / "device", needles) == ["n0.npz", "n0.npz:A.npy"]


# --- Finding 1.1: the eavesdropper on every edge ---


def gradients_overheard(over):
    """(what is heard of a gradient, the gradient there) of every visit but the last, from a run's transcript."""
    raw = scenario(GAUSSIAN | {"algorithm.rounds": 200, "run.record": "transcript"} | over)
    setup = RowSetup(scenario_from(raw))
    heard = [(e.seq, src, e.body) for src, _, e, _ in envelopes(run(raw).transcript) if isinstance(e.body, Token)]
    tokens = {seq: (int(src[1:]), token.vectors) for seq, src, token in heard}
    in_order = [tokens[k] for k in range(1, 200)]
    fs, p = setup.losses, setup.plan.algorithm
    for i, y, g in eavesdrop(in_order, p, fs, setup.shown.regularizer):
        yield g, fs[i].gradient(y)


def test_of_a_published_run_he_has_every_gradient():
    seen = list(gradients_overheard({"algorithm.variant": "published", "privacy.epsilon": 0.1}))
    assert len(seen) == 195  # 199 tokens; of each node's last visit the next one would tell
    largest = max(float(np.max(np.abs(g))) for g, _ in seen)
    # 1/beta = 10 times the rounding of tokens as large as the noise, summed up over 50 visits; the noise stays out of it.
    assert max(float(np.max(np.abs(g - true))) for g, true in seen) <= 1e-8 * max(largest, 1.0)


def test_of_a_guarded_run_he_has_what_the_gate_gave_noise_and_all():
    over = {"privacy.epsilon": 5.0, "algorithm.walk": "hamiltonian"}
    seen = list(gradients_overheard(over))
    setup = RowSetup(scenario_from(scenario(GAUSSIAN | {"algorithm.rounds": 200} | over)))
    expected = setup.expected_l1[0]  # of an answer's noise; nothing is clipped: |a| <= 1 and the slope is below 1
    missed = np.array([float(np.sum(np.abs(g - true))) for g, true in seen])
    # 585 normals: their mean size is known to .76/sqrt(585) = 3 %; five times that, and the noise dwarfs gradients below 1.
    assert abs(np.mean(missed) / expected - 1) < 0.16
    assert expected > 3
