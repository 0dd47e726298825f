"""A coordinator that says longer periods would have a day's energy hidden as a smaller one."""

from __future__ import annotations

import msgspec
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.device import load_device
from tests.support.runs.day_fleet import setup_of, small

PROFILES = "period,bus,p_mw,q_mvar\n" + "".join(f"{t},{b},1,0\n" for t in (1, 2, 3, 4) for b in (3, 4))


DAY = "{day: {energy_mwh: 0.02, power_factor: 0.97}}"


def config(directory, data, adjacency=DAY):
    (directory / "z2.yaml").write_text(
        "node: z2\nfleet: day\nbroker: mqtt://localhost\nstate: state\n"
        f"data: {{case: case5, zone: [3, 4], {data}}}\n"
        f"budget: {{epsilon: 9, adjacency: {adjacency}}}\n"
    )
    return load_device(directory / "z2.yaml")


def zone(directory, data):
    device = config(directory, data)
    return device.kind.device(device, str(directory / "z2.yaml"))


def plan(directory, hours):
    made = small(directory / "scenario").plan
    horizon = msgspec.structs.replace(made.problem.horizon, hours=hours)
    return msgspec.structs.replace(made, problem=msgspec.structs.replace(made.problem, horizon=horizon))


@pytest.mark.parametrize(("declared", "longest"), [("", 6.0), (", hours: 1", 1.0)])
def test_no_plan_has_longer_periods_than_the_profiles(tmp_path, declared, longest):
    """Four periods are those of a day, unless their owner says how long they are."""
    (tmp_path / "profiles.csv").write_text(PROFILES)
    device = zone(tmp_path, f"profiles: profiles.csv{declared}")
    device.check(plan(tmp_path, longest))
    device.check(plan(tmp_path, longest / 2))  # what is hidden is more then, never less
    with pytest.raises(InputError, match=rf"z2: found periods of .* in the plan, expected at most {longest:g} \("):
        device.check(plan(tmp_path, 1.01 * longest))


def test_a_snapshot_lasts_an_hour(tmp_path):
    """Over a day of one period the same noise would hide a twenty-fourth of the energy."""
    (tmp_path / "loads.csv").write_text("bus,p_mw,q_mvar\n3,1,0\n4,1,0\n")
    device = zone(tmp_path, "loads: loads.csv")
    made = setup_of("case5", [[1, 2, 5], [3, 4]], {"periods": 1, "hours": 1}).plan
    device.check(made)
    horizon = msgspec.structs.replace(made.problem.horizon, hours=24.0)
    with pytest.raises(InputError, match=r"found periods of 24 h in the plan, expected at most 1 \("):
        device.check(msgspec.structs.replace(made, problem=msgspec.structs.replace(made.problem, horizon=horizon)))


def test_hours_are_said_of_profiles(tmp_path):
    (tmp_path / "loads.csv").write_text("bus,p_mw,q_mvar\n3,1,0\n4,1,0\n")
    with pytest.raises(InputError, match=r"data\.hours: found 1, expected data.profiles beside it"):
        config(tmp_path, "loads: loads.csv, hours: 1", "{bounded-change: 1}")
