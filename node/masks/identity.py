"""Who the members of a masked run are: a device's certificate, and whose certificates its owner trusts.

The coordinator and the broker relay what the members show each other, and may be the adversary. So a key counts only
with the signature of a device whose certificate the owner has pinned, or has had signed by an authority that is not the
coordinator's, and has not revoked. `Identity` and `Trust` hold the two ends of that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from hushgrid.kernels.errors import InputError, Refused, printable
from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.node import system
from hushgrid.node.schema.sections import AllowMasked, Tls

WORDS = b"hushgrid masked introduction"
SIGNING = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
PUBLIC = (ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey, rsa.RSAPublicKey)
DAY = timedelta(days=1)
LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)

Clock = Callable[[], datetime]


def now() -> datetime:
    """UTC. By a clock that cannot be read it is before every certificate."""
    try:
        return datetime.fromtimestamp(system.wall(), UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.min.replace(tzinfo=UTC)


def framed(*parts: bytes) -> bytes:
    """Each part after its length, so that no two lists of parts are the same bytes."""
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def statement(run: bytes, node: str, key: bytes, mark: bytes = b"") -> bytes:
    """What a member signs: that `key`, X25519 (32,), is its public key of this run, and `mark` its ledger's,
    if it says so.
    """
    return framed(WORDS, run, node.encode(), key, *([mark] if mark else []))


def fingerprint(certificate: bytes) -> str:
    """SHA-256 of a certificate in DER, in hexadecimal."""
    return sha256(certificate).hexdigest()


class Identity:
    """One device: its certificate, and the private key that signs for it."""

    def __init__(self, certificate: x509.Certificate, key: Any) -> None:
        self.certificate = certificate.public_bytes(Encoding.DER)
        self._key = key

    @classmethod
    def read(cls, node: str, cert: str, key: str, section: str = "tls") -> Identity:
        """That of `node`, by its PEM files (`tls.cert`, `tls.key`, or of another section): EC, Ed25519 or RSA.

        Raises InputError if a file is absent or no such PEM, or the certificate is another node's,
        or does not belong to the key. Whether it is valid now is asked when a run begins (`untimely`): a clock is set,
        a certificate renewed.
        """
        (certificate, *_), private = _certificates(cert, f"{section}.cert"), _private_key(key, f"{section}.key")
        if (wrong := _misnamed(certificate, node)) is not None:
            raise InputError(f"{section}.cert: {cert}: {wrong}")
        if certificate.public_key() != private.public_key():
            raise InputError(f"{section}.key: {key}: found another key than that of {cert}")
        return cls(certificate, private)

    def save(self, cert: Path, key: Path) -> None:
        """In PEM files; the key for its owner's eyes alone."""
        certificate, private = self.pem()
        cert.write_bytes(certificate)
        key.touch(0o600)
        key.write_bytes(private)

    def pem(self) -> tuple[bytes, bytes]:
        """Certificate and key."""
        x = x509.load_der_x509_certificate(self.certificate)
        private: bytes = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return x.public_bytes(Encoding.PEM), private

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.certificate)

    def untimely(self, clock: Clock = now) -> str | None:
        """Why the certificate is not valid now, in words; None if it is."""
        return _untimely(x509.load_der_x509_certificate(self.certificate), clock())

    def sign(self, message: bytes) -> bytes:
        """A signature, as `Trust.verify` expects it."""
        signature: bytes = self._key.sign(message, *_scheme(self._key.public_key()))
        return signature


