"""Contracted capacities: their file, their digest in a plan, and a device that takes no other."""

from __future__ import annotations

import hashlib
import json

import msgspec
import numpy as np
import pytest
import yaml

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases import load
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.node.config.device import load_device
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import decode_plan, encode_plan, warnings
from hushgrid.node.problems.power_flow.capacity import read_capacities
from hushgrid.node.problems.power_flow.conclusion import margins_of
from hushgrid.node.problems.power_flow.files import read_loads

ROWS = "bus,p_mw,q_mvar\n1,300,100\n2,300,0\n3,400,150\n4,500,200\n5,0,0\n"
BUSES = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module", autouse=True)
def _models():
    """A device finds its zone's model made."""
    zone_models(load("case5"), [[1, 2, 5], [3, 4]])


@pytest.fixture
def place(tmp_path):
    """A scenario of case5 in two zones under changes of 5 % of the contracts in a file beside it."""
    (tmp_path / "capacity.csv").write_text(ROWS)
    return tmp_path


def scenario(place, change=None, **privacy):
    raw = {
        "hushgrid": 1,
        "name": "world",
        "problem": {"kind": "zones", "case": "case5", "zones": [[1, 2, 5], [3, 4]]},
        "algorithm": {"name": "ladmm", "rounds": 2},
        "privacy": {"epsilon": 5.0, "mode": "input"}
        | privacy
        | {"adjacency": {"bounded-change": change or {"relative": 0.05, "of": "capacity.csv"}}},
    }
    (place / "scenario.yaml").write_text(yaml.safe_dump(raw))
    return load_scenario(place / "scenario.yaml")


def zone(place, change=None, **over):
    """The file of the device z1."""
    loads = "bus,p_mw,q_mvar\n1,0,0\n2,250,80\n5,1,1\n"
    (place / "loads.csv").write_text(loads)
    raw = {
        "node": "z1",
        "fleet": "demo",
        "broker": "mqtt://127.0.0.1",
        "state": "state",
        "data": {"case": "case5", "zone": [1, 2, 5], "loads": "loads.csv"},
        "budget": {
            "epsilon": 20.0,
            "adjacency": {"bounded-change": change or {"relative": 0.05, "of": "capacity.csv"}},
        },
    } | over
    (place / "z1.yaml").write_text(yaml.safe_dump(raw))
    config = load_device(place / "z1.yaml")
    return config, config.kind.device(config, str(place / "z1.yaml"))


def published(place):
    """The public part of the scenario's problem."""
    made = scenario(place)
    return made.kind.public(made, "scenario.yaml")


def taken(blob, config, device, ledger):
    """What a device does with a plan before it joins. Raises what it answers."""
    plan = decode_plan(blob)
    device.check(plan)
    t, limits = plan.terms, (config.budget, config.allow)
    BudgetCheck(device.name, ledger, b"run", plan.algorithm, t, *limits, simulated=False).admit(t.answers)


