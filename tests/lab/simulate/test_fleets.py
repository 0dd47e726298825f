"""Every shipped scenario in the simulation: its devices live, or one line says why there are none."""

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.lab.simulate.faults import SHARES, drawn
from hushgrid.lab.simulate.fleet import fleet
from hushgrid.lab.simulate.manner import Manner, dressed
from hushgrid.lab.simulate.search import Life, live, quiet
from hushgrid.lab.simulate.world import World
from hushgrid.node.privacy.renewal import Renewal
from hushgrid.node.schema.yaml_file import read_yaml
from tests.support.paths import ROOT

#: Minutes, or as long as all fleets of `patterns.py` together, which are simulated in test_search.py.
LARGE = {"case118", "day14", "nonconvex-neighbours", "gradient-tracking", "nonconvex", "adult-ring", "digits-star"}
SCENARIOS = [
    pytest.param(path, marks=pytest.mark.long if path.stem in LARGE else (), id=path.stem)
    for path in sorted((ROOT / "scenarios").glob("*.yaml"))
]
NO_NOISE = "privacy: found none, expected a section: devices always add noise"
REFUSED = {
    "adult-ring-nonprivate": NO_NOISE,
    "case14-nonprivate": NO_NOISE,
    "case14-published": "algorithm.variant: found published, expected guarded",
    "ijcnn1": "expected a readable file",  # its data are not shipped
    "lasso-geometric": NO_NOISE,
    "substations": "expected a case that hushgrid wrote",  # nor are these
}


def made(path):
    raw = read_yaml(path)
    if raw["algorithm"]["name"] == "consensus-admm":  # the solver of its AC step is a process of its own
        raw["problem"]["ac"] = "none"
    return fleet(raw, str(path), path.parent)


@pytest.mark.runs
@pytest.mark.parametrize("path", SCENARIOS)
def test_a_shipped_scenario_lives_or_is_refused_in_one_line(path):
    if path.stem in REFUSED:
        with pytest.raises(InputError, match=REFUSED[path.stem]) as refused:
            made(path)
        assert "\n" not in str(refused.value)
    else:
        quiet(made(path), 1)  # raises InputError unless two intervals are answered by all


@pytest.mark.runs
@pytest.mark.parametrize(
    "manner",
    [Manner(quorum=3), Manner(warm=True), Manner(room=2.5), Manner(room=2.5, source=True, fed=True)],
    ids=["quorum", "warm", "budget", "source"],
)
def test_a_fleet_lives_in_every_manner(manner):
    quiet(made(ROOT / "scenarios" / "hourly-energy.yaml"), 1, manner)


def test_certificates_are_the_same_each_time():
    path = ROOT / "scenarios" / "hourly-energy.yaml"
    assert made(path).files == made(path).files


def test_a_budget_has_room_for_so_many_runs_and_no_more():
    findings = made(ROOT / "scenarios" / "hourly-energy.yaml")
    section = dressed(findings, Manner(room=2.5)).configs["n0"]["budget"]
    assert section["window"] == "6h"
    assert 4.0 < section["epsilon"] < 12.0


STAR = {
    "hushgrid": 1,
    "name": "star",
    "problem": {
        "kind": "logistic",
        "data": {"synthetic": {"rows": 80, "features": 3, "seed": 1}, "nodes": 3, "normalize": "unit-rows"},
        "row_bound": 1.0,
        "l2": 0.01,
    },
    "algorithm": {"name": "fedavg", "rounds": 4, "step_size": 1.0},
    "privacy": {
        "mechanism": "gaussian",
        "accountant": "gdp",
        "adjacency": {"replace-one-record": {"clip": 1.0}},
        "epsilon": 1.0,
        "delta": 1.0e-5,
    },
}


@pytest.mark.runs
def test_a_window_is_kept_and_a_device_that_never_refuses_is_found(tmp_path, monkeypatch):
    star = fleet(STAR, "star", tmp_path)
    life = Life(STAR, 1, 6, [], Manner(room=2.5, fed=True))
    simulation, findings = live(star, life, {})
    assert any(e["e"] == "unanswered" and e["refused"] for e in simulation.world.history)
    assert findings == []
    monkeypatch.setattr(Renewal, "denied", lambda *asked: None)
    assert {finding.promise for finding in live(star, life, {})[1]} == {"budget"}


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["forge", "owner", "source", "broker"])
def test_a_fleet_overcomes(tmp_path, kind):
    star = fleet(STAR, "star", tmp_path)
    manner = Manner(liars=kind == "forge", owned=True)
    without = {other for other in SHARES if other != kind}
    beats = [1.6 + star.every * k for k in range(5)]
    faults = drawn(World(1).chance("faults"), star.nodes, 0.0, 5 * star.every, 40, beats, without)
    simulation, findings = live(star, Life(STAR, 1, 8, faults, manner), quiet(star, 1, manner))
    assert simulation.counts[kind] == 40
    assert findings == []
