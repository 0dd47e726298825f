"""A zone on a small device: little memory, a twentieth of a processor."""

import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from hushgrid.kernels.errors import Stopped
from hushgrid.lab.benchmarks.daemon import SMALL_BYTES, SMALL_SHARE, Group
from tests.support.daemons.deployed_fleet import HUSHGRID, ZONES, Fleet


@pytest.fixture
def group():
    try:
        made = Group(SMALL_BYTES, SMALL_SHARE)
    except Stopped as missing:
        pytest.skip(str(missing))
    yield made
    made.remove()


def test_a_zone_is_ready_and_takes_part_in_a_run_in_48_mb_and_with_5_percent_of_a_processor(url, tmp_path: Path, group):
    with ExitStack() as stack:
        fleet = Fleet(tmp_path / "fleet", url, stack)
        for z in ZONES[1:]:
            fleet.node(z)  # they have read the libraries first: pages of files that are shared are theirs
        fleet.program = [*group.within, *HUSHGRID]
        small = fleet.node(ZONES[0])
        fleet.program = HUSHGRID
        coordinator = fleet.coordinator("--once")
        assert coordinator.code() == 0, coordinator.said
        assert str(small.child.pid) in (group.memory / "cgroup.procs").read_text().split()
        assert "/scipy/" not in Path(f"/proc/{small.child.pid}/maps").read_text()
        assert 0 <= SMALL_BYTES - group.limit < resource.getpagesize()
        assert (group.killed, small.child.poll()) == (0, None)
        assert small.end() == 0
        print(f"at most {group.peak / 1e6:.1f} MB")
