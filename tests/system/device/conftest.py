"""Whatever stands below boots a Debian machine, and carries the marker `device`."""

import os
from pathlib import Path

import pytest

from tests.support.daemons.wheelhouses import wheelhouse


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.device)


@pytest.fixture(scope="session")
def directory():
    """Where roots stand: on a disk, kept from one run of these tests to the next."""
    place = Path(os.environ.get("HUSHGRID_DEVICE_DIR", "/var/tmp/hushgrid-device"))
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture(scope="session")
def house(directory):
    return wheelhouse(directory / "house")
