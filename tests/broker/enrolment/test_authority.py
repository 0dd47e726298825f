"""A fleet's authority: what it signs is what OpenSSL's rules want, and no file that is wrong gets past it."""

import stat
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from hushgrid.broker.enrolment import authority
from hushgrid.broker.enrolment.authority import DAY, Authority, Request, request
from hushgrid.kernels.errors import InputError


def test_a_request_leaves_a_key_for_its_owner_alone_and_is_small(tmp_path):
    made = request("z1", tmp_path / "box")
    assert sorted(path.name for path in (tmp_path / "box").iterdir()) == ["z1.csr", "z1.key"]
    assert stat.S_IMODE((tmp_path / "box" / "z1.key").stat().st_mode) == 0o600
    assert len((tmp_path / "box" / "z1.csr").read_bytes()) < 400
    read = Request.read(b"mail from the box:\n" + (tmp_path / "box" / "z1.csr").read_bytes() + b"bye", "mail")
    assert (read.name, read.fingerprint) == ("z1", made.fingerprint)


def test_a_key_is_never_overwritten(tmp_path):
    request("z1", tmp_path)
    key = (tmp_path / "z1.key").read_bytes()
    with pytest.raises(InputError, match=r"z1\.key: found a key, expected none"):
        request("z1", tmp_path)
    assert (tmp_path / "z1.key").read_bytes() == key


@pytest.mark.parametrize("name", ["", "Z1", "z_1", "z/1", "../z1", "z" * 65, "z\n", "zé"])
def test_a_name_that_is_none_is_one_line(tmp_path, name):
    with pytest.raises(InputError, match=r"NAME: found .*, expected lower-case letters, digits and -"):
        request(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_request_that_was_changed_on_its_way_is_refused(tmp_path):
    request("z1", tmp_path)
    der = x509.load_pem_x509_csr((tmp_path / "z1.csr").read_bytes()).public_bytes(Encoding.DER)
    with pytest.raises(InputError, match=r"f: found a signature that is not its key's"):
        Request.read(der.replace(b"z1", b"z2"), "f")
    for cut in range(0, len(der), 7):
        with pytest.raises(InputError, match=r"f: found no certificate request"):
            Request.read(der[:cut], "f")


def test_a_key_of_another_kind_is_refused():
    key = ed25519.Ed25519PrivateKey.generate()
    signed = x509.CertificateSigningRequestBuilder().subject_name(authority._name("z1")).sign(key, None)
    with pytest.raises(InputError, match=r"f: found a key of another kind"):
        Request.read(signed.public_bytes(Encoding.PEM), "f")


def test_certificates_are_for_one_name_and_one_use_and_end_with_their_authority_at_the_latest(tmp_path):
    ca = Authority.make("demo")
    signed = ca.sign("z1", request("z1", tmp_path).key)
    signed.verify_directly_issued_by(ca.certificate)
    assert [a.value for a in signed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["z1"]
    assert signed.not_valid_after_utc - authority.now() > 824 * DAY
    of = signed.extensions.get_extension_for_class
    assert of(x509.BasicConstraints).critical
    assert not of(x509.BasicConstraints).value.ca
    assert list(of(x509.ExtendedKeyUsage).value) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    long = ca.sign("z1", signed.public_key(), timedelta(days=30000))
    assert long.not_valid_after_utc == ca.certificate.not_valid_after_utc
    names = [("10.0.0.1", x509.IPAddress), ("broker.example", x509.DNSName), ("fd00::1", x509.IPAddress)]
    for host, kind in names:
        server = ca.sign_server("broker", ec.generate_private_key(ec.SECP256R1()).public_key(), host)
        (general,) = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert isinstance(general, kind)
        assert str(general.value) == host


def test_a_list_of_revoked_certificates_lasts_for_ten_years(tmp_path):
    ca = Authority.make("demo")
    made = x509.load_pem_x509_crl(ca.revoked([(7, authority.now())]))
    assert made.is_signature_valid(ca.certificate.public_key())
    assert made.get_revoked_certificate_by_serial_number(7) is not None
    assert made.next_update_utc - authority.now() >= 3649 * DAY
    assert made.signature_hash_algorithm.name == hashes.SHA256.name


def test_a_fleet_of_the_longest_name_has_an_authority():
    assert Authority.make("a" * 64).certificate.subject
