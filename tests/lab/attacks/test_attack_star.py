"""`hushgrid attack` around a coordinator: with one local step the difference is the gradient,
with several it is not.
"""

import numpy as np
import pytest

from hushgrid.lab.attacks.attack import attack
from tests.support.runs.attacked_runs import attacked

pytestmark = pytest.mark.runs


LADMM = {"name": "ladmm", "rho": 1.0}
FEDAVG = {"name": "fedavg", "step_size": 1.0}


@pytest.mark.parametrize("keys", [LADMM, FEDAVG, FEDAVG | {"name": "fedprox", "mu": 0.1}], ids=lambda k: k["name"])
def test_with_one_local_step_every_gradient_and_every_image_is_recovered(tmp_path, keys):
    run = attacked(tmp_path, nodes=3, m=4, visits=12, **keys)
    found = attack(run, tmp_path)
    assert all(g == {"count": 12, "complete": 12, "what": "gradient"} for g in found["gradients"].values())
    assert found["scores"]["gradient_error"] <= 1e-12
    assert found["scores"]["psnr_worst"] >= 60
    assert found["scores"]["labels"] == 1.0
    assert list(np.load(run / "attack/recovered.npz")["when_n0"]) == list(range(1, 13))


def test_guarded_the_difference_is_the_gates_noisy_answer(tmp_path):
    run = attacked(tmp_path, nodes=3, visits=12, variant="guarded", privacy={"epsilon": 100.0}, **LADMM)
    found = attack(run, tmp_path)
    assert {g["what"] for g in found["gradients"].values()} == {"noisy answer"}
    assert not any(r["consistent"] for r in found["rows"].values())
    assert found["scores"]["gradient_error"] > 1


@pytest.mark.parametrize("keys", [LADMM, FEDAVG], ids=lambda k: k["name"])
def test_at_the_box_a_coordinate_of_the_answer_is_hidden_where_the_node_projects(tmp_path, keys):
    run = attacked(tmp_path, nodes=3, visits=12, problem={"box": 0.02}, **keys)
    found, arrays = attack(run, tmp_path), np.load(run / "attack/recovered.npz")
    for node in found["gradients"]:
        hidden = np.isnan(arrays[f"g_{node}"])
        assert not hidden.all()
        assert hidden.any() == (keys is LADMM)  # of one step of federated averaging the coordinator projects the mean
    assert found["scores"]["gradient_error"] <= 1e-12


@pytest.mark.parametrize(("keys", "m"), [(LADMM, 2), (FEDAVG, 1)], ids=["ladmm", "fedavg"])
def test_with_several_local_steps_members_are_simulated_until_they_answer_as_they_did(tmp_path, keys, m):
    found = attack(attacked(tmp_path, nodes=2, m=m, visits=6, local_updates=3, **keys), tmp_path)
    assert found["gradients"] == {}
    assert all(r == r | {"count": m, "method": "matching", "consistent": True} for r in found["rows"].values())
    assert found["scores"]["psnr_worst"] >= 100
    assert found["scores"]["labels"] == 1.0


def test_guarded_no_simulated_member_answers_as_it_did(tmp_path):
    over = {"variant": "guarded", "privacy": {"epsilon": 100.0}, "local_updates": 3}
    run = attacked(tmp_path, nodes=2, m=2, visits=6, **over, **LADMM)
    found = attack(run, tmp_path)
    assert not any(r["consistent"] for r in found["rows"].values())
    assert "does not get behind them" in (run / "attack/attack.html").read_text()