# --- the file ---


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ROWS.replace("bus,p_mw", "bus,mw"), ":1: found another header, expected bus,p_mw,q_mvar"),
        (ROWS.replace("3,400,150", "3,-400,150"), ":4: found a capacity of -400, expected 0 or 1e-06 to 1e+06"),
        (ROWS.replace("3,400,150", "3,nan,150"), ":4: found a capacity of nan"),
        (ROWS.replace("3,400,150", "3,1e9,150"), ":4: found a capacity of 1e+09"),
        (ROWS.replace("3,400,150", "3,1e-300,150"), ":4: found a capacity of 1e-300"),
        (ROWS.replace("3,400,150", "3,400"), ":4: found '3,400', expected bus,p_mw,q_mvar"),
        (ROWS.replace("3,400,150", "3,400,150,1"), ":4: found '3,400,150,1', expected bus,p_mw,q_mvar"),
        (ROWS.replace("3,400,150", "three,400,150"), ":4: found 'three,400,150', expected bus,p_mw,q_mvar"),
        (ROWS.replace("3,400,150", "2,400,150"), ":4: found bus 2 again, expected one row a bus (line 3)"),
        (ROWS.replace("3,400,150", "33,400,150"), ":4: found bus 33, expected a bus of"),
        (ROWS.replace("3,400,150\n", ""), ": found no bus 3, expected a row bus,p_mw,q_mvar for each bus"),
        (None, ": No such file or directory, expected capacities"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_that_names_its_place(tmp_path, rows, said):
    if rows is not None:
        (tmp_path / "capacity.csv").write_text(rows)
    with pytest.raises(InputError) as caught:
        published(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'capacity.csv'}{said}")
    assert "\n" not in str(caught.value)
    if rows is not None and "bus 3, expected a row" not in said:  # bus 3 is the other zone's
        with pytest.raises(InputError) as caught:
            zone(tmp_path)
        assert str(caught.value).startswith(f"{tmp_path / 'capacity.csv'}{said}")


def test_the_digest_is_of_the_rows_and_not_of_how_they_are_written(tmp_path):
    first, again, other = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    first.write_text(ROWS)
    again.write_text("bus, p_mw, q_mvar\r\n5,0,-0.0\r\n" + "".join(f"{r}\r\n" for r in ROWS.split("\n")[4:0:-1]))
    other.write_text(ROWS.replace("400", "400.0001"))
    assert read_capacities(first).digest == read_capacities(again).digest != read_capacities(other).digest
    canonical = "1,300.0,100.0\n2,300.0,0.0\n3,400.0,150.0\n4,500.0,200.0\n5,0.0,0.0\n"
    assert read_capacities(first).digest == hashlib.sha256(canonical.encode()).hexdigest()
    assert np.array_equal(read_capacities(first).of_buses(load("case5"), (2, 4)), [3.0, 5.0, 0.0, 2.0])


# --- a plan and a device ---


def test_the_plan_names_the_digest_and_nothing_of_the_file(place):
    setup = ZoneSetup(scenario(place))
    said = json.loads(encode_plan(setup.plan))["privacy"]["adjacency"]["bounded-change"]
    digest = read_capacities(place / "capacity.csv").digest
    assert said == {"relative": 0.05, "of": digest}
    assert setup.plan.terms.adjacency == f"relative-change:0.05:{digest[:12]}"
    assert decode_plan(encode_plan(setup.plan)) == setup.plan


def test_a_device_with_the_same_contracts_takes_the_plan_and_one_with_others_refuses_it(place):
    setup = ZoneSetup(scenario(place))
    config, device = zone(place)
    assert str(config.budget.adjacency) == setup.plan.terms.adjacency
    device.check(setup.plan)
    (place / "capacity.csv").write_text(ROWS.replace("400", "4000"))
    config, device = zone(place)
    assert str(config.budget.adjacency) != setup.plan.terms.adjacency
    with pytest.raises(Refused, match=r"z1: found capacities of digest [0-9a-f]{12} in the plan, expected its own, "):
        device.check(setup.plan)
    (place / "capacity.csv").write_text(ROWS)
    config, device = zone(place, 0.01)
    with pytest.raises(Refused, match="expected no relative change"):
        device.check(setup.plan)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"of": "ab" * 32}, "found capacities of digest abababababab in the plan"),
        ({"relative": 0.5}, "adjacency relative-change:0.5:"),
        ({"relative": 1e9}, "plan: Expected `float` <= 100.0"),
        ({"relative": -0.05}, "plan: Expected `float` >= 0.0001"),
        ({"of": "capacity.csv"}, "plan: privacy.adjacency.bounded-change.of: found a name, expected a SHA-256 digest"),
        ({"digest": "ab" * 32}, "plan: privacy.adjacency.bounded-change.of: found a name"),
        ({"pair": 0.01}, "plan: Expected a number, {pair, power_factor} or {relative, of}"),
        (
            {"relative": None, "of": None, "pair": 0.01, "power_factor": 0.9},
            "adjacency pair-change:0.01:0.9, its budget",
        ),
        ({"relative": None, "of": None, "pair": 0.01, "power_factor": 0.01}, "plan: Expected `float` >= 0.1"),
        ({"relative": None, "of": None, "pair": 1e7, "power_factor": 0.9}, "plan: Expected `float` <= 1000000.0"),
    ],
)
def test_a_lying_plan_is_refused_by_public_numbers_alone(place, lie, said):
    raw = json.loads(encode_plan(ZoneSetup(scenario(place)).plan))
    change = raw["privacy"]["adjacency"]["bounded-change"] | lie
    raw["privacy"]["adjacency"]["bounded-change"] = {k: v for k, v in change.items() if v is not None}
    config, device = zone(place)
    ledger = Ledger(place / "z1.ledger", "z1")
    taken(encode_plan(ZoneSetup(scenario(place)).plan), config, device, ledger)  # the honest one
    with pytest.raises((InputError, Refused)) as caught:
        taken(msgspec.json.encode(raw), config, device, ledger)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ledger.spends.rows() == []
    ledger.close()