class Trust:
    """Whose certificates one device believes: those with a pinned fingerprint, or signed by an authority (one step).

    None that is revoked: by its fingerprint, or by a list of its authority. A list counts however old it is.
    """

    def __init__(
        self,
        pinned: Iterable[str] | Mapping[str, str] = (),
        authorities: Sequence[x509.Certificate] = (),
        clock: Clock = now,
        revoked: Iterable[str] = (),
        lists: Sequence[x509.CertificateRevocationList] = (),
    ) -> None:
        """`pinned`: fingerprints, or that of each node by its name."""
        self._named = dict(pinned) if isinstance(pinned, Mapping) else {}
        self._pinned = frozenset[str]() if self._named else frozenset(pinned)
        self._authorities, self._clock = tuple(authorities), clock
        self._revoked, self._lists = frozenset(revoked), tuple(lists)

    def verify(self, run: bytes, node: str, introduction: Introduction) -> None:
        """Accepts what is shown as the introduction of `node` in this run, or raises Refused."""
        message = statement(run, node, introduction.key, introduction.mark)
        if (wrong := self.wrong(node, introduction.certificate, introduction.signature, message)) is not None:
            raise Refused(f"the introduction of {node}: {wrong}")

    def wrong(self, node: str, certificate: bytes, signature: bytes, message: bytes) -> str | None:
        """What is wrong with a message that `node` is to have signed, in words made of public facts; None if nothing
        is.
        """
        if (untrusted := self.untrusted(node, certificate)) is not None:
            return untrusted
        if not proves(certificate, signature, message):
            return "found a signature that is not its certificate's, of this run, name and key"
        return None

    def untrusted(self, node: str, certificate: bytes) -> str | None:
        """Why a certificate in DER does not count as that of `node` now; None if it does."""
        try:
            presented = x509.load_der_x509_certificate(certificate)
            public = presented.public_key()
            wrong = _misnamed(presented, node) or _untimely(presented, self._clock())
        except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
            return "found no certificate with an EC, Ed25519 or RSA key"
        if wrong is not None:
            return wrong
        if not isinstance(public, PUBLIC):
            return "found no certificate with an EC, Ed25519 or RSA key"
        mark = fingerprint(certificate)
        pinned = mark in self._pinned if node not in self._named else mark == self._named[node]
        if not pinned and not any(self._issued(presented, a) for a in self._authorities):
            return f"found a certificate that this device's owner does not trust, {mark}"
        if mark in self._revoked or any(_listed(presented, one) for one in self._lists):
            return f"found a certificate that is revoked, {mark}"
        return None

    def _issued(self, certificate: x509.Certificate, authority: x509.Certificate) -> bool:
        if _untimely(authority, self._clock()) is not None:
            return False
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return False
        return True


def trust_of(masked: AllowMasked, tls: Tls, clock: Clock = now) -> Trust:
    """Whom a device's owner trusts in masked runs.

    Raises InputError if the file `ca` is none of authorities, or one of them has the key of the fleet's own authority
    (`tls.ca`), or the file `crl` has no list of theirs.
    """
    if masked.ca is None:
        return Trust(masked.peers or (), clock=clock)
    authorities = authorities_in(masked.ca, "allow.masked")
    fleet = {_public(certificate) for certificate in _certificates(tls.ca, "tls.ca")}
    if any(_public(authority) in fleet for authority in authorities):
        raise InputError(
            f"allow.masked.ca: {masked.ca}: found the key of the fleet's own authority (tls.ca), expected another "
            "one: whoever holds that key can certify members that do not exist"
        )
    lists = lists_in(masked.crl, authorities, "allow.masked") if masked.crl else ()
    return Trust((), authorities, clock, masked.revoked or (), lists)


def authorities_in(file: str, section: str) -> list[x509.Certificate]:
    """The certificates of a file. Raises InputError unless each may sign others. `section`: of the owner's file."""
    authorities = _certificates(file, f"{section}.ca")
    for authority in authorities:
        try:
            may_sign = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except (x509.ExtensionNotFound, ValueError):
            may_sign = False
        if not may_sign:
            raise InputError(f"{section}.ca: {file}: found a certificate that may sign none, expected a CA's")
    return authorities


def lists_in(file: str, authorities: Sequence[x509.Certificate], section: str) -> list[x509.CertificateRevocationList]:
    """Every list of revoked certificates in a file. Raises InputError unless each is signed by one of these
    authorities. `section`: of the owner's file, that names it.
    """
    blob = _read(file, f"{section}.crl")
    try:
        lists = [x509.load_pem_x509_crl(one) for one in LIST.findall(blob)] or [x509.load_der_x509_crl(blob)]
    except ValueError:
        raise InputError(f"{section}.crl: {file}: found no list of revoked certificates, expected PEM or DER") from None
    for one in lists:
        if not any(one.issuer == a.subject and _signed(one, a) for a in authorities):
            name = printable(one.issuer.rfc4514_string(), 80)
            raise InputError(
                f"{section}.crl: {file}: found a list of {name}, expected one that {section}.ca has signed"
            )
    return lists


