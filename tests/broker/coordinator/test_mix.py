"""Who can be in one run: the number of the wire decides, and what is not right is named in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hushgrid.broker.coordinator import membership
from hushgrid.kernels.errors import InputError
from hushgrid.node.runtime.capabilities import capabilities
from tests.support.devices.zone_fleet import World, setup


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"), setup())
    yield made
    made.close()


@pytest.fixture(scope="module")
def facts(world):
    """What z1's birth says of it."""
    device = world.setup.device("z1")
    return capabilities(device, None, world["z1"].ledger)


@pytest.mark.runs
@given(st.text(max_size=20))
def test_any_version_that_speaks_this_wire_takes_part(world, facts, version):
    world.centre._check("z1", replace(facts, version=version))


def test_a_member_of_another_wire_is_named_with_both_versions(world, facts):
    facts = replace(facts, version="7.1.0", wire=9)
    with pytest.raises(InputError, match=r"^z1: wire: found 9 \(version 7\.1\.0\), expected 1 \(version \S+\)$"):
        world.centre._check("z1", facts)
    world.centre._check("z1", replace(facts, older=(8, 1)))


def test_a_member_of_an_older_wire_takes_part_if_that_is_still_spoken_here(world, facts, monkeypatch):
    monkeypatch.setattr(membership.wire, "WIRE", 3)
    facts = replace(facts, wire=2)
    with pytest.raises(InputError, match=r"^z1: wire: found 2 .*, expected 3 \("):
        world.centre._check("z1", facts)
    monkeypatch.setattr(membership.wire, "OLDER", (2,))
    world.centre._check("z1", facts)
