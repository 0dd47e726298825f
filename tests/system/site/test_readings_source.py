"""A forecast by a rule, of readings that a process of its own reads, and by real daemons."""

import json
import signal
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import yaml

from tests.support.daemons.attacked_device import Target
from tests.support.daemons.deployed_fleet import HUSHGRID, Daemon
from tests.support.daemons.small_daemons import PAIR
from tests.support.site.readings_device import DAY, FIRST, ReadingsDevice, T, days_of, mean


def test_readings_are_read_in_a_process_of_their_own_within_the_time_of_the_source(tmp_path, monkeypatch):
    week = days_of(FIRST, 7)
    device = ReadingsDevice(tmp_path / "z1", monkeypatch, {"within": 1.0})
    device.write(week)
    device.today(FIRST + 7)
    device.start()
    assert np.abs(device.holds - mean(week)).max() < 1e-15
    device.end()


def zone(directory, url, stack, name, begins):
    """A device whose days begin now, with a week of readings."""
    directory.mkdir()
    hours = [begins - timedelta(hours=k) for k in range(1, 7 * T + 1)]
    rows = [f"{hour.isoformat()},{bus},{50 + 2 * k % 9},10" for k, hour in enumerate(hours) for bus in PAIR[name]]
    (directory / "readings.csv").write_text("\n".join(["time,bus,p_mw,q_mvar", *rows]) + "\n")
    public = [f"{t},{bus},50,10" for t in range(1, T + 1) for bus in PAIR[name]]
    (directory / "typical.csv").write_text("\n".join(["period,bus,p_mw,q_mvar", *public]) + "\n")
    config = {
        "data": {"case": "case5", "zone": list(PAIR[name]), "profiles": str(directory / "typical.csv")},
        "source": {
            "file": str(directory / "readings.csv"),
            "rule": "week-mean",
            "begins": f"{begins:%H:%M}",
            "within": 1.0,
        },
        "budget": {"epsilon": 1.0, "window": "23h", "adjacency": DAY},
    }
    return Target(directory, url, stack, name, config, "forecast")


def coordinator(directory, url):
    directory.mkdir()
    problem = {"kind": "zones", "case": "case5", "zones": [list(buses) for buses in PAIR.values()], "ac": "none"}
    scenario = {
        "hushgrid": 1,
        "name": "forecast",
        "problem": problem | {"objective": "cost", "horizon": {"periods": T, "hours": 1}},
        "algorithm": {"name": "consensus-admm", "rounds": 3},
        "privacy": {"mode": "input", "adjacency": DAY, "epsilon": 1},
    }
    (directory / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    config = {"fleet": "forecast", "broker": url, "scenario": "scenario.yaml", "state": "state", "run": {"every": "1h"}}
    (directory / "coordinator.yaml").write_text(yaml.safe_dump(config))
    return [*HUSHGRID, "coordinator", str(directory / "coordinator.yaml")]


@pytest.mark.mosquitto
def test_a_day_is_planned_from_readings_and_a_device_that_is_killed_answers_once(tmp_path, mosquitto):
    begins = datetime.now(UTC).replace(second=0, microsecond=0)
    with ExitStack() as stack:
        zones = {name: zone(tmp_path / name, mosquitto.url, stack, name, begins) for name in PAIR}
        for each in zones.values():
            each.start()
        centre = Daemon(tmp_path / "coordinator.log", coordinator(tmp_path / "centre", mosquitto.url), {})
        stack.callback(centre.kill)
        centre.wait_for("interval 1: answer")
        zones["z1"].daemon.kill()
        zones["z1"].start()
        centre.child.send_signal(signal.SIGUSR1)
        centre.wait_for("interval 2: answer")
        for each in (centre, *(each.daemon for each in zones.values())):
            assert each.end() == 0
        for each in zones.values():
            (total,) = json.loads(each.ledger_command("show", "--json").stdout)["totals"]
            assert total["answers"] == 1
            assert total["reading"]["answers"] == {"1/7": 1}
            assert total["reading"]["epsilon"] == pytest.approx(total["epsilon"] / 7, abs=1e-12)
