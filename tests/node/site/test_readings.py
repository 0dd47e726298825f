"""A forecast by a rule, made on the device from its readings: the mean of the last days, hour by hour."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

from hushgrid.cli.owner.ledger import show
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node.config.consent import consent
from hushgrid.node.config.device import load_device
from hushgrid.node.site.data_source import device_of
from tests.support.devices.lives import at_once
from tests.support.site.readings_device import (
    BASE,
    BUSES,
    DAY,
    DAY_S,
    FIRST,
    TYPICAL,
    ReadingsDevice,
    days_of,
    mean,
    readings,
    setup_of,
)

pytestmark = pytest.mark.runs
ADJACENCY = "day-change:0.02:0.97"
ZONE = {"case": "case5", "zone": list(BUSES)}
WEEK = days_of(FIRST, 7)


@pytest.fixture
def quickly(monkeypatch):
    at_once(monkeypatch)


@pytest.fixture
def device(tmp_path, monkeypatch, quickly):
    """After a week of readings."""
    made = ReadingsDevice(tmp_path / "z1", monkeypatch)
    made.write(WEEK)
    made.today(FIRST + 7)
    yield made.start()
    made.end()


def with_typical(*days, missing=()):
    """The mean of these days, of which entries (day, period, kind, bus) are the public ones."""
    stacked = np.stack(days)
    for place in missing:
        stacked[place] = TYPICAL[place[1:]]
    return stacked.mean(axis=0).ravel() / BASE


def test_the_forecast_is_the_mean_of_the_same_hour_of_the_last_seven_days(device):
    assert np.abs(device.holds - mean(WEEK)).max() < 1e-15
    later = days_of(FIRST + 3, 7, seed=2)
    device.write(WEEK | later)
    device.today(FIRST + 10)
    device.run()
    assert np.abs(device.holds - mean(later)).max() < 1e-15


def test_yesterday_is_a_rule_too(tmp_path, monkeypatch, quickly):
    device = ReadingsDevice(tmp_path / "z1", monkeypatch, {"rule": "yesterday"})
    device.write(WEEK)
    device.today(FIRST + 7)
    device.start()
    assert np.abs(device.holds - mean({0: WEEK[FIRST + 6]})).max() < 1e-15
    device.answer()
    assert list(device.ledger.spends.readings(ADJACENCY)) == [FIRST + 6]
    device.end()


def test_over_ten_days_a_reading_costs_no_more_than_one_answer_and_the_owner_is_told(device):
    days = days_of(FIRST, 20)
    for day in range(7, 17):
        device.write({known: each for known, each in days.items() if FIRST + day - 2 < known < FIRST + day})
        device.today(FIRST + day)
        noisy = device.answer()
        assert 0 < np.abs(noisy - device.holds).max() < 0.1
    (one,) = {spend.value for spend in device.ledger.spends.rows()}
    costs = device.ledger.spends.readings(ADJACENCY)
    assert costs[FIRST + 6].epsilon == pytest.approx(7 * one / 7, abs=1e-12)
    assert max(totals.epsilon for totals in costs.values()) == pytest.approx(one, abs=1e-12)
    assert device.ledger.spends.totals(ADJACENCY).epsilon == pytest.approx(10 * one, abs=1e-12)
    assert "one day of readings: at most epsilon 0.999999 over all answers it enters" in show(
        device.file, None, None, False
    )
    (total,) = json.loads(show(device.file, None, None, True))["totals"]
    assert total["reading"] | {"epsilon": 0, "day": ""} == {
        "day": "",
        "epsilon": 0,
        "answers": {"1/7": 7},
        "days": 16,
        "first": "2024-10-04",
        "last": "2024-10-19",
        "undated": 0,
        "epsilon_undated": 0.0,
    }


def test_one_answer_a_week_costs_a_reading_a_seventh(tmp_path, monkeypatch, quickly):
    budget = {"epsilon": 1.0, "window": "167h", "adjacency": DAY}
    device = ReadingsDevice(tmp_path / "z1", monkeypatch, budget=budget, fresh=1)
    device.today(FIRST + 7)
    device.write(days_of(FIRST, 30))
    device.start()
    for day in range(7, 28):
        device.today(FIRST + day)
        device.answer()
    spends = device.ledger.spends
    assert len(spends.rows()) == 3
    assert max(totals.epsilon for totals in spends.readings(ADJACENCY).values()) < 0.143
    device.end()


# --- what is missing ---


def test_what_is_missing_counts_as_the_public_load_with_the_weight_of_a_reading(device):
    text = readings(days_of(FIRST + 7, 1)).splitlines()
    first = f"2024-10-11T00:00:00Z,{BUSES[0]}"
    rows = [row for row in text if not row.startswith(first)]
    rows.insert(4, f"2024-10-11T01:00:00Z,{BUSES[1]},1,1")  # again: which of the two is right is not known
    at = next(k for k, row in enumerate(rows) if row.startswith(f"2024-10-11T05:00:00Z,{BUSES[2]}"))
    rows[at] = f"2024-10-11T05:00:00Z,{BUSES[2]},nan,2.5"
    (device.directory / "readings.csv").write_text("\n".join(rows) + "\n")
    device.today(FIRST + 8)
    device.run()
    last = days_of(FIRST + 7, 1)[FIRST + 7]
    last[5, 1, 2] = 2.5
    missing = [(6, 0, 0, 0), (6, 0, 1, 0), (6, 1, 0, 1), (6, 1, 1, 1), (6, 5, 0, 2)]
    expected = with_typical(*list(WEEK.values())[1:], last, missing=missing)
    assert np.abs(device.holds - expected).max() < 1e-15
    assert "again, expected each once" in device.said[-1]


def test_fewer_than_seven_days_are_filled_with_the_public_day_and_no_reading_weighs_more(
    tmp_path, monkeypatch, quickly
):
    device = ReadingsDevice(tmp_path / "z1", monkeypatch)
    device.today(FIRST + 1)
    device.write({FIRST: WEEK[FIRST]})
    device.start()
    assert np.abs(device.holds - with_typical(WEEK[FIRST], *[TYPICAL] * 6)).max() < 1e-15
    assert "readings of 1 of the 7 days to 2024-10-04: of others public loads count" in device.said
    device.end()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "readings.csv:1: found another header, expected time,bus,p_mw,q_mvar"),
        ("bus,p_mw,q_mvar\n1,2,3\n", "readings.csv:1: found another header, expected time,bus,p_mw,q_mvar"),
        ("time,bus,p_mw,q_mvar\n2024-10-10 07:30,1,2,3\n", "readings.csv:2: found a malformed row, or a time at which"),
        ("time,bus,p_mw,q_mvar\n24-10-10,1,2,3\n", "expected a row of time,bus,p_mw,q_mvar at each 60 min"),
        ("time,bus,p_mw,q_mvar\n2024-10-10,1,2\n", "readings.csv:2: found a malformed row"),
        ("time,bus,p_mw,q_mvar\n2024-10-10,1,two,3\n", "readings.csv:2: found no number, expected one"),
        ("time,bus,p_mw,q_mvar\n2024-10-11,1,2,3\n", "readings.csv: found 2 values of 2024-10-11, expected 144"),
        ("time,bus,p_mw,q_mvar\n2024-10-11,1,2,3", "found a last line without its end"),
        (None, "No such file or directory"),
    ],
)
def test_what_is_wrong_with_readings_is_one_line_for_the_owner_and_the_day_goes_on(device, text, line):
    file = device.directory / "readings.csv"
    file.unlink() if text is None else file.write_text(text)
    version = device.version
    device.today(FIRST + 8)
    assert device.run() == version + 1
    wrong = [said for said in device.said if line in said]
    assert len(wrong) == 1
    assert "\n" not in wrong[0]


def test_days_that_were_read_are_kept_over_a_restart_though_the_file_has_them_no_more(device):
    device.write({FIRST + 7: WEEK[FIRST]})
    device.restart()
    device.today(FIRST + 8)
    device.run()
    assert np.abs(device.holds - mean(WEEK)).max() < 1e-15  # the last day is as the first was


# --- which answers there are ---


def test_a_file_that_is_replaced_within_a_day_is_no_new_answer(device):
    first, version = device.answer(), device.version
    device.write(days_of(FIRST, 7, seed=5))
    device.today(FIRST + 7, hour=20)
    assert np.array_equal(device.answer(), first)
    assert device.version == version
    assert len(device.ledger.spends.rows()) == 1


def test_a_clock_that_goes_back_repeats_the_answer_and_says_so(device):
    first = device.answer()
    device.today(-300)
    assert np.array_equal(device.answer(), first)
    assert "found today to be 1969-03-07, expected at least 2024-10-11, as it was" in device.said[-1]
    device.today(FIRST + 8)
    assert not np.array_equal(device.answer(), first)


def test_a_clock_that_jumps_ahead_leaves_public_loads_alone(device):
    device.today(FIRST + 400)
    device.run()
    assert np.abs(device.holds - TYPICAL.ravel() / BASE).max() < 1e-15


def test_a_reading_never_costs_more_than_the_budget_however_often_its_days_are_answered_about(device):
    for _ in range(7):
        device.answer()
        device.clock.now += DAY_S  # a device whose clock stands still
        (device.directory / "state" / "z1.intake").unlink()
        device.restart()
    with pytest.raises(Refused, match=r"spent epsilon 0.999999 on the readings of 2024-10-04, asked 1/7 of 1 more, "):
        device.answer()
    device.write(days_of(FIRST, 14))
    device.today(FIRST + 14)
    device.answer()


def test_a_death_between_the_values_and_the_ledger_leaves_the_days_noted(device):
    device.answer()
    device.today(FIRST + 8)
    device.ledger.new_data = lambda days: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        device.run()
    device.restart()
    device.answer()
    assert device.ledger.spends.days(device.version).last == FIRST + 7
    assert device.ledger.spends.readings(ADJACENCY)[FIRST + 7].epsilon > 0.14


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"source": {"file": "x", "rule": "month-mean"}}, "source.rule: found 'month-mean', expected"),
        (
            {"source": {"file": "x", "begins": "05:00"}, "data": ZONE, "retention": "2h"},
            "source.begins: found 05:00, expected none (no source.rule)",
        ),
        ({"source": {"file": "x", "rule": "yesterday", "begins": "25:00"}}, "source.begins"),
        (
            {"source": {"mqtt": {"broker": "mqtt://127.0.0.1:1", "topic": "x"}, "rule": "yesterday"}},
            "source.rule: found yesterday, expected file, folder or command (a message has no time)",
        ),
        ({"retention": "2h"}, "retention: found 2h, expected none (source.rule: a reading counts for 7 days)"),
        (
            {"data": ZONE},
            "data.profiles: missing, expected a public day, for readings that are missing (source.rule)",
        ),
        (
            {"budget": {"epsilon": 1.0, "adjacency": {"bounded-change": 0.01}}},
            "source.rule: found week-mean under bounded-change 0.01, expected budget.adjacency {day: {...}}",
        ),
    ],
)
def test_what_does_not_fit_a_rule_is_refused_in_one_line(tmp_path, monkeypatch, changes, line):
    device = ReadingsDevice(tmp_path / "z1", monkeypatch)
    device.edit(**changes)
    with pytest.raises(InputError) as caught:
        load_device(device.file)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("horizon", "began", "line"),
    [
        ((("hours", 0.5),), 0, "found a horizon of 12 h in the plan, expected 24"),
        ((), 5 * 3600, "found a day that begins at 05:00 UTC in the plan, expected 00:00 (source.begins)"),
        ((), 31 * 60, "found a day that begins at 00:31 UTC"),
        ((), 29 * 60, None),
        ((), 23 * 3600 + 31 * 60, None),
    ],
)
def test_a_plan_of_other_hours_than_the_readings_is_refused(device, horizon, began, line):
    plan = setup_of(horizon).plan
    day = replace(plan.problem.horizon, began=20000 * 86400 + began if began else 0)
    plan = replace(plan, problem=replace(plan.problem, horizon=day))
    if line is None:
        return device.data_source.device.check(plan)
    with pytest.raises(InputError) as caught:
        device.data_source.device.check(plan)
    assert line in str(caught.value)


def test_check_says_what_a_reading_costs(device):
    config = load_device(device.file)
    words = "\n".join(consent(config, device_of(config, str(device.file))))
    assert "a reading counts 1/7 in each of 7 days' answers, so an answer a day costs it no more than one" in words
    assert "a window hides the readings of one day" in words


def test_readings_that_end_at_another_hour_are_of_the_day_that_begins_then(tmp_path, monkeypatch, quickly):
    device = ReadingsDevice(tmp_path / "z1", monkeypatch, {"begins": "05:00"})
    device.write(WEEK, begins=5)
    device.today(FIRST + 7, hour=6)
    device.start()
    assert np.abs(device.holds - mean(WEEK)).max() < 1e-15
    device.end()


def test_the_noise_is_made_for_a_whole_days_energy_though_a_reading_moves_a_seventh(device, monkeypatch):
    scales = []
    release = Lattice.release
    monkeypatch.setattr(Lattice, "release", lambda self, v, n: scales.append(self) or release(self, v, n))
    device.answer()
    (lattice,) = scales
    assert lattice.epsilon == pytest.approx(1.0, rel=1e-4)
    assert lattice.scale == pytest.approx(0.02 * (1 + np.tan(np.arccos(0.97))), rel=2e-3)
