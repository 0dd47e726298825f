"""Whom an owner trusts is read anew for each run: a list of revoked certificates that is replaced counts from the next
run on.
"""

from contextlib import closing
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from hushgrid.kernels.errors import Refused
from hushgrid.node.masks.identity import fingerprint
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.masking import masks_of
from hushgrid.node.schema.sections import Allow, AllowMasked, Tls
from tests.support.daemons.invented_members import Authority

RUN = b"r" * 16


@pytest.fixture
def owners():
    return Authority()


@pytest.fixture
def owner(tmp_path, owners):
    """The file of n0, whose owner believes in `owners` and has an empty list of theirs."""
    owners.device("n0").save(tmp_path / "n0.crt", tmp_path / "n0.key")
    (tmp_path / "owners.crl").write_bytes(owners.revokes().public_bytes(Encoding.PEM))
    tls = Tls(
        ca=Authority("fleet").save(tmp_path / "fleet.pem"), cert=str(tmp_path / "n0.crt"), key=str(tmp_path / "n0.key")
    )
    ca, crl = owners.save(tmp_path / "owners.pem"), str(tmp_path / "owners.crl")
    masked = AllowMasked(corrupt=0, honest=2, alone=9.0, ca=ca, crl=crl)
    return SimpleNamespace(node="n0", tls=tls, allow=Allow(masked=masked))


def test_peers_refuse_an_introduction_by_a_certificate_that_is_revoked_meanwhile(tmp_path, owner, owners):
    make = masks_of(owner)
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as ledger:
        ledger.join(RUN, b"plan")

        def met(allowed, introductions):
            masks = make(RUN, ledger, allowed)
            masks.meet(introductions | {"n0": masks.introduction()})

        members = owners.introductions(RUN, ["n1", "n2"])
        met(owner.allow.masked, members)
        stolen = fingerprint(members["n2"].certificate)
        (tmp_path / "owners.crl").write_bytes(owners.revokes(members["n2"].certificate).public_bytes(Encoding.PEM))
        with pytest.raises(Refused, match=f"the introduction of n2: found a certificate that is revoked, {stolen}"):
            met(owner.allow.masked, members)
        met(owner.allow.masked, {"n1": members["n1"]})
        first = fingerprint(members["n1"].certificate)
        with pytest.raises(Refused, match=f"the introduction of n1: found a certificate that is revoked, {first}"):
            met(replace(owner.allow.masked, revoked=(first,)), members)  # as its owner's file says since SIGHUP
        with pytest.raises(Refused, match=r"n0: masked sums, its owner allows none \(allow.masked\)"):
            met(None, members)
        (tmp_path / "owners.crl").unlink()
        with pytest.raises(Refused) as caught:  # the network is told of no file
            met(owner.allow.masked, members)
        assert str(caught.value) == "n0: whom its owner trusts cannot be read any more (allow.masked)"
