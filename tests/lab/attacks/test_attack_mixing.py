"""`hushgrid attack` on first-order methods among neighbours: every step tells its gradient."""

import numpy as np
import pytest

from hushgrid.lab.attacks.attack import attack
from tests.support.runs.attacked_runs import attacked_rows

STEPS = {
    "dgd": {"step_size": 0.5},
    "extra": {"step_size": 0.5},
    "nids": {"step_size": 0.5},
    "privsgp": {"step_size": 0.5},
    "dmsp": {"c": 1.0, "q": 0.95},
    "weakening": {"step": 1.0, "a": 0.9, "chi": 0.7, "b": 0.7},
}
NOISE = {"dmsp": {"b": 1e-3, "p": 0.97}, "weakening": {"u": 1e-3, "s": 0.1}}


@pytest.mark.runs
@pytest.mark.parametrize("name", STEPS)
def test_without_noise_every_gradient_and_row_is_recovered(tmp_path, name):
    keys = {"name": name, "variant": "none", "rounds": 12} | STEPS[name]
    found = attack(attacked_rows(tmp_path, keys, kind="softmax"), tmp_path)
    assert all(seen["count"] == 11 for seen in found["gradients"].values())
    assert found["scores"]["gradient_error"] < 1e-6
    assert all(rows["consistent"] for rows in found["rows"].values())


@pytest.mark.runs
@pytest.mark.parametrize("name", STEPS)
def test_of_a_guarded_run_it_ends_with_the_gates_answers(tmp_path, name):
    found = attack(attacked_rows(tmp_path, {"name": name, "variant": "guarded", "rounds": 8} | STEPS[name]), tmp_path)
    assert {seen["what"] for seen in found["gradients"].values()} == {"noisy answer"}
    assert all(seen["count"] == 7 for seen in found["gradients"].values())


@pytest.mark.runs
@pytest.mark.parametrize("name", NOISE)
def test_published_noise_stands_on_the_gradient_divided_by_the_step(tmp_path, name):
    keys = {"name": name, "rounds": 6} | STEPS[name]
    seen = {}
    for variant in ("none", "published"):
        more = NOISE[name] if variant == "published" else {}
        run = attacked_rows(tmp_path / variant, keys | {"variant": variant} | more)
        attack(run, run.parent)
        arrays = np.load(run / "attack/recovered.npz")
        seen[variant] = arrays["g_n0"][0]  # asked near the public start
    off = np.max(np.abs(seen["published"] - seen["none"]))
    assert 1e-5 < off < 0.1