@pytest.mark.parametrize("mask", [None, {"p": [1, 2, 3], "q": [2]}, {"p": [2], "q": []}], ids=str)
def test_a_plan_with_another_mask_than_the_owner_pinned_is_refused(place, mask):
    _, device = zone(place, allow={"loads": {"p": [2, 5], "q": [2]}})
    raw = json.loads(encode_plan(ZoneSetup(scenario(place)).plan))
    if mask is not None:
        raw["problem"]["loaded"] = mask
    with pytest.raises(Refused, match="found another mask of loads in the plan, expected the one its owner allows"):
        device.check(decode_plan(msgspec.json.encode(raw)))
    raw["problem"]["loaded"] = {"p": [2, 3, 5], "q": [2, 4]}  # 3 and 4 are another zone's
    device.check(decode_plan(msgspec.json.encode(raw)))


def test_a_file_that_is_replaced_under_a_running_device_is_not_taken(place):
    """Its owner's budget counts by the file as it was: the device must be started again to count by another."""
    config, _ = zone(place)
    (place / "capacity.csv").write_text(ROWS.replace("400", "4000"))
    with pytest.raises(InputError, match=r"capacity\.csv: found rows of digest"):
        config.kind.device(config, "z1.yaml")


def test_a_pinned_digest_holds_the_file_to_it(place):
    change = {"relative": 0.05, "of": "capacity.csv", "digest": read_capacities(place / "capacity.csv").digest}
    scenario(place, change)
    zone(place, change)
    (place / "capacity.csv").write_text(ROWS.replace("400", "4000"))
    for read in (scenario, zone):
        with pytest.raises(InputError, match="found rows of digest"):
            read(place, change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pair": 0.01}, "expected a number, {pair, power_factor} or {relative, of}"),
        ({"relative": 0.05}, "expected a number, {pair, power_factor} or {relative, of}"),
        ({"pair": 0.01, "power_factor": 0.9, "of": "capacity.csv"}, "expected a number, {pair, power_factor}"),
        ({"pair": 0.01, "power_factor": 1.1}, "bounded-change.power_factor: found 1.1, expected float <= 1.0"),
        ({"relative": 0.0, "of": "capacity.csv"}, "bounded-change.relative: found 0.0, expected float >= 0.0001"),
        ({"relatve": 0.05, "of": "capacity.csv"}, "relatve: unknown key, expected one of pair, power_factor, relative"),
        ("1 MW", "bounded-change: found '1 MW', expected float | object | null"),
    ],
)
def test_a_unit_that_contradicts_itself_is_refused_in_one_line(place, change, said):
    for read in (scenario, zone):
        with pytest.raises(InputError) as caught:
            read(place, change)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


# --- a run ---


