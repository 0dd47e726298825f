"""The price of a private day on a small case, and the central solve that it is measured by."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from hushgrid.grid_cases import load
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.cost import CostStep
from hushgrid.grid_cases.zone.horizon import Horizon, Storage
from hushgrid.lab.studies import day_price
from hushgrid.lab.studies.problems.day import CentralDay

SHAPE = (0.7, 1.0, 1.2, 0.8)
VOLL = 1e4


def scenario(folder: Path) -> Path:
    """case5 in two zones, four hours, one storage unit, ramps."""
    buses = load("case5").buses
    rows = [
        f"{t},{bus},{100 * p * share},{100 * q * share}"
        for t, share in enumerate(SHAPE, 1)
        for bus, p, q in zip(buses.numbers.tolist(), buses.p_d.tolist(), buses.q_d.tolist(), strict=True)
    ]
    (folder / "profiles.csv").write_text("\n".join(["period,bus,p_mw,q_mvar", *rows]) + "\n")
    (folder / "storage.csv").write_text("name,bus,p_mw,e_mwh,eta,cost,e_start,e_end\ns,3,50,100,0.95,0.5,50,50\n")
    horizon = {"periods": 4, "hours": 1, "profiles": "profiles.csv", "storage": "storage.csv", "ramps": 0.3}
    problem = {"kind": "zones", "case": "case5", "zones": [[1, 2, 5], [3, 4]], "objective": "cost", "horizon": horizon}
    raw = {
        "hushgrid": 1,
        "name": "small",
        "problem": problem | {"loads": {"nonzero": "case"}},
        "algorithm": {"name": "consensus-admm", "rounds": 300},
        "privacy": {"adjacency": {"day": {"energy_mwh": 0.02, "power_factor": 0.97}}, "epsilon": 1},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(raw))
    return folder / "small.yaml"


@pytest.mark.runs
def test_a_private_day_is_told_by_all_its_figures_and_dearer_the_more_is_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(day_price, "DRAWS", 2)
    monkeypatch.setattr(day_price, "EPSILONS", (1.0,))
    monkeypatch.setattr(day_price, "UNITS", {"a kettle": 1e-4, "a town": 500.0})
    day, rows = day_price.measured(str(scenario(tmp_path)))
    assert (day[0], *day[-3:]) == ("small", 5, 2, "plain")
    assert len(day) == len(day_price.OF_DAYS)
    little, much = (dict(zip(day_price.COLUMNS, row, strict=True)) for row in rows)
    assert little["of the optimum, %"] == pytest.approx(0, abs=1e-4)
    assert little["cost over the optimum, $"] == pytest.approx(0, abs=0.1)
    assert little["value of storage kept, %"] == pytest.approx(100, abs=0.1)
    assert little["unserved, MWh"] == pytest.approx(0, abs=1e-4)
    assert much["of the optimum, %"] > 1
    assert much["value of storage kept, %"] < 50
    assert much["imbalance, MW"] > 1e6 * little["imbalance, MW"] > 0


@pytest.mark.runs
def test_what_storage_cannot_serve_any_more_is_counted(tmp_path):
    network = day_price.Network(scenario(tmp_path), {})
    most = network.d.copy()
    most[:, 0] *= np.array([0.1, 0.1, 0.1, 20.0])[:, None]  # the plan charges for an hour that does not come
    network.d[:, 0] *= 1.4
    operated = network.operated(network.least(most), most)
    assert operated.unserved > 1
    assert operated.cost > network.least(network.d).value


def test_a_central_day_is_the_least_cost_step_of_one_zone_of_all_buses_at_any_loads():
    case = load("case14")
    (model,) = zone_models(case, [case.buses.numbers.tolist()]).values()
    storage = Storage(*(np.array([value]) for value in (3, 9.0, 27.0, 0.95, 0.5, 13.0, 13.0)))
    horizon = Horizon(2, 1.0, storage, np.full(len(case.generators), 0.05))
    own = np.concatenate([case.buses.p_d, case.buses.q_d])
    day = CentralDay(case, model, VOLL, horizon)
    for shares in ((1.0, 0.8), (0.6, 0.95)):
        d = np.concatenate([share * own for share in shares])
        step = CostStep(case, model, d, np.zeros(0, np.int64), np.zeros(0), VOLL, horizon=horizon)
        expected, seen = step.minimum(np.zeros(0), 1.0), day.least(d)
        assert seen.value == pytest.approx(expected.value, rel=1e-7)
        assert seen.price == pytest.approx(expected.price, rel=1e-3, abs=1e-4)
        balance = model.A.scipy() @ seen.z.reshape(2, -1).T + d.reshape(2, -1).T
        assert np.abs(balance).max() < 0.5  # with storage and nothing else between
        assert np.abs(np.delete(balance, [2], axis=0)).max() < 1e-6
