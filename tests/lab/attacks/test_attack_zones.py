"""`hushgrid attack` on zones of a power grid: loads from what is told, and none from a private run."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.lab.attacks import zones as attacked_zones
from hushgrid.lab.attacks.attack import attack

pytestmark = pytest.mark.runs


ZONES = [[1, 2, 3, 4, 5, 7, 8, 9], [10, 11], [6, 12, 13, 14]]


@pytest.fixture(autouse=True)
def of_small_zones(monkeypatch):
    monkeypatch.setattr(attacked_zones, "WIDEST", 8)  # two of the three: a fit takes seconds


def zones(place, algorithm, privacy=None, **problem):
    """The directory of a run of few rounds with a transcript."""
    raw = {"hushgrid": 1, "name": "zones", "seed": 1, "run": {"record": "transcript"},
           "problem": {"kind": "zones", "case": "case14", "zones": ZONES, "loads": {"nonzero": "case"}} | problem,
           "algorithm": {"rounds": 4} | algorithm}  # fmt: skip
    raw["problem"] = {key: value for key, value in raw["problem"].items() if value is not None}
    if privacy:
        raw["privacy"] = {"mechanism": "laplace", "adjacency": {"bounded-change": 0.01}, "epsilon": 5.0} | privacy
    run(raw, out=place / "run")
    return place / "run"


def true(zone):
    buses = load("case14").buses
    at = [list(buses.numbers).index(bus) for bus in ZONES[zone]]
    return np.concatenate([buses.p_d[at], buses.q_d[at]])


def test_of_exact_steps_on_the_messages_of_the_borders_every_load_is_recovered(tmp_path):
    out = zones(tmp_path, {"name": "ladmm", "variant": "none"})
    found = attack(out)
    arrays = dict(np.load(out / "attack/recovered.npz"))
    assert all(of["consistent"] and of["what"] == "gradient" for of in found["loads"].values())
    assert list(found["loads"]) == ["z2", "z3"]
    assert "Not tried of z1" in (out / "attack/attack.html").read_text()
    for k in (1, 2):
        # The solver's 1e-8 over the smallest singular value of the fit, some 1e-3.
        assert np.abs(arrays[f"d_z{k + 1}"] - true(k)).max() <= 1e-3
    assert "are recovered from" in (out / "attack/attack.html").read_text()


def test_loads_that_one_round_does_not_determine_are_no_find(tmp_path, monkeypatch):
    """The zones of scenarios/case14-nonprivate.yaml: other loads, .3 and .7 p.u. away,
    explain their first messages as well.
    """
    monkeypatch.setattr(attacked_zones, "WIDEST", 10)
    parts = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]
    out = zones(tmp_path, {"name": "ladmm", "variant": "none", "rounds": 1}, zones=parts, loads=None)
    found = attack(out)
    assert found["loads"]["z1"]["residual"] <= 1e-6
    assert not any(of["consistent"] for of in found["loads"].values())
    assert "lie far apart" in (out / "attack/attack.html").read_text()


@pytest.mark.parametrize("mode", ["objective", "input"])
def test_of_a_private_run_no_load_is_recovered_and_it_says_so(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(attacked_zones, "STARTS", (0.0,))
    out = zones(tmp_path, {"name": "ladmm"}, {"mode": mode})
    found = attack(out)
    page, arrays = (out / "attack/attack.html").read_text(), dict(np.load(out / "attack/recovered.npz"))
    assert all(of["what"] == "noisy answer" for of in found["loads"].values())
    for k in range(3):
        if (name := f"d_z{k + 1}") in arrays:
            assert np.abs(arrays[name] - true(k)).sum() > 1e-3  # of noise of .002 p.u. a load
    said = "of the loads themselves it recovers none" if mode == "input" else "no load is recovered"
    assert said in page


def test_where_a_run_without_privacy_hands_its_data_over_they_are_read(tmp_path):
    out = zones(tmp_path, {"name": "consensus-admm", "variant": "none"}, ac="none")
    found = attack(out)
    arrays = dict(np.load(out / "attack/recovered.npz"))
    assert all(of == {"count": of["count"], "residual": 0.0, "what": "gradient", "consistent": True}
               for of in found["loads"].values())  # fmt: skip
    for k in range(3):
        assert np.abs(arrays[f"d_z{k + 1}"] - true(k)).max() <= 1e-12
