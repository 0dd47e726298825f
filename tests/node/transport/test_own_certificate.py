"""A client knows which certificate it has connected with, and when another one stands in its place."""

from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from hushgrid.broker.enrolment.authority import Authority, now, request
from hushgrid.kernels.errors import InputError
from hushgrid.node.schema.sections import Tls
from hushgrid.node.transport.certificate import DAY_S, HOUR_S, OwnCertificate, list_ends, not_after, number


class Box:
    """The files of one device, and the authority that signs for it."""

    def __init__(self, place):
        self.place, self.authority = place, Authority.make("demo")
        (place / "ca.crt").write_bytes(self.authority.certificate.public_bytes(Encoding.PEM))
        self.tls = Tls(ca=str(place / "ca.crt"), cert=str(place / "z1.crt"), key=str(place / "z1.key"))
        self.made = 0

    def renew(self, days: float = 800, key: bool = True):
        self.made += 1
        folder = self.place / str(self.made)
        public = request("z1", folder).key
        signed = self.authority.sign("z1", public, timedelta(days=days))
        (self.place / "z1.crt").write_bytes(signed.public_bytes(Encoding.PEM))
        if key:
            (self.place / "z1.key").write_bytes((folder / "z1.key").read_bytes())
        return signed


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def test_number_and_end_are_those_of_the_certificate(box):
    signed = box.renew()
    assert number(box.tls.cert) == f"{signed.serial_number:x}"
    assert not_after(box.tls.cert) == signed.not_valid_after_utc


def test_the_file_is_looked_at_from_the_last_day_on_and_then_each_hour(box):
    signed = box.renew()
    own, ends = OwnCertificate(box.tls), signed.not_valid_after_utc.timestamp()
    assert own.looks_at == ends - DAY_S
    assert not own.replaced(ends - DAY_S)
    assert own.looks_at == ends - DAY_S + HOUR_S


def test_a_renewed_certificate_is_noticed_once_its_key_is_there_too(box):
    box.renew()
    own = OwnCertificate(box.tls)
    first = own.number
    signed = box.renew(key=False)
    with pytest.raises(InputError, match=r"tls: .*z1\.crt"):
        own.replaced(0.0)
    (box.place / "z1.key").write_bytes((box.place / "2" / "z1.key").read_bytes())
    assert own.replaced(0.0)
    assert own.number == first
    own.take(0.0)
    assert own.number == f"{signed.serial_number:x}"
    assert not own.replaced(0.0)


def test_without_a_certificate_nothing_is_due():
    own = OwnCertificate(None)
    assert (own.number, own.looks_at) == ("", float("inf"))


def test_the_end_of_a_list_of_revoked_certificates_is_read_without_a_library(box):
    (box.place / "crl.pem").write_bytes(box.authority.revoked([(7, now())]))
    assert 3649 < (list_ends(box.place / "crl.pem") - now()).days < 3652
    for text in ("", "nothing", "-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----"):
        (box.place / "crl.pem").write_text(text)
        with pytest.raises(InputError, match="expected PEM"):
            list_ends(box.place / "crl.pem")
