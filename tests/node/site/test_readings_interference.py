"""Readings influence nothing but the noisy answer: not what is said, spent, refused or kept in the ledger."""

import numpy as np
import pytest

from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node.runtime.member import Member
from tests.support.devices.lives import at_once
from tests.support.runs.background_run import held_still, tables
from tests.support.runs.day_fleet import NAME, DayFleet
from tests.support.site.readings_device import FIRST, ReadingsDevice, days_of, setup_of

pytestmark = pytest.mark.runs
DAYS = 4


class Fleet(DayFleet):
    """z1 is a device with a file of readings."""

    def __init__(self, directory, device, **keys):
        self.device = device
        super().__init__(directory, setup_of(), **keys)

    def _member(self, zone):
        if zone != "z1":
            return super()._member(zone)
        source, config = self.device.data_source, self.device.config
        self.ledgers["z1"] = self.device.ledger
        said = self.logs.setdefault("z1", []).append
        return Member(NAME, source.device, self.device.ledger, config.budget, config.allow, log=said, renew=source)


def seen(directory, monkeypatch, days, spoilt=False, release=None, many=DAYS):
    """What others have of some days of these readings, and the device's ledger. `spoilt`: rows are missing."""
    with held_still(monkeypatch, release):
        device = ReadingsDevice(directory / "z1", monkeypatch, {"begins": "08:00"})  # when the fleet's clock begins
        device.write(dict(list(days.items())[:7]), 8)
        device.today(FIRST + 7, hour=8.5)
        fleet = Fleet(directory / "fleet", device.start())
        said, outcomes = [], []
        fleet.hub.eavesdrop = lambda topic, payload: said.append((topic, payload))
        for day in range(many):
            device.today(FIRST + 7 + day, hour=8.5)
            device.write({k: each for k, each in days.items() if k < FIRST + 7 + day}, 8)
            if spoilt and day % 2:
                file = device.directory / "readings.csv"
                file.write_text(file.read_text()[: -40 * day].replace(",1.", ",nan,"))
            fleet.interval()
            outcomes.append(fleet.rows()[-1]["outcome"])
            fleet.now += 23 * 3600
        fleet.close()
        kept = tables(device.ledger.path)
    return said, dict(fleet.hub.retained), outcomes, kept


@pytest.fixture
def quickly(monkeypatch):
    at_once(monkeypatch)


def test_with_answers_held_still_readings_change_nothing_that_leaves_or_is_spent(tmp_path, monkeypatch, quickly):
    readings = days_of(FIRST, 7 + DAYS)
    first = seen(tmp_path / "a", monkeypatch, readings)
    assert first[2] == ["answer"] * DAYS
    others = {day: 3.0 * each + 1.0 for day, each in readings.items()}
    assert seen(tmp_path / "b", monkeypatch, others) == first
    assert seen(tmp_path / "c", monkeypatch, readings, spoilt=True) == first


def test_an_answer_that_is_not_held_still_is_told_apart(tmp_path, monkeypatch, quickly):
    release = Lattice.release

    def bare(lattice, v, n):
        return release(lattice, v, np.zeros_like(n))

    readings = days_of(FIRST, 7 + DAYS)
    first = seen(tmp_path / "a", monkeypatch, readings, release=bare, many=1)
    others = {day: 1.1 * each for day, each in readings.items()}
    assert seen(tmp_path / "b", monkeypatch, others, release=bare, many=1)[0] != first[0]
