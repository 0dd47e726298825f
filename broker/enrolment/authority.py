"""A fleet's certificate authority: keys, requests, certificates, the list of revoked certificates.

A key is made where it is used and never leaves there; what travels is a request with the public half, signed by the
private one. Fingerprints are of the public key: SHA-256 of its SubjectPublicKeyInfo in DER, so that the box and the
operator see the same one before there is a certificate.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hushgrid.kernels.errors import InputError, printable
from hushgrid.node.schema.sections import Tls

NAME = re.compile(r"[a-z0-9-]{1,64}")
DAY = timedelta(days=1)
LIFETIME = 825 * DAY  #: of a certificate
AUTHORITY_LIFETIME = 7300 * DAY  #: of the authority's own: a new one needs a restart of the broker
#: Of a list of revoked certificates: past its nextUpdate mosquitto refuses every client.
LIST_LIFETIME = 3650 * DAY
DAEMON = "hushgrid"  #: the user that a device's process runs as
REQUEST = re.compile(rb"-----BEGIN CERTIFICATE REQUEST-----.*?-----END CERTIFICATE REQUEST-----", re.DOTALL)


def now() -> datetime:
    """UTC, in whole seconds, as certificates have it."""
    return datetime.now(UTC).replace(microsecond=0)


def check_name(name: str) -> str:
    """`name`, if it can be that of an identity. Raises InputError."""
    if NAME.fullmatch(name) is None:
        raise InputError(f"NAME: found {printable(name, 80)!r}, expected lower-case letters, digits and -, at most 64")
    return name


def fingerprint(key: CertificatePublicKeyTypes) -> str:
    """SHA-256 of a public key, as `openssl pkey -pubin -outform DER | sha256sum` prints it."""
    return sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


# --- on the box ---


class Request:
    """A public key and the name that its holder wants, signed by the private key."""

    def __init__(self, signed: x509.CertificateSigningRequest) -> None:
        self.signed = signed

    @classmethod
    def read(cls, content: bytes, file: str) -> Request:
        """A request in PEM or DER; in PEM other text may stand around it.

        Raises InputError if there is none, its signature is not its key's, or its key is of another kind.
        """
        pem = REQUEST.search(content)
        try:
            signed = x509.load_pem_x509_csr(pem.group()) if pem else x509.load_der_x509_csr(content)
            valid = signed.is_signature_valid
            key = signed.public_key()
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            raise InputError(f"{file}: found no certificate request, expected PEM") from None
        if not valid:
            raise InputError(f"{file}: found a signature that is not its key's, expected an unchanged request")
        if not (
            isinstance(key, ec.EllipticCurvePublicKey) or (isinstance(key, rsa.RSAPublicKey) and key.key_size >= 2048)
        ):
            raise InputError(f"{file}: found a key of another kind, expected EC, or RSA of at least 2048 bits")
        return cls(signed)

    @property
    def name(self) -> str:
        """The common name; those of several joined."""
        return ", ".join(str(a.value) for a in self.signed.subject.get_attributes_for_oid(NameOID.COMMON_NAME))

    @property
    def key(self) -> CertificatePublicKeyTypes:
        key: CertificatePublicKeyTypes = self.signed.public_key()
        return key

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)

    @property
    def pem(self) -> bytes:
        return self.signed.public_bytes(Encoding.PEM)


def request(name: str, directory: Path) -> Request:
    """Makes a key and a request: `directory`/NAME.key (0600, the daemon's user's if that user exists) and NAME.csr.

    Raises InputError if there is a key already, or the directory cannot be written.
    """
    check_name(name)
    file = directory / f"{name}.key"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        write_key(key, file)
        made = Request(x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256()))
        (directory / f"{name}.csr").write_bytes(made.pem)
    except FileExistsError:
        raise InputError(f"{file}: found a key, expected none: it is kept (a new one goes to another --out)") from None
    except OSError as error:
        raise InputError(f"{error.filename or directory}: {error.strerror}, expected a writable place") from None
    return made


def write_key(key: ec.EllipticCurvePrivateKey, file: Path) -> None:
    """A private key in a new file, for its owner's eyes alone. Raises FileExistsError, OSError."""
    with open(file, "xb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as out:
        if os.geteuid() == 0:
            with suppress(KeyError):
                user = pwd.getpwnam(DAEMON)
                os.fchown(out.fileno(), user.pw_uid, user.pw_gid)
        out.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        out.flush()
        os.fsync(out.fileno())


# --- where the authority's key is ---


class Authority:
    """Who signs for a fleet."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.key, self.certificate = key, certificate

    @classmethod
    def make(cls, fleet: str) -> Authority:
        """A new one."""
        key, at = ec.generate_private_key(ec.SECP256R1()), now()
        name = _name(f"hushgrid fleet {fleet}"[:64])
        signed = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(at - DAY)
            .not_valid_after(at + AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_uses(key_cert_sign=True, crl_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, signed)

    @classmethod
    def read(cls, key: Path, certificate: Path) -> Authority:
        """That of two PEM files. Raises InputError if one is absent or wrong, or they do not belong together."""
        signed = read_certificate(certificate)
        try:
            private = load_pem_private_key(key.read_bytes(), None)
        except OSError as error:
            raise InputError(
                f"{key}: {error.strerror}, expected the authority's key (--ca-key FILE, if it stands elsewhere)"
            ) from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InputError(f"{key}: found no private key, expected PEM without a password") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != signed.public_key():
            raise InputError(f"{key}: found another key than that of {certificate}")
        return cls(private, signed)

    def sign(self, name: str, key: CertificatePublicKeyTypes, lifetime: timedelta = LIFETIME) -> x509.Certificate:
        """A client's certificate, for `name` as its common name, good from now on."""
        return self._sign(name, key, lifetime, [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)])

    def passing(self, name: str, folder: Path, lifetime: timedelta) -> Tls:
        """A key and a certificate of a short life for `name`, in `folder`, which goes with what it was made for."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert, key_file = folder / f"{name}.crt", folder / f"{name}.key"
        write_key(key, key_file)
        cert.write_bytes(self.sign(name, key.public_key(), lifetime).public_bytes(Encoding.PEM))
        (folder / "ca.crt").write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return Tls(ca=str(folder / "ca.crt"), cert=str(cert), key=str(key_file))

    def sign_server(
        self, name: str, key: CertificatePublicKeyTypes, *hosts: str, bridge: bool = False
    ) -> x509.Certificate:
        """A broker's certificate, which clients check by the name or the number in its URL: `hosts`, of its servers.

        Several servers show it to each other too, and a `bridge` shows it to the broker above.
        """
        client = [ExtendedKeyUsageOID.CLIENT_AUTH] if bridge or len(hosts) > 1 else []
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, *client])
        names = x509.SubjectAlternativeName([_general(host) for host in dict.fromkeys(hosts)])
        return self._sign(name, key, LIFETIME, [(uses, False), (names, False)])

    def _sign(
        self,
        name: str,
        key: CertificatePublicKeyTypes,
        lifetime: timedelta,
        extensions: Iterable[tuple[x509.ExtensionType, bool]],
    ) -> x509.Certificate:
        at = now()
        ends = min(at + lifetime, self.certificate.not_valid_after_utc)
        unsigned = (
            # A day earlier: the box's clock, or the broker's, may lag.
            x509.CertificateBuilder(self.certificate.subject, _name(name), key, x509.random_serial_number())
            .not_valid_before(at - DAY)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_uses(digital_signature=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        for extension, critical in extensions:
            unsigned = unsigned.add_extension(extension, critical)
        return unsigned.sign(self.key, hashes.SHA256())

    def revoked(self, serials: Iterable[tuple[int, datetime]]) -> bytes:
        """The list of revoked certificates, by number and since when, in PEM. It lasts for LIST_LIFETIME."""
        at = now()
        unsigned = x509.CertificateRevocationListBuilder(self.certificate.subject, at - DAY, at + LIST_LIFETIME)
        for serial, since in serials:
            one = x509.RevokedCertificateBuilder(serial, since)
            unsigned = unsigned.add_revoked_certificate(one.build())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        unsigned = unsigned.add_extension(issuer, False).add_extension(x509.CRLNumber(int(at.timestamp())), False)
        return unsigned.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def read_certificate(file: Path) -> x509.Certificate:
    """The first certificate in a PEM file. Raises InputError."""
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}, expected a certificate") from None
    except ValueError:
        raise InputError(f"{file}: found no certificate, expected PEM") from None


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _uses(digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
