"""Members of a masked run that a coordinator of the adversary has made up, and the broker on which it speaks for them.

Devices come in by TLS, with certificates of the fleet. The adversary has a listener of its own, without one: it may be
the broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from hushgrid.broker.servers.mosquitto import Mosquitto
from hushgrid.broker.servers.process import free_port
from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.kernels.patterns.masked import Ask, Introduced, KeyRequest, KeysAck, Masked
from hushgrid.node.masks.identity import Identity, statement
from hushgrid.node.schema.sections import Tls
from hushgrid.node.wire import Refuse
from tests.support.daemons.deployed_fleet import certificates
from tests.support.daemons.lying_coordinator import Liar

DAY = timedelta(days=1)


class Place(NamedTuple):
    """A broker with two doors."""

    devices: str  #: URL, mqtts
    adversary: str  #: URL, mqtt
    certs: Path  #: keys and certificates of the fleet


def two_doors(directory: Path, stack: ExitStack, *devices: str) -> Place:
    """mosquitto without an access list, and certificates of the fleet for these devices."""
    certs, port = directory / "certs", free_port()
    certificates(certs, *devices)
    (directory / "broker").mkdir()
    tls = Tls(ca=str(certs / "ca.crt"), cert=str(certs / "broker.crt"), key=str(certs / "broker.key"))
    lines = [f"listener {port} 127.0.0.1", "max_packet_size 8000000"]
    broker = stack.enter_context(Mosquitto(directory / "broker", tls=tls, config=lines))
    broker.start()
    return Place(broker.url, f"mqtt://127.0.0.1:{port}", certs)


class Authority:
    """Who signs certificates of members, and whose key the adversary has."""

    def __init__(self, name: str = "the owners") -> None:
        self.key, self.name = (
            ed25519.Ed25519PrivateKey.generate(),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        )
        self.certificate = self._signed(self.name, self.key.public_key(), True)

    def save(self, file: Path) -> str:
        file.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return str(file)

    def device(self, name: str) -> Identity:
        """One device of this name, with a key of its own."""
        key, subject = ed25519.Ed25519PrivateKey.generate(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return Identity(self._signed(subject, key.public_key(), False), key)

    def revokes(self, *certificates: bytes) -> x509.CertificateRevocationList:
        """Its list of revoked certificates, given in DER."""
        at = datetime.now(UTC)
        made = (
            x509.CertificateRevocationListBuilder().issuer_name(self.name).last_update(at - DAY).next_update(at + DAY)
        )
        for one in certificates:
            number = x509.load_der_x509_certificate(one).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(at - DAY)
            made = made.add_revoked_certificate(revoked.build())
        return made.sign(self.key, None)

    def introductions(self, run: bytes, names: Iterable[str]) -> dict[str, Introduction]:
        """Members of these names, each with a certificate and a key of the run: as good as true ones."""
        made = {}
        for name in names:
            identity = self.device(name)
            public = X25519PrivateKey.generate().public_key().public_bytes_raw()
            made[name] = Introduction(public, identity.certificate, identity.sign(statement(run, name, public)))
        return made

    def _signed(self, subject: x509.Name, key: ed25519.Ed25519PublicKey, may_sign: bool) -> x509.Certificate:
        at = datetime.now(UTC)
        unsigned = x509.CertificateBuilder(self.name, subject, key, x509.random_serial_number())
        unsigned = unsigned.not_valid_before(at - DAY).not_valid_after(at + 10 * DAY)
        return unsigned.add_extension(x509.BasicConstraints(may_sign, None), critical=True).sign(self.key, None)


def meet(liar: Liar, run: bytes, victim: str, others: Iterable[str], authority: Authority) -> bool:
    """The victim is introduced to others that the coordinator has made up. Whether it believes in them."""
    liar.say(run, victim, KeyRequest(), 1)
    introduction = liar.reply(run, victim, Introduction)
    liar.say(run, victim, Introduced(authority.introductions(run, others) | {victim: introduction}), 2)
    return isinstance(liar.reply(run, victim, KeysAck, Refuse), KeysAck)


def share(liar: Liar, run: bytes, victim: str, ask: Ask) -> bytes | None:
    """What the victim says to a question, masked; None if it refuses."""
    before = len(liar.replies(run, victim, Masked))
    liar.say(run, victim, ask, 3)
    said = liar.wait(
        lambda: next(iter(liar.replies(run, victim, Refuse) + liar.replies(run, victim, Masked)[before:]), None),
        f"answer of {victim}",
    )
    return said.share if isinstance(said, Masked) else None