class Shared(Trust):
    """The trust of all nodes of one process: what one of them has verified, the others need not."""

    def __init__(self, pinned: Iterable[str]) -> None:
        super().__init__(pinned)
        self._verified: set[tuple[bytes, str, Introduction]] = set()

    def verify(self, run: bytes, node: str, introduction: Introduction) -> None:
        if (run, node, introduction) not in self._verified:
            super().verify(run, node, introduction)
            self._verified.add((run, node, introduction))


def made_up(nodes: Iterable[str]) -> tuple[dict[str, Identity], Trust]:
    """Identities for a simulated run, and a trust that pins all of them.

    They are drawn anew each time, seed or not: masks cancel in every sum, so no result depends on them.
    """
    identities = {}
    for node in nodes:
        key, name = ed25519.Ed25519PrivateKey.generate(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
        unsigned = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        lasting = unsigned.not_valid_before(now() - DAY).not_valid_after(now() + 3650 * DAY)
        identities[node] = Identity(lasting.sign(key, None), key)
    return identities, Trust(identity.fingerprint for identity in identities.values())


def lasting(node: str, seed: bytes, number: int) -> Identity:
    """An identity for a simulated device whose clock may jump by decades, the same for the same seed (32,)."""
    key, name = (
        ed25519.Ed25519PrivateKey.from_private_bytes(seed),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)]),
    )
    unsigned = x509.CertificateBuilder(name, name, key.public_key(), number)
    dated = unsigned.not_valid_before(datetime(1950, 1, 1, tzinfo=UTC)).not_valid_after(
        datetime(9999, 1, 1, tzinfo=UTC)
    )
    return Identity(dated.sign(key, None), key)


# --- certificates ---


def _public(certificate: x509.Certificate) -> bytes:
    """Its public key: what two certificates of one authority have in common, whatever the files are called."""
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _signed(one: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        return one.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


def _listed(certificate: x509.Certificate, one: x509.CertificateRevocationList) -> bool:
    """Whether a list of the certificate's issuer has its number."""
    number = certificate.serial_number
    return one.issuer == certificate.issuer and one.get_revoked_certificate_by_serial_number(number) is not None


def proves(certificate: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the key of a certificate in DER has signed this message."""
    try:
        _verify(x509.load_der_x509_certificate(certificate).public_key(), signature, message)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def _verify(public: Any, signature: bytes, message: bytes) -> None:
    public.verify(signature, message, *_scheme(public))


def _scheme(public: Any) -> tuple[Any, ...]:
    """What signing and verifying want beside the message. Raises TypeError if it is another kind of key."""
    if isinstance(public, ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(public, rsa.RSAPublicKey):
        return padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH), hashes.SHA256()
    if isinstance(public, ed25519.Ed25519PublicKey):
        return ()
    raise TypeError


def _misnamed(certificate: x509.Certificate, node: str) -> str | None:
    names = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return None if names == [node] else f"found the certificate of {', '.join(names) or 'nobody'}, expected {node}'s"


def _untimely(certificate: x509.Certificate, moment: datetime) -> str | None:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return (
        None
        if first <= moment <= last
        else f"found a certificate for {first:%Y-%m-%d} to {last:%Y-%m-%d}, expected a valid one"
    )


def _read(file: str, key: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"{key}: {file}: {error.strerror}, expected PEM") from None


def _certificates(file: str, key: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(file, key))
    except ValueError:
        raise InputError(f"{key}: {file}: found no certificate, expected PEM") from None


def _private_key(file: str, key: str) -> Any:
    try:
        private = load_pem_private_key(_read(file, key), None)
    except TypeError:
        raise InputError(f"{key}: {file}: found a key behind a password, expected one without") from None
    except (ValueError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, SIGNING):
        raise InputError(f"{key}: {file}: found no EC, Ed25519 or RSA key, expected PEM")
    return private
