"""A run's dispatch as a network of pandapower: its power flow finds what the run's tables say."""

import csv
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import hushgrid as api
from hushgrid.grid_cases import load
from hushgrid.node.config.scenario import load_scenario

pytestmark = [pytest.mark.filterwarnings("ignore")]  # pandapower's own warnings are none of this program's
needs_pandapower = pytest.mark.skipif(find_spec("pandapower") is None, reason="pandapower is not installed")


@needs_pandapower
@pytest.mark.parametrize("loaded", [False, True])
def test_a_runs_dispatch_is_a_network_whose_power_flow_is_that_of_its_tables(loaded, tmp_path):
    result = api.run("case14", out=tmp_path / "run")
    net = (api.Result.load(tmp_path / "run") if loaded else result).to_pandapower()
    buses = {row[0]: row[2] for row in result.tables["buses"][1]}
    voltages = np.array([buses[bus] for bus in net.res_bus.index])
    assert np.abs(net.res_bus.vm_pu - voltages).max() < 1e-4
    assert net.load.p_mw.sum() == pytest.approx(result.ac.served_mw, abs=0.05)
    generated = net.res_ext_grid.p_mw.sum() + net.res_gen.p_mw.sum()
    assert generated == pytest.approx(result.frame("generation")["p_mw"].sum(), abs=0.05)


PERIODS = 4
NONE = {"algorithm.variant": "none", "privacy": None}


def ring():
    """pandapower's open ring with three hours of loads, a battery and a wind park that nobody controls."""
    import pandapower
    from pandapower.networks import simple_mv_open_ring_net
    from pandas import DataFrame

    net = simple_mv_open_ring_net()
    net.trafo["max_loading_percent"] = 100.0
    pandapower.create_sgen(net, 3, 0.1, 0.02)
    pandapower.create_storage(net, 4, 0.2, 0.6, max_p_mw=0.2, name="battery")
    shape = np.array([0.4, 1.0, 0.7, 0.5])
    net.profiles = {
        "load_p_mw": DataFrame({k: shape * row.p_mw for k, row in net.load.iterrows()}),
        "load_q_mvar": DataFrame({k: shape[::-1] * row.q_mvar for k, row in net.load.iterrows()}),
        "sgen_p_mw": DataFrame({0: [0.0, 0.05, 0.1, 0.2]}),
    }
    return net


def simbench():
    import simbench

    return simbench.get_simbench_net("1-LV-rural1--1-sw")


@needs_pandapower
@pytest.mark.parametrize("network", [ring, simbench])
def test_pandapower_finds_the_voltages_and_the_loading_that_the_plan_of_a_day_says(network, hushgrid, tmp_path):
    """Its power flow of the network itself, as it was, at the plan's set-points and loads in each period."""
    import pandapower

    if network is simbench:
        pytest.importorskip("simbench")
    net, made, run = network(), tmp_path / "day", tmp_path / "run"
    pandapower.to_json(net, str(tmp_path / "net.json"))
    hushgrid("case", "day", "net.json", "--out", made, "--periods", PERIODS, "--day", 0, "--zones", 2)
    result = api.run(made / "scenario.yaml", set=NONE, out=run)
    assert result.ac.status == "solved"
    assert "res_* by pandapower" in hushgrid("case", "export", run, "--format", "pandapower", "--period", 2).out
    written = pandapower.from_json(str(run / "net-2.json"))
    assert written.res_bus.vm_pu.notna().all()
    buses, lines = ({(row[0], row[1]): row for row in result.tables[name][1]} for name in ("buses", "lines"))
    series, place = written.profiles, {name: k for k, name in enumerate(result.tables["lines"][0])}
    for table in (net.load, net.sgen, net.storage):
        table["in_service"] = False
    loads = pandapower.create_loads(net, written.load.bus.to_numpy(), 0.0)
    units = pandapower.create_loads(net, written.storage.bus.to_numpy(), 0.0)
    for t in range(1, PERIODS + 1):
        net.load.loc[loads, ["p_mw", "q_mvar"]] = np.column_stack(
            [series[key].loc[t].to_numpy() for key in ("load_p_mw", "load_q_mvar")]
        )
        net.load.loc[units, "p_mw"] = series["storage_p_mw"].loc[t].to_numpy()
        net.ext_grid["vm_pu"] = series["ext_grid_vm_pu"].loc[t].to_numpy()
        pandapower.runpp(net, calculate_voltage_angles=True, init="dc", trafo_loading="power", tolerance_mva=1e-9)
        known = [(bus, buses[t, bus][3]) for bus in net.bus.index if (t, bus) in buses]
        assert len(known) >= 7
        assert max(abs(net.res_bus.vm_pu[bus] - v) for bus, v in known) < 1e-4
        loading = [row[place["loading_percent"]] for row in lines.values() if row[0] == t]
        # In a case the iron of a transformer is a shunt at its ends, half at each, and no part of its own flow.
        iron = net.trafo.pfe_kw / net.trafo.sn_mva / 20
        for percent, half in zip(net.res_trafo.loading_percent, iron, strict=True):
            assert min(abs(percent - one) for one in loading if one != "") < max(0.1, half)


