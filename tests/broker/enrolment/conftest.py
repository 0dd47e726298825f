"""The directory of a fleet of the example's three zones."""

import pytest

from hushgrid.broker.enrolment.directory import FleetDirectory, FleetFile
from tests.support.paths import DEPLOY


@pytest.fixture
def fleet(tmp_path):
    made = FleetDirectory.make(
        tmp_path / "F", FleetFile(fleet="demo", broker="mqtts://broker.example:8883"), DEPLOY / "scenario.yaml"
    )
    made.write_coordinator()
    made.write_broker()
    return made
