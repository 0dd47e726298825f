"""Whatever stands below starts processes or brokers, and carries the marker `system`: a broker, and a process that
forks.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hushgrid.broker.servers import choose as brokers
from hushgrid.broker.servers.mosquitto import find_mosquitto
from tests.support.daemons.forked import Forker


@pytest.fixture(autouse=True, scope="session")
def forker() -> Iterator[Forker]:
    """A device or coordinator starts in milliseconds."""
    with Forker() as process:
        yield process


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends every process of a test."""
    with ExitStack() as ended:
        yield ended


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a real broker on loopback without an access list: mosquitto where it is installed, else the embedded one."""
    with brokers.start("mosquitto" if find_mosquitto() else "embedded", tmp_path / "broker") as broker:
        yield broker.url