@needs_pandapower
def test_the_files_of_a_day_hold_its_series_its_storage_and_what_nobody_controls(hushgrid, tmp_path):
    import pandapower

    pandapower.to_json(ring(), "net.json")
    text = hushgrid("case", "day", "net.json", "--out", "day", "--periods", 4, "--zones", 2).out
    assert "1 units of 0.6 MWh" in text
    rows = {
        (int(r["period"]), int(r["bus"])): r for r in csv.DictReader(Path("day/profiles.csv").read_text().splitlines())
    }
    assert float(rows[4, 3]["p_mw"]) == pytest.approx(0.5 * ring().load.p_mw[ring().load.bus == 3].sum() - 0.2)
    case = load("day/case.npz")  # goes to the coordinator: means of a day would tell of it
    assert not case.buses.p_d.any()
    assert not case.buses.q_d.any()
    mask = load_scenario(Path("day/scenario.yaml")).problem.loads.nonzero
    assert set(mask.p) == {bus for (_, bus), row in rows.items() if float(row["p_mw"])}
    assert Path("day/storage.csv").read_text().splitlines()[1].startswith("storage0,4,0.2,0.6,0.95,0.5,")


@needs_pandapower
@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--day", "1"], "found series of 1 days, expected day 1"),
        (["--periods", "0"], "--periods: found 0, expected 1 to 200"),
        (["--storage", "1,2"], "--storage: found '1,2', expected 3 numbers"),
        (["--voltage", "a,b"], "--voltage: found 'a,b', expected 2 numbers"),
    ],
)
def test_a_day_that_cannot_be_made_is_refused_in_one_line_and_writes_nothing(options, line, hushgrid, tmp_path):
    import pandapower

    pandapower.to_json(ring(), "net.json")
    done = hushgrid("case", "day", "net.json", "--out", "day", "--periods", 4, *options)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert line in done.err
    assert not Path("day").exists()


@needs_pandapower
def test_a_week_of_a_network_is_run_with_the_loads_of_each_day(hushgrid, tmp_path):
    import pandapower
    from pandas import concat

    net = ring()
    net.profiles = {key: concat([frame, 1.2 * frame], ignore_index=True) for key, frame in net.profiles.items()}
    pandapower.to_json(net, str(tmp_path / "net.json"))
    made = hushgrid("case", "day", "net.json", "--out", "days", "--periods", PERIODS, "--days", 2, "--zones", 2)
    assert made.out.splitlines()[-1] == "  hushgrid run days/scenario.yaml --days 2"
    wanted = ("problem.ac=none", "algorithm.rounds=2", "algorithm.variant=none", "privacy=null")
    changes = [part for change in wanted for part in ("--set", change)]
    assert hushgrid("run", "days/scenario.yaml", "--days", 2, *changes, "--out", "week", "--quiet").code == 0
    first, second = (api.Result.load(tmp_path / "week" / f"day-{day}") for day in (1, 2))
    assert sum(second.load_mw) == pytest.approx(1.2 * sum(first.load_mw))
    assert sum(first.load_mw) > 1


@needs_pandapower
def test_a_day_of_a_network_without_time_series_says_so_and_takes_no_scenarios_place(hushgrid, tmp_path):
    import pandapower

    net = ring()
    del net["profiles"]
    pandapower.to_json(net, "net.json")
    options = ("case", "day", "net.json", "--out", "day", "--periods", 4, "--zones", 2)
    assert "no time series: all periods are alike" in hushgrid(*options).out
    written = Path("day/scenario.yaml").read_bytes()
    done = hushgrid(*options, "--day", 0, "--voltage", "0.9,1.1")
    assert (done.code, done.err) == (2, "hushgrid: --out day: found a scenario in it, expected another directory\n")
    assert Path("day/scenario.yaml").read_bytes() == written


@needs_pandapower
def test_a_day_is_made_with_or_without_the_iron_losses_of_transformers(hushgrid, tmp_path):
    """Both windings' half of it, a shunt in MW at 1 p.u.; converters to MATPOWER's format drop it."""
    import pandapower

    net = ring()
    pandapower.to_json(net, "net.json")
    for name, *options in (("with",), ("without", "--no-iron")):
        assert hushgrid("case", "day", "net.json", "--out", name, "--periods", 4, "--zones", 2, *options).code == 0
    lossy, lossless = (load(f"{name}/case.npz") for name in ("with", "without"))
    # pandapower turns its T of a transformer into a Π: relative changes of iron times series impedance, 1e-4 at most.
    assert lossy.buses.g_s.sum() * lossy.base_mva == pytest.approx(net.trafo.pfe_kw.sum() / 1e3, rel=1e-4)
    assert np.abs(lossless.buses.g_s).max() < 1e-4 * lossy.buses.g_s.max()
