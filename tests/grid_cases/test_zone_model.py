"""A zone's model: the order and meaning of its variables, its balance, and that it knows no loads."""

import json
import os
from dataclasses import fields, replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case, loads
from hushgrid.grid_cases.centralised import solve
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone import build as zone_model
from hushgrid.grid_cases.zone.build import build, ensure_model, zone_models
from hushgrid.grid_cases.zone.model import consensus, gradient, load_model, objective, save_model, violation
from hushgrid.kernels.errors import InputError, Stopped
from tests.support import paths
from tests.support.scenarios.parted_cases import CASE14, ZONES14, same

ZONES118 = [[*range(1, 33), 113, 114, 115, 117], [*range(33, 68)], [*range(68, 113), 116, 118]]
VECTORS = json.loads((paths.VECTORS / "opf_case14.json").read_text())


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    return tmp_path / "cache" / "zones"


def key(parts) -> str:
    return f"{parts[0]}:{'-'.join(map(str, parts[1:]))}"


@pytest.mark.parametrize("diagonal", [False, True])
def test_variables_and_consensus_stand_in_the_order_of_the_reference(diagonal):
    models = zone_models(CASE14, ZONES14, cache=False, diagonal=diagonal)
    reference = VECTORS[f"cut_diag{int(diagonal)}_E1"]
    keys_w, positions = consensus(models.values())
    assert keys_w == tuple(map(key, reference["w_keys"]))
    for k, model in enumerate(models.values()):
        assert model.keys == tuple(map(key, reference["z_keys"][k]))
        assert model.shared.tolist() == reference["consensus_positions_in_z"][k]
        assert positions[model.name].tolist() == reference["consensus_positions_in_w"][k]


@pytest.mark.parametrize(
    ("name", "zones", "n", "largest_l", "norms"),
    [
        ("case14", ZONES14, [74, 58, 51], 10, (5, np.sqrt(5))),
        ("case118", ZONES118, [397, 438, 555], 26, (13, np.sqrt(13))),
    ],
)
def test_sizes_lipschitz_constants_and_row_norms_are_the_known_ones(name, zones, n, largest_l, norms):
    models = zone_models(load(name), zones, cache=False).values()
    assert [model.n for model in models] == n
    assert max(model.L for model in models) == pytest.approx(largest_l)
    assert (max(m.row_l1 for m in models), max(m.row_l2 for m in models)) == pytest.approx(norms)


@pytest.mark.runs
def test_nothing_in_a_model_depends_on_the_loads():
    other = replace(CASE14, buses=replace(CASE14.buses, p_d=CASE14.buses.p_d[::-1], q_d=CASE14.buses.q_d * 3))
    ours, theirs = (zone_models(case, ZONES14, cache=False) for case in (CASE14, other))
    assert all(same(ours[name], theirs[name]) for name in ours)


def voltages_to_z(case: Case, layout: Layout, voltage: np.ndarray, p_g: np.ndarray, q_g: np.ndarray) -> np.ndarray:
    """Every variable of the zone from complex bus voltages, by Ohm's law written for one line at a time."""
    at = dict(zip(case.buses.numbers.tolist(), voltage, strict=True))
    z = dict.fromkeys(layout.keys, 0.0)
    for g in layout.generators:
        row = case.generators.rows[g]
        z[f"pg:{row}"], z[f"qg:{row}"] = p_g[g], q_g[g]
    lines = case.lines
    for k in layout.lines:
        v_i, v_j = at[int(lines.from_bus[k])], at[int(lines.to_bus[k])]
        v_t = v_i / (lines.tap[k] * np.exp(1j * lines.shift[k]))  # behind the ideal transformer
        series = (v_t - v_j) / (lines.r[k] + 1j * lines.x[k])
        s_f = v_t * np.conj(series + 0.5j * lines.b[k] * v_t)
        s_t = v_j * np.conj(-series + 0.5j * lines.b[k] * v_j)
        row = lines.rows[k]
        z[f"pF:{row}"], z[f"qF:{row}"], z[f"pT:{row}"], z[f"qT:{row}"] = s_f.real, s_f.imag, s_t.real, s_t.imag
    for bus in layout.seen.tolist():
        z[f"c:{bus}"] = abs(at[bus]) ** 2
    for i, j in layout.pairs.tolist():
        product = at[i] * np.conj(at[j])
        z[f"cr:{i}-{j}"], z[f"si:{i}-{j}"] = product.real, product.imag
    return np.array(list(z.values()))


