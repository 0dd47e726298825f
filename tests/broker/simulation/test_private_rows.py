"""What a private run over rows leaves is a function of gate answers and public data: of every byte, and tried by
attack.
"""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.patterns.token import Token
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.records.data import load
from tests.support import examples
from tests.support.agents.agents_without_gate import eavesdrop
from tests.support.runs.background_run import envelopes
from tests.support.runs.private_traces import left_with, other_rows
from tests.support.scenarios.record_scenarios import GAUSSIAN, iadmm, scenario

pytestmark = pytest.mark.runs


KINDS = {
    "recal": scenario(),
    "recal, l1": scenario({"problem.regularizer": {"l1": 0.01}, "algorithm.walk": "hamiltonian"}),
    "recal, bounded change": scenario({"privacy.adjacency": {"bounded-change": 0.1}}),
    "iadmm": iadmm(GAUSSIAN),
    "softmax": scenario({"problem.kind": "softmax", "problem.classes": 3}),
}


# --- non-interference: other rows, the same answers, the same bytes ---


EVERY = [
    *((kind, "trajectory", False) for kind in KINDS), ("recal", "summary", False), ("recal", "transcript", False),
    ("iadmm", "transcript", False), ("recal", "trajectory", True), ("iadmm", "trajectory", True),
]  # fmt: skip
#: Each algorithm, loss, relation and record, private and told.
FEW = [
    ("recal, bounded change", "trajectory", False), ("softmax", "trajectory", False), ("recal", "summary", False),
    ("iadmm", "transcript", False), ("recal", "trajectory", True),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "record", "told"), examples.few(EVERY, FEW))
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


# --- Finding 1.1: the eavesdropper on every edge ---


def gradients_overheard(over):
    """(what is heard of a gradient, the gradient there) of every visit but the last, from a run's transcript."""
    raw = scenario(GAUSSIAN | {"algorithm.rounds": 200, "run.record": "transcript"} | over)
    setup = RowSetup(scenario_from(raw))
    heard = [(e.seq, src, e.body) for src, _, e, _ in envelopes(run(raw).transcript) if isinstance(e.body, Token)]
    tokens = {seq: (int(src[1:]), token.vectors) for seq, src, token in heard}
    in_order = [tokens[k] for k in range(1, 200)]
    fs, p = setup.losses, setup.plan.algorithm
    for i, y, g in eavesdrop(in_order, p, fs, setup.public.regularizer):
        yield g, fs[i].gradient(y)


def test_of_a_published_run_he_has_every_gradient():
    seen = list(gradients_overheard({"algorithm.variant": "published", "privacy.epsilon": 0.1}))
    assert len(seen) == 195  # 199 tokens; of each node's last visit the next one would tell
    largest = max(float(np.max(np.abs(g))) for g, _ in seen)
    # 1/beta = 10 times the rounding of tokens as large as the noise, summed up over 50 visits; the noise stays out of
    # it.
    assert max(float(np.max(np.abs(g - true))) for g, true in seen) <= 1e-8 * max(largest, 1.0)


def test_of_a_guarded_run_he_has_what_the_gate_gave_noise_and_all():
    over = {"privacy.epsilon": 5.0, "algorithm.walk": "hamiltonian"}
    seen = list(gradients_overheard(over))
    setup = RowSetup(scenario_from(scenario(GAUSSIAN | {"algorithm.rounds": 200} | over)))
    expected = (
        setup.lattices[0].expected_l1 * setup.public.size
    )  # of an answer's noise; nothing is clipped: |a| <= 1 and the slope is below 1
    missed = np.array([float(np.sum(np.abs(g - true))) for g, true in seen])
    # 585 normals: their mean size is known to .76/sqrt(585) = 3 %; five times that, and the noise dwarfs gradients
    # below 1.
    assert abs(np.mean(missed) / expected - 1) < 0.16
    assert expected > 3
