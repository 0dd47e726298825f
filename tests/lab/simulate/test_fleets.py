"""Every shipped scenario in the simulation: its devices live, or one line says why there are none."""

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.lab.simulate.fleet import fleet
from hushgrid.lab.simulate.manner import Manner, dressed
from hushgrid.lab.simulate.search import quiet
from hushgrid.node.schema.yaml_file import read_yaml
from tests.support.paths import ROOT

SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
NO_NOISE = "privacy: found none, expected a section: devices always add noise"
REFUSED = {
    "adult-ring-nonprivate": NO_NOISE,
    "case14-nonprivate": NO_NOISE,
    "case14-published": "algorithm.variant: found published, expected guarded",
    "ijcnn1": "expected a readable file",  # its data are not shipped
    "lasso-geometric": NO_NOISE,
}


def made(path):
    return fleet(read_yaml(path), str(path), path.parent)


@pytest.mark.runs
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
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
    found = made(ROOT / "scenarios" / "hourly-energy.yaml")
    section = dressed(found, Manner(room=2.5)).configs["n0"]["budget"]
    assert section["window"] == "6h"
    assert 4.0 < section["epsilon"] < 12.0