@pytest.mark.runs
@pytest.mark.parametrize("release", ["plain", "totals"])
def test_a_run_hides_shares_of_the_contracts_and_an_entry_without_one_is_no_load(place, release):
    scenario(place, release=release)
    result = run(place / "scenario.yaml", out=place / "out", seed=3)
    seen = json.loads((place / "out" / "result.json").read_text())["privacy"]
    assert seen["adjacency"] == {
        "bounded-change": {"relative": 0.05, "of": read_capacities(place / "capacity.csv").digest}
    }
    assert seen["spent"]["epsilon"] == pytest.approx(5.0, rel=1e-2)
    setup = ZoneSetup(load_scenario(place / "scenario.yaml"))
    loss = setup.public_loss("z1")
    assert loss.loaded.tolist() == [0, 1, 3]  # p of 1 and 2, q of 1: the others have no contract
    assert np.allclose(loss.unit, [0.15, 0.15, 0.0, 0.05, 0.0, 0.0])
    # Noise of 5 % of 300 MW over epsilon 5 a load: 3 MW on average, twice with totals.
    assert abs(result.load_mw - 1000) < 100
    again = run(place / "out" / "scenario.yaml", out=place / "again", seed=3)  # as it was written out
    assert again.load_mw == result.load_mw


@pytest.mark.parametrize("load", ["nan,1", "1,nan", "inf,1", "1,-inf", "1,1e9", "-1e9,1"])
def test_a_load_that_is_no_load_is_refused_by_its_line_and_not_said(tmp_path, load):
    (tmp_path / "loads.csv").write_text(f"bus,p_mw,q_mvar\n1,0,0\n2,{load}\n")
    with pytest.raises(InputError, match=r"loads\.csv:3: found bus 2 \(again, foreign, or a load beyond") as caught:
        read_loads(tmp_path / "loads.csv", (1, 2), 100.0)
    assert load not in str(caught.value)


def test_totals_of_few_loads_are_warned_of(place):
    """case5 has three loads, and a mask may leave fewer."""
    for release, mask, warned in (("plain", [2], False), ("totals", [2, 3, 4], True), ("totals", None, True)):
        made = ZoneSetup(scenario(place, 0.01, release=release))
        raw = json.loads(encode_plan(made.plan))
        if mask is not None:
            raw["problem"]["loaded"] = {"p": mask, "q": [1, 2, 3, 4, 5]}
        said = warnings(decode_plan(msgspec.json.encode(raw)), "case5")
        assert any("privacy.release: found totals" in line for line in said) == warned
    raw["problem"]["zones"] = {"z1": [1, 2, 4, 5], "z2": [3]}
    assert warnings(decode_plan(msgspec.json.encode(raw)), "case5") == []


def at_least_cost(place, change, **privacy):
    scenario(place, change, **privacy)
    raw = yaml.safe_load((place / "scenario.yaml").read_text())
    raw["problem"] |= {"objective": "cost", "margins": True}
    raw["algorithm"] = {"name": "consensus-admm", "rounds": 2}
    (place / "scenario.yaml").write_text(yaml.safe_dump(raw))
    return load_scenario(place / "scenario.yaml")


def test_margins_know_the_unit_and_the_release_and_refuse_shares_that_the_coordinator_cannot_know(place):
    with pytest.raises(InputError, match=r"problem.margins: found true, expected false \(bounded-change: relative;"):
        at_least_cost(place, None)
    sizes = {}
    for name, change, release in (
        ("number", 0.01, "plain"),
        ("pair", {"pair": 0.01, "power_factor": 0.8}, "plain"),
        ("totals", 0.01, "totals"),
    ):
        plan = ZoneSetup(at_least_cost(place, change, release=release)).plan
        sizes[name] = margins_of(load("case5"), plan, np.ones(5)).p.max()
    assert sizes["pair"] == pytest.approx(1.75 * sizes["number"])
    # Zones of three loads and of two: 8 (3/4 + 2/3) against 2 (3 + 2)
    assert sizes["totals"] == pytest.approx(sizes["number"] * (8 * (3 / 4 + 2 / 3) / 10) ** 0.5)
