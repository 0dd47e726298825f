"""Negative controls of attacks: half the noise, no clip, noise used twice, noise in floating point. Each is caught."""

import numpy as np
import pytest

from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.problems.losses import Loss
from hushgrid.lab.attacks.attack import attack
from tests.support.runs.attacked_runs import attacked_rows

pytestmark = pytest.mark.runs


GAUSSIAN = {
    "mechanism": "gaussian",
    "adjacency": {"replace-one-record": {"clip": 0.1}},
    "delta": 1e-5,
    "accountant": "gdp",
}
RUNS = {
    "recal": {"rounds": 160, "walk": "hamiltonian"},
    "iadmm": {"rounds": 160, "rho": 2.0},
    "dpp2": {"rounds": 40, "alpha": 0.2, "beta": 0.1, "rho": 1.0},
}  # fmt: skip


def answers(place, name="iadmm"):
    """What is said of all nodes' answers in one guarded run, with the truth beside it."""
    run = attacked_rows(
        place, {"name": name, "variant": "guarded"} | RUNS[name], kind="softmax", q=20, privacy=GAUSSIAN
    )
    found = attack(run, place)
    return {
        key: np.mean([of[key] for of in found["answers"].values()]) for key in ("off_grid", "noise_ratio", "repeats")
    }


@pytest.mark.parametrize("name", RUNS)
def test_an_honest_gate_has_the_noise_that_it_claims_on_its_grid_and_no_noise_twice(tmp_path, name):
    found = answers(tmp_path, name)
    assert found["off_grid"] == found["repeats"] == 0.0
    assert abs(found["noise_ratio"] - 1) <= 0.05  # of 9600 coordinates: seven times the standard error


def test_half_the_noise_is_caught(tmp_path, monkeypatch):
    honest = Lattice.release
    monkeypatch.setattr(Lattice, "release", lambda lattice, v, n: honest(lattice, v, n // 2))
    assert answers(tmp_path)["noise_ratio"] == pytest.approx(0.5, abs=0.05)


def test_noise_in_floating_point_is_caught(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(Lattice, "release", lambda lattice, v, n: v + lattice.scale * rng.normal(size=v.shape))
    found = answers(tmp_path)
    assert found["off_grid"] > 0.9
    assert abs(found["noise_ratio"] - 1) <= 0.05  # nothing else is wrong with it


def test_noise_that_is_used_twice_is_caught(tmp_path, monkeypatch):
    pool, honest = {}, Lattice.release
    monkeypatch.setattr(Lattice, "release", lambda lattice, v, n: honest(lattice, v, pool.setdefault(n.size, n)))
    assert answers(tmp_path)["repeats"] > 0.9


def test_gradients_that_are_not_clipped_are_caught(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Loss, "clipped_gradient", lambda loss, x, c, order: loss.data_gradient(x))
        keys = {"name": "iadmm", "variant": "guarded"} | RUNS["iadmm"]
        run = attacked_rows(tmp_path, keys, kind="softmax", q=20, privacy=GAUSSIAN | {"epsilon": 1e4})
    found = attack(run, tmp_path)
    assert min(of["noise_ratio"] for of in found["answers"].values()) > 1.2
