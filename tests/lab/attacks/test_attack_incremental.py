"""`hushgrid attack` on I-ADMM, PI-ADMM1 and 2 and W-ADMM: the recursion, the paper's estimator, whole models, rows."""

import numpy as np
import pytest

from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.attacks.incremental import Exchanges, backward, estimator, forward
from tests.support.runs.attacked_runs import attacked_rows

RIDGE = {"kind": "least-squares", "m": 6, "q": 2, "nodes": 4}


def both(place, algorithm, **keys):
    """(what `--json` prints, recovered.npz, trajectory.npz) of one seeded run."""
    seen = attacked_rows(place, algorithm, **keys)
    known = attacked_rows(place, algorithm, record="trajectory", **keys)
    found = attack(seen, place)
    return found, dict(np.load(seen / "attack/recovered.npz")), dict(np.load(known / "trajectory.npz"))


def off(arrays, true, name, node="n0"):
    """The largest error of an array at each visit."""
    state = name.split("_")[-1]
    return np.abs(arrays[f"{name}_{node}"] - true[state][arrays[f"when_{node}"]]).max(axis=1)


@pytest.mark.runs
@pytest.mark.parametrize("name", ["iadmm", "wadmm"])
@pytest.mark.parametrize("update", ["exact", "first-order"])
def test_from_a_public_start_every_state_gradient_and_row_is_recovered(tmp_path, name, update):
    keys = {"name": name, "variant": "none", "rounds": 60, "rho": 2.0, "update": update}
    found, arrays, true = both(tmp_path, keys)
    assert found["states"] == ["x", "y"]
    assert sum(g["count"] for g in found["gradients"].values()) == 59  # the last activation sends no token
    for node in found["gradients"]:
        assert max(off(arrays, true, "x", node).max(), off(arrays, true, "y", node).max()) <= 1e-13
    assert found["scores"]["gradient_error"] <= 1e-12
    assert found["scores"]["psnr_worst"] >= 100
    assert all(r["consistent"] for r in found["rows"].values())


@pytest.mark.runs
def test_a_random_start_is_forgotten_and_rows_are_found_by_the_gradients_after_it(tmp_path):
    keys = {"name": "iadmm", "variant": "published", "rounds": 4 * 60, "rho": 2.0, "update": "first-order",
            "start": {"uniform": [0.0, 10.0]}}  # fmt: skip
    found, arrays, true = both(tmp_path, keys)
    error = off(arrays, true, "x")
    assert np.allclose(error[:20] * 2.0 ** np.arange(1, 21), error[0] * 2, rtol=1e-6)  # half of it at each visit
    assert off(arrays, true, "y")[-1] <= 1e-11
    assert off(arrays, true, "lsqr_y")[0] > 1e6 * np.abs(arrays["y_n0"]).max()
    assert all(r["consistent"] for r in found["rows"].values())
    assert found["scores"]["psnr_worst"] >= 100


@pytest.mark.runs
@pytest.mark.parametrize("drawn", [{"gamma": [0.9, 1.1]}, {"noise_sd": 1e-3}])
def test_PI_ADMM1_and_2_hide_no_multiplier_for_twenty_visits_and_the_estimator_is_far_off(tmp_path, drawn):
    keys = {
        "name": "iadmm",
        "variant": "published",
        "rounds": 4 * 20 + 1,
        "rho": 2.0,
        "start": {"uniform": [0.0, 100.0]},
    }
    _, arrays, true = both(tmp_path, keys | drawn, **RIDGE)
    for node in ("n0", "n1", "n2", "n3"):
        assert off(arrays, true, "y", node)[19] <= 0.2
        assert off(arrays, true, "lsqr_y", node)[0] > 1000


@pytest.mark.runs
def test_ten_visits_tell_the_whole_function_of_a_node_under_PI_ADMM1(tmp_path):
    keys = {"name": "iadmm", "variant": "published", "rounds": 4 * 10 + 1, "rho": 10.0, "gamma": [0.9, 1.1],
            "start": {"uniform": [0.0, 100.0]}}  # fmt: skip
    found = attack(attacked_rows(tmp_path, keys, **RIDGE))
    arrays = dict(np.load(tmp_path / "transcript" / found["arrays"]))
    for node in ("n0", "n1", "n2", "n3"):
        held = np.load(tmp_path / f"{node}.npz")
        truth = np.column_stack([held["A"].T @ held["A"], held["A"].T @ held["b"]]) / 6
        error = np.linalg.norm(np.column_stack([arrays[f"H_{node}"], arrays[f"h_{node}"]]) - truth)
        assert error <= 1e-6 * np.linalg.norm(truth)


