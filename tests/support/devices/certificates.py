"""Certificates as an owner has them: an authority, devices that it signs, and their PEM files."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)  #: when the certificates below are looked at
YEAR = timedelta(days=365)


class Authority:
    """A certificate that signs others, and its key."""

    def __init__(
        self, name: str = "an authority", *, may_sign: bool = True, until: datetime = NOON + 10 * YEAR, key=None
    ) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.certificate = _signed(name, self.key, name, self.key, until, may_sign)

    def signs(self, name: str, key=None, until: datetime = NOON + YEAR):
        """(certificate, key) of a device, EC P-256 unless it has a key."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return _signed(name, key, issuer, self.key, until, False), key

    def revokes(self, *certificates: bytes, until: datetime = NOON + YEAR / 12):
        """Its list of revoked certificates, given in DER."""
        made = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        made = made.last_update(NOON - YEAR / 12).next_update(until)
        for one in certificates:
            number = x509.load_der_x509_certificate(one).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(NOON - YEAR / 12)
            made = made.add_revoked_certificate(revoked.build())
        return made.sign(self.key, SHA256())


def _signed(name, key, issuer, by, until, may_sign):
    subject, of = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (name, issuer))
    made = x509.CertificateBuilder(of, subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(NOON - YEAR).not_valid_after(until)
    return made.add_extension(x509.BasicConstraints(may_sign, None), critical=True).sign(by, SHA256())


def written(place: Path, certificate, key) -> tuple[str, str]:
    """The PEM files of a certificate and its key."""
    place.mkdir(exist_ok=True)
    (place / "own.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (place / "own.key").write_bytes(key.private_bytes(*form))
    return str(place / "own.crt"), str(place / "own.key")
