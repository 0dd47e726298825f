"""`hushgrid attack` on the ADMM family: KKT's right-hand sides, and even messages that must be public."""

import numpy as np
import pytest

from hushgrid.kernels.algorithms import dpladmm, radmm
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.attacks.recycled import gradient_told, named
from tests.support.agents.agents_without_gate import Data
from tests.support.runs.attacked_runs import attacked_rows

pytestmark = pytest.mark.runs


GROWTH = {"start": 0.5, "growth": 1.01}
RUNS = [("admm", {"eta": 0.5}), ("radmm", {"eta": 0.5, "gamma": 0.2}), ("mradmm", {"eta": GROWTH, "gamma": 0.2}),
        ("madmm", {"eta": GROWTH, "theta": 0.3}), ("dpadmm", {"eta": 0.5}),
        ("dpladmm", {"eta": 0.5, "step": 1.0})]  # fmt: skip


@pytest.mark.parametrize(("name", "keys"), RUNS)
def test_without_noise_every_gradient_and_row_is_recovered(tmp_path, name, keys):
    found = attack(attacked_rows(tmp_path, {"name": name, "variant": "none", "rounds": 12} | keys), tmp_path)
    count = 6 if name in ("radmm", "mradmm") else 12
    assert all(g == {"count": count, "complete": count, "what": "gradient"} for g in found["gradients"].values())
    assert found["scores"]["gradient_error"] <= 1e-9  # of a certified solve
    assert found["scores"]["psnr_worst"] >= 100
    assert all(r["consistent"] for r in found["rows"].values())
    assert (found["recycled"] is None) == (count == 12)


def test_what_l1_sets_to_zero_and_a_box_cuts_is_hidden_and_nothing_else():
    params = dpladmm.Params(variant="none", rounds=3, eta=0.5, step=0.7)
    rng = np.random.default_rng(1)
    before, v = rng.normal(size=(2, 40))
    f = Loss(Objective(kind="logistic"), rng.normal(size=(30, 40)), np.sign(rng.normal(size=30)))
    agent = dpladmm.Agent(params, Data(f), 40, "n0", ["n1", "n3"])
    agent.regularizer = Regularizer(l1=0.2, l2=0.3, box=0.5)
    answer = agent.answer(v, 2, before)
    where, g = gradient_told(agent, v, 2, before, answer)
    hidden = (answer == 0) | (np.abs(answer) == 0.5)
    assert np.any(answer == 0)
    assert np.any(np.abs(answer) == 0.5)
    assert np.array_equal(np.isnan(g), hidden)
    assert np.allclose(g[~hidden], f.gradient(where)[~hidden], rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["guarded", "none"])
def test_the_even_messages_of_the_program_are_functions_of_public_values(tmp_path, variant):
    keys = {"name": "mradmm", "variant": variant, "rounds": 9, "eta": GROWTH, "gamma": 0.2}
    found = attack(attacked_rows(tmp_path, keys), tmp_path)
    assert found["recycled"] <= 1e-13
    if variant == "guarded":
        assert {g["what"] for g in found["gradients"].values()} == {"noisy answer"}
        assert found["scores"]["gradient_error"] > 0.1
        assert not any(r["consistent"] for r in found["rows"].values())


class Hurried(radmm.Agent):
    """Four short steps of descent for a minimiser, and the gradient that it stored in the even message (Finding
    5.2).
    """

    def answer(self, v, k, f):
        loss, q, x = self.gate.loss, self.quadratic(k), np.zeros(self.size)
        for _ in range(4):
            x = x - 0.1 * (loss.gradient(x) + v + q * x)
        self.stored = loss.gradient(x)
        return x

    def step(self, t, own, others):
        new = super().step(t, own, others)
        if t % 2 and t < self.messages:  # `recycled` has put KKT's right-hand side where the stored gradient goes
            weight = self.quadratic(self.params.answer_of(t)) + self.params.gamma
            kkt = -(self.state.v + self.quadratic(self.params.answer_of(t)) * own)
            new = new + (kkt - self.stored) / weight
        return new


def test_a_stored_gradient_in_the_even_messages_is_found_and_told(tmp_path, monkeypatch):
    """The negative control: a node that recycles what it stored. The run looks like any other."""

    def agent(self, at):
        return Hurried(self, at.gate, at.size, at.name, at.neighbours, report=at.report)

    monkeypatch.setattr(radmm.Params, "agent", agent)
    run = attacked_rows(tmp_path, {"name": "radmm", "variant": "none", "rounds": 8, "eta": 0.5, "gamma": 0.2})
    monkeypatch.undo()
    found = attack(run, tmp_path)
    assert found["recycled"] > 1e-6
    assert "NOT functions of public values" in (run / "attack/attack.html").read_text()
    arrays = dict(np.load(run / "attack/recovered.npz"))
    held = np.load(tmp_path / "n0.npz")
    loss = Loss(Objective(kind="logistic", l2=0.1), held["A"], held["b"])
    for at, stored in zip(arrays["at_n0"], arrays["stored_n0"], strict=False):
        assert np.allclose(stored, loss.gradient(at), rtol=0, atol=1e-12)


def test_of_two_data_sets_the_stored_gradient_names_the_right_one_always_and_the_public_one_as_a_coin_does():
    def descended(f, v, q):
        x = np.zeros(f.size)
        for _ in range(10):
            x = x - 0.1 * (f.gradient(x) + v + q * x)
        return x

    won = {"stored": 0, "public": 0}
    for game in range(200):
        rng = np.random.default_rng([8, game])
        A, b = rng.normal(size=(6, 3)), np.sign(rng.normal(size=6))
        A /= np.linalg.norm(A, axis=1)[:, None]
        other = A.copy()
        other[0] = np.roll(A[0], 1)
        fs = [Loss(Objective(kind="logistic", l2=0.1), rows, b) for rows in (A, other)]
        truth, eps = game % 2, rng.normal(size=3)
        x = descended(fs[truth], eps, 2.0)
        won["stored"] += named(fs, x, eps + fs[truth].gradient(x), 2.0, descended) == truth
        won["public"] += named(fs, x, -2.0 * x, 2.0, descended) == truth
    assert won["stored"] == 200
    assert abs(won["public"] - 100) <= 50  # 200 tosses of a coin: beyond 50 with probability 1e-12
