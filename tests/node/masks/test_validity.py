"""A clock that is not set yet, or a certificate that has ended: a masked device waits, as one without masks does."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from hushgrid.kernels.errors import Refused
from hushgrid.node import system
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.masking import masks_of
from hushgrid.node.schema.sections import Allow, AllowMasked, Tls
from tests.support.devices.certificates import NOON, YEAR, Authority, written

RUN, NEXT = b"r" * 16, b"s" * 16


@pytest.fixture
def clock(monkeypatch):
    """The machine's clock, as the program reads it: `set` gives it another time, or an error."""
    found = SimpleNamespace(time=NOON)

    def wall():
        if isinstance(found.time, Exception):
            raise found.time
        return found.time.timestamp()

    monkeypatch.setattr(system.machine, "wall", wall)
    return found


@pytest.fixture
def device(tmp_path):
    """n1's certificate files, what its owner declares, and its ledger."""
    authority = Authority()
    ca, _ = written(tmp_path / "ca", authority.certificate, authority.key)
    cert, key = written(tmp_path / "n1", *authority.signs("n1"))
    allow = Allow(masked=AllowMasked(corrupt=0, honest=2, alone=9.0, peers=("0" * 64,)))
    owner = SimpleNamespace(node="n1", tls=Tls(ca=ca, cert=cert, key=key), allow=allow)
    ledger = Ledger(tmp_path / "n1.ledger", "n1")
    yield SimpleNamespace(owner=owner, authority=authority, place=tmp_path / "n1", ledger=ledger)
    ledger.close()


@pytest.mark.parametrize(
    "time",
    [datetime(1970, 1, 1, tzinfo=UTC), OverflowError("no such year"), NOON + 3 * YEAR],
    ids=["1970 at boot", "a clock that cannot be read", "a certificate that has ended"],
)
def test_the_device_starts_refuses_new_runs_in_a_line_and_takes_part_once_the_clock_is_right(device, clock, time):
    clock.time = time
    masks = masks_of(device.owner)
    with pytest.raises(
        Refused, match=r"^n1: found a certificate for 2025-06-01 to 2027-06-01, expected a valid one, by"
    ):
        masks(RUN, device.ledger, device.owner.allow.masked)
    clock.time = NOON
    device.ledger.join(RUN, b"plan")
    assert masks(RUN, device.ledger, device.owner.allow.masked).introduction().signature


def test_a_run_that_was_joined_goes_on_when_the_certificate_ends(device, clock):
    masks = masks_of(device.owner)
    masks(RUN, device.ledger, device.owner.allow.masked)
    device.ledger.join(RUN, b"plan")
    shown = masks(RUN, device.ledger, device.owner.allow.masked).introduction()
    clock.time = NOON + 3 * YEAR
    assert masks_of(device.owner)(RUN, device.ledger, device.owner.allow.masked).introduction() == shown


def test_a_renewed_certificate_is_taken_at_the_next_run_and_half_a_renewal_is_not(device, clock):
    masks = masks_of(device.owner)
    clock.time = NOON + 3 * YEAR
    with pytest.raises(Refused):
        masks(RUN, device.ledger, device.owner.allow.masked)
    key = (device.place / "own.key").read_bytes()
    written(device.place, *device.authority.signs("n1", until=NOON + 9 * YEAR))
    new = (device.place / "own.key").read_bytes()
    (device.place / "own.key").write_bytes(key)  # the new certificate, and still the old key
    with pytest.raises(Refused):
        masks(RUN, device.ledger, device.owner.allow.masked)
    (device.place / "own.key").write_bytes(new)
    masks(RUN, device.ledger, device.owner.allow.masked)