@pytest.mark.runs
@pytest.mark.parametrize("name", ["case14", "case118", "case300"])  # with taps, parallel lines, phase shifters
def test_any_physical_voltages_satisfy_the_flow_equations_and_their_cones_exactly(name):
    """Equations (D.2f)-(D.2i) and (D.2l) hold with equality at rank-one points: the signs are those of Ohm's law."""
    case = load(name)
    # Without limits only the equations and cones remain.
    wide = np.full(len(case.generators), np.inf)
    zero = np.zeros(len(case.lines))
    free = replace(
        case,
        buses=replace(case.buses, v_min=case.buses.v_min * 0.5, v_max=case.buses.v_max * 2),
        generators=replace(case.generators, p_min=-wide, p_max=wide, q_min=-wide, q_max=wide),
        lines=replace(case.lines, rate=zero, angle_min=zero - np.inf, angle_max=zero + np.inf),
    )
    rng = np.random.default_rng(1)
    n = len(case.buses)
    voltage = rng.uniform(0.95, 1.05, n) * np.exp(1j * rng.uniform(-0.4, 0.4, n))
    zones = zone_model.zones_of(free, 3)
    model = build(free, "z2", zones["z2"])
    p_g, q_g = rng.normal(size=(2, len(case.generators)))
    z = voltages_to_z(free, Layout.from_case(free, zones["z2"]), voltage, p_g, q_g)
    scale = np.abs(model.cone_A.scipy()).sum(axis=1).max() * np.abs(z).max()
    assert violation(model, z) <= 1e-13 * scale
    # and a wrong sign of one si is seen
    k = next(k for k, name in enumerate(model.keys) if name.startswith("si") and abs(z[k]) > 0.01)
    z[k] = -z[k]
    assert violation(model, z) > 1e-3


def test_balance_rows_are_power_in_minus_power_out_at_each_own_bus():
    """A z + d of the zones, put together, is the shedding of the whole case at the same point."""
    solution = solve(CASE14, "cost")  # every load served: no shedding anywhere
    value = dict(zip(solution.keys, solution.z, strict=True))
    for model in zone_models(CASE14, ZONES14, cache=False).values():
        z = np.array([value[key] for key in model.keys])
        shed = model.A @ z + loads(CASE14, model.buses)
        assert np.abs(shed).max() < 1e-7
        assert violation(model, z) < 1e-7


def test_the_gradient_is_the_derivative_of_the_objective():
    model = zone_models(CASE14, ZONES14, cache=False)["z1"]
    d, rng = loads(CASE14, model.buses), np.random.default_rng(2)
    z, direction = rng.normal(size=(2, model.n))
    # f is quadratic, so the central difference is exact but for rounding.
    difference = (objective(model.A, z + direction, d) - objective(model.A, z - direction, d)) / 2
    assert gradient(model.A, z, d) @ direction == pytest.approx(difference, rel=1e-12)
    change = gradient(model.A, z + direction, d) - gradient(model.A, z, d)
    assert np.linalg.norm(change) <= model.L * np.linalg.norm(direction)


def test_angle_limits_turn_with_the_line_and_parallel_lines_intersect():
    lines = CASE14.lines
    low, high = np.deg2rad([-10.0, 20.0])
    turned = replace(
        CASE14,
        lines=replace(
            lines,
            from_bus=[2, *lines.from_bus[1:]],
            to_bus=[1, *lines.to_bus[1:]],
            angle_min=[low, *lines.angle_min[1:]],
            angle_max=[high, *lines.angle_max[1:]],
        ),
    )
    limits = Layout.from_case(turned, (1, 2)).angle_limits()
    assert (limits[0][0], limits[1][0]) == pytest.approx((np.tan(-high), np.tan(-low)))

    def parallel(of_second: tuple[float, float]) -> Case:
        columns = {}
        for column in fields(lines):
            values = getattr(lines, column.name)
            columns[column.name] = [*values, 99 if column.name == "rows" else values[0]]
        columns["angle_min"][-1], columns["angle_max"][-1] = of_second
        return replace(turned, lines=replace(lines, **columns))

    both = Layout.from_case(parallel((-0.1, 1.0)), (1, 2))
    assert len(both.pairs) == len(Layout.from_case(CASE14, (1, 2)).pairs)
    assert both.angle_limits()[0][0] == pytest.approx(np.tan(-0.1))
    assert both.angle_limits()[1][0] == pytest.approx(np.tan(np.pi / 6))
    with pytest.raises(InputError, match="disjoint angle limits on parallel lines 1-2"):
        Layout.from_case(parallel((0.6, 1.0)), (1, 2)).angle_limits()


@pytest.mark.runs
def test_one_zone_shares_nothing_and_one_bus_is_a_zone():
    whole = zone_models(CASE14, 1, cache=False)["z1"]
    assert len(whole.shared) == 0
    assert consensus([whole])[0] == ()
    single = zone_models(load("case5"), 5, cache=False)["z1"]
    assert single.buses == (1,)
    assert single.A.shape[0] == 2


def test_a_saved_model_comes_back_the_same(tmp_path):
    model = zone_models(CASE14, ZONES14, cache=False)["z2"]
    save_model(model, tmp_path / "z2.npz")
    assert same(load_model(tmp_path / "z2.npz"), model)
    assert [file.name for file in tmp_path.iterdir()] == ["z2.npz"]


