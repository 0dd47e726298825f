"""`hushgrid attack` on DPP2: eta, and the gradients behind noise that decays."""

import numpy as np
import pytest

from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.attacks.dpp2 import secret, untied
from tests.support.agents.dpp2_agents import FUNCTIONS, NUMBERS, STORED, N, V, published
from tests.support.agents.lockstep_rounds import messages
from tests.support.runs.attacked_runs import attacked_rows

KEYS = {"name": "dpp2", "alpha": 1.0, "beta": 0.5, "rho": 0.5}


@pytest.mark.runs
def test_without_noise_every_gradient_and_row_is_recovered(tmp_path):
    found = attack(attacked_rows(tmp_path, KEYS | {"variant": "none", "rounds": 15}, kind="softmax"), tmp_path)
    assert all(g == {"count": 15, "complete": 15, "what": "gradient"} for g in found["gradients"].values())
    assert found["scores"]["gradient_error"] <= 1e-12
    assert all(r["consistent"] for r in found["rows"].values())
    assert found["scores"]["psnr_worst"] >= 100


@pytest.mark.runs
def test_the_published_noise_has_decayed_from_the_last_gradient(tmp_path):
    keys = KEYS | {"variant": "published", "rounds": 120, "eta": 0.6, "decay": 0.9, "u_w": 1.0, "u_e": 1.0}
    run = attacked_rows(tmp_path, keys)
    found = attack(run, tmp_path)
    assert all(node["gradient_error"][0] > 0.1 for node in found["scores"]["nodes"].values())
    assert all(node["gradient_error"][-1] < 1e-3 for node in found["scores"]["nodes"].values())
    assert found["scores"]["psnr_worst"] >= 50  # the rows behind the last gradients
    arrays = dict(np.load(run / "attack/recovered.npz"))
    assert np.abs(arrays["eta"] - 0.6).max() <= 1e-14
    assert found["states"] == ["x", "eta"]


@pytest.mark.runs
def test_of_a_guarded_run_it_ends_with_the_gates_answers(tmp_path):
    found = attack(attacked_rows(tmp_path, KEYS | {"variant": "guarded", "rounds": 10}), tmp_path)
    assert all(g == {"count": 10, "complete": 10, "what": "noisy answer"} for g in found["gradients"].values())
    assert found["scores"]["gradient_error"] > 0.1
    assert not any(r["consistent"] for r in found["rows"].values())


def test_a_secret_eta_is_recovered_from_the_messages_and_then_the_gradients():
    """Of the stored run without noise, every round's eta another: in the first one no message depends on it."""
    sent = [message for _, message in messages(published(FUNCTIONS, STORED, tuple(V["eta"]), x0=V["x0"]))]
    y, z = np.array(sent[::2]), np.array(sent[1::2])
    eta = secret(y, z, NUMBERS["alpha"] * np.eye(N) - NUMBERS["beta"] * V["P"])
    assert np.isnan(eta[0])
    assert np.abs(eta - V["eta"])[1:].max() <= 1e-14
    x, g = untied(y, z, np.concatenate([[0.5], eta[1:]]), NUMBERS["rho"], V["P"])
    for k in range(len(y)):
        assert np.abs(x[k] - V["T0_x"][k]).max() <= 1e-12 * (k + 1)
        assert np.abs(g[k] - V["T0_g"][k]).max() <= 1e-12 * (k + 1) * NUMBERS["rho"]
