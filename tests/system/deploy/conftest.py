"""The example fleet of deploy/ on a broker of its own."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.daemons.deployed_fleet import Fleet, tried
from tests.support.daemons.wheelhouses import wheelhouse


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheelhouse of this checkout."""
    return wheelhouse(tmp_path_factory.mktemp("built") / "house")


@pytest.fixture
def fleet(tmp_path: Path, mosquitto_program: Path) -> Iterator[Fleet]:
    """A fleet on the broker of mosquitto-try.conf, in which only port, user and paths are changed."""
    with ExitStack() as stack:
        yield tried(tmp_path / "deploy", mosquitto_program, stack)