@pytest.mark.runs
def test_of_a_guarded_run_it_ends_with_the_gates_answers(tmp_path):
    found, arrays, true = both(tmp_path, {"name": "iadmm", "variant": "guarded", "rounds": 40, "rho": 2.0})
    assert {g["what"] for g in found["gradients"].values()} == {"noisy answer"}
    assert off(arrays, true, "y").max() <= 1e-9  # y_i is the last answer, exactly
    assert found["scores"]["gradient_error"] > 0.1
    assert not any(r["consistent"] for r in found["rows"].values())
    assert not any(name.startswith("H_") for name in arrays)


# --- (23) ---


def seen(rng, visits, p=2):
    z, sent = rng.normal(size=(2, visits, p))
    return Exchanges(np.arange(visits), z, sent, 3.0 * (sent - z))


def test_the_estimator_is_the_least_squares_solution_of_the_papers_system():
    """(16) and sum y = 0 as a dense matrix, x after each agent's last visit put in."""
    rho, visits = 1.5, 4
    every = {i: seen(np.random.default_rng(i), visits) for i in range(3)}
    index = {(what, i, v): k for k, (i, v, what) in enumerate(
        (i, v, what) for i in every for v in range(visits + 1) for what in "xy")}  # fmt: skip
    A, b = [], []

    def equation(right, **terms):
        line = np.zeros(len(index))
        for key, value in terms.items():
            what, i, v = key.split("_")
            line[index[what, int(i), int(v)]] = value
        A.append(line)
        b.append(right)

    for i, of in every.items():
        equation(np.zeros(2), **{f"x_{i}_0": 1.0, f"y_{i}_0": -1 / rho})
        for v in range(visits):
            equation((of.moved[v] + of.z[v]) / 2, **{f"x_{i}_{v + 1}": 1.0, f"x_{i}_{v}": -0.5})
            equation(
                rho / 2 * (of.z[v] - of.moved[v]), **{f"y_{i}_{v + 1}": 1.0, f"y_{i}_{v}": -1.0, f"x_{i}_{v}": rho / 2}
            )
    equation(np.zeros(2), **{f"y_{i}_{visits}": 1.0 for i in every})
    A, b = np.array(A), np.array(b)
    known = [index["x", i, visits] for i in every]
    b = b - A[:, known] @ np.array([of.sent[-1] for of in every.values()])
    free = np.setdiff1d(np.arange(len(index)), known)
    v = np.zeros((len(index), 2))
    v[free] = np.linalg.lstsq(A[:, free], b, rcond=None)[0]
    v[known] = [of.sent[-1] for of in every.values()]
    for i, (x, y) in estimator(every, 3, rho).items():
        for name, found in (("x", x), ("y", y)):
            assert np.allclose(found, [v[index[name, i, k]] for k in range(1, visits + 1)], rtol=1e-10, atol=1e-10)


def test_backwards_an_error_doubles_a_visit_and_forwards_it_is_halved():
    of = seen(np.random.default_rng(5), 12)
    x, _ = forward(of, 1.0)
    assert np.allclose(backward(of, x[-1]), x, rtol=0, atol=1e-10)
    assert np.allclose(backward(of, x[-1] + 1.0) - x, 2.0 ** np.arange(11, -1, -1)[:, None], rtol=1e-9)
    assert np.allclose(forward(of, 1.0, start=1.0)[0] - x, 0.5 ** np.arange(1, 13)[:, None], rtol=1e-9)


@pytest.mark.runs
def test_the_rows_behind_PI_ADMM1_and_2_are_found_by_their_late_gradients_though_not_to_rounding(tmp_path):
    keys = {"name": "iadmm", "variant": "published", "rounds": 4 * 150, "rho": 2.0, "update": "first-order",
            "start": {"uniform": [0.0, 1.0]}}  # fmt: skip
    for drawn, least in (({"gamma": [0.9, 1.1]}, 50), ({"noise_sd": 1e-3}, 18)):
        place = tmp_path / str(least)
        found = attack(attacked_rows(place, keys | drawn, kind="softmax", q=9), place)
        assert found["scores"]["psnr"] >= least
        assert found["scores"]["labels"] == 1.0