@pytest.mark.runs
@pytest.mark.parametrize("damage", ["missing", "text", "cut", "other", "mixed"])
def test_a_damaged_model_file_is_an_input_error(tmp_path, damage):
    model = zone_models(CASE14, ZONES14, cache=False)["z2"]
    file = tmp_path / "z2.npz"
    if damage == "text":
        file.write_text("not a zip")
    elif damage == "cut":
        save_model(model, file)
        file.write_bytes(file.read_bytes()[:-300])
    elif damage == "other":
        np.savez(file, a=np.zeros(3))
    elif damage == "mixed":
        save_model(model, file)
        arrays = dict(np.load(file))
        np.savez(file, **{**arrays, "start": arrays["start"][:-1]})
    with pytest.raises(InputError, match="zone model") as error:
        load_model(file)
    assert "\n" not in str(error.value)


def test_models_are_built_once_and_then_read_from_the_cache(empty_cache, monkeypatch):
    built = zone_models(CASE14, ZONES14)
    assert len(list(empty_cache.iterdir())) == 3

    def never(*_):
        raise AssertionError("built again")

    monkeypatch.setattr(zone_model, "build", never)
    again = zone_models(CASE14, ZONES14)
    assert all(same(built[name], again[name]) for name in built)
    with pytest.raises(AssertionError, match="built again"):  # another network is another model
        zone_models(replace(CASE14, lines=replace(CASE14.lines, rate=CASE14.lines.rate * 2)), ZONES14)


@pytest.mark.runs
def test_a_damaged_or_unwritable_cache_is_gone_without(empty_cache, monkeypatch):
    built = zone_models(CASE14, ZONES14)
    for file in empty_cache.iterdir():
        file.write_bytes(b"damaged")
    assert same(zone_models(CASE14, ZONES14)["z1"], built["z1"])
    monkeypatch.setenv("CACHE_DIRECTORY", os.devnull)
    assert same(zone_models(CASE14, ZONES14)["z1"], built["z1"])


def test_where_cvxpy_is_absent_the_message_says_what_to_copy(monkeypatch, tmp_path):
    monkeypatch.setattr(zone_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="cvxpy is not installed; copy the file made by `hushgrid case zones case14"):
        ensure_model("case14", "z1", [1, 2])


def test_a_zone_of_an_unknown_bus_is_refused():
    with pytest.raises(InputError, match="zone z9: found bus 99, expected buses of case14"):
        ensure_model("case14", "z9", [1, 99])


# Centralised: the published AC optima and gaps of the same relaxation, PGLib-OPF v23.07 BASELINE.md.
@pytest.mark.parametrize(
    ("name", "cost", "ac_cost", "gap_percent"),
    [
        ("case14", 2175.70, 2178.1, 0.11),
        ("case30", 6662.2, 8208.5, 18.84),
        ("case57", 37529.7, 37589.0, 0.16),
        ("case118", 96335.9, 97214.0, 0.91),
    ],
)
def test_the_central_minimum_cost_is_the_known_one_and_its_gap_the_published_one(name, cost, ac_cost, gap_percent):
    solution = solve(load(name), "cost")
    assert solution.value == pytest.approx(cost, rel=5e-5)  # four digits
    # The published AC optimum has five digits, the gap two decimals.
    rounding = 100 * 0.5 * 10 ** (np.floor(np.log10(ac_cost)) - 4) / ac_cost
    assert 100 * (1 - solution.value / ac_cost) == pytest.approx(gap_percent, abs=0.01 + rounding)


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_centrally_no_load_has_to_be_shed(name):
    solution = solve(load(name))
    assert solution.value < 1e-10
    assert np.abs(solution.shed).max() < 1e-5


def test_a_quadratic_cost_counts_its_square_and_constant_terms():
    generators = CASE14.generators
    ones = np.ones(len(generators))
    case = replace(CASE14, generators=replace(generators, cost_2=30 * ones, cost_1=0 * ones, cost_0=7 * ones))
    solution = solve(case, "cost")
    assert solution.value == pytest.approx(30 * np.sum(solution.p_g**2) + 35, rel=1e-7)


def test_a_case_that_cannot_serve_its_loads_says_so_and_a_missing_cost_too():
    heavy = replace(CASE14, buses=replace(CASE14.buses, p_d=CASE14.buses.p_d * 10))
    with pytest.raises(Stopped, match="found status infeasible"):
        solve(heavy, "cost")
    assert solve(heavy).value > 1.0  # shedding always has an answer
    nan = np.full(len(CASE14.generators), np.nan)
    with pytest.raises(InputError, match="generator row 0: found no polynomial cost"):
        solve(replace(CASE14, generators=replace(CASE14.generators, cost_2=nan)), "cost")
    with pytest.raises(InputError, match="objective: found 'loss'"):
        solve(CASE14, "loss")
