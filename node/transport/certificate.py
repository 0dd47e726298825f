"""How long a certificate is still good: read from the file itself, by the few bytes of DER that say so."""

from __future__ import annotations

import ssl
from base64 import b64decode
from datetime import UTC, datetime
from math import floor, inf
from pathlib import Path
from typing import NamedTuple

from hushgrid.kernels.errors import InputError
from hushgrid.node import system
from hushgrid.node.schema.sections import Tls
from hushgrid.node.transport.connect import Address, tls_context

DAY_S = 86400.0
HOUR_S = 3600.0
SOON_D = 60  #: days before the end of a certificate from which on its end is a warning
SEQUENCE, VERSION, INTEGER, UTC_TIME, TIME = (
    0x30,
    0xA0,
    0x02,
    0x17,
    0x18,
)  #: tags of DER; VERSION is the field [0] of a certificate
BEFORE_VALIDITY = 2  #: fields of a certificate between its number and its validity: algorithm, issuer
BEFORE_UPDATES = 4  #: fields of a list before its next update: version, algorithm, issuer, this update
ANYWHERE = Address("", 0, tls=True)  #: whether a certificate and a key belong together is the same for every broker
LIST = "-----BEGIN X509 CRL-----"
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def days_left(path: str | Path, now: float | None = None) -> int:
    """Whole days until the certificate in a PEM file ends, by this machine's clock; negative if it has ended.

    Of a file with several certificates the first counts, which is the owner's. `now`: s since 1970.
    Raises InputError if it is wrong.
    """
    ends = not_after(path).timestamp()
    return floor((ends - (system.machine.wall() if now is None else now)) / DAY_S)


def not_after(path: str | Path) -> datetime:
    """The last moment of the first certificate in a PEM file. Raises InputError if there is none to be read."""
    return _read(path).ends


def number(path: str | Path) -> str:
    """The number that its authority gave the first certificate in a PEM file, hexadecimal. Raises InputError."""
    return _read(path).number


class _Certificate(NamedTuple):
    number: str
    ends: datetime


def list_ends(path: str | Path) -> datetime:
    """When the list of revoked certificates in a PEM file is to be replaced at the latest: past it mosquitto refuses
    every client. Raises InputError if there is none to be read.
    """
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
        content, _ = _inside(b64decode(text.split(LIST)[1].split("-----END")[0]), SEQUENCE)
        rest, _ = _inside(content, SEQUENCE)
        for _ in range(BEFORE_UPDATES):
            _, rest = _inside(rest, rest[0])
        return _moment(rest)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a list of revoked certificates") from None
    except (ValueError, IndexError, OverflowError):
        raise InputError(f"{path}: found no list of revoked certificates that can be read, expected PEM") from None


def _read(path: str | Path) -> _Certificate:
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
        begin = text.index(BEGIN)
        return _parsed(ssl.PEM_cert_to_DER_cert(text[begin : text.index(END, begin) + len(END)]))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a certificate") from None
    except (ValueError, IndexError, OverflowError):
        raise InputError(f"{path}: found no certificate that can be read, expected PEM") from None


def _parsed(der: bytes) -> _Certificate:
    """A certificate's number and the end of its validity (RFC 5280, 4.1). Raises ValueError or IndexError if it is
    none.
    """
    content, _ = _inside(der, SEQUENCE)
    rest, _ = _inside(content, SEQUENCE)
    if rest[0] == VERSION:
        _, rest = _inside(rest, VERSION)
    serial, rest = _inside(rest, INTEGER)
    for _ in range(BEFORE_VALIDITY):
        _, rest = _inside(rest, rest[0])
    validity, _ = _inside(rest, SEQUENCE)
    _, ends = _inside(validity, validity[0])
    return _Certificate(f"{int.from_bytes(serial, 'big'):x}", _moment(ends))


def _moment(der: bytes) -> datetime:
    """The time that stands first."""
    if der[0] not in (UTC_TIME, TIME):
        raise ValueError(f"found tag {der[0]}")
    moment, _ = _inside(der, der[0])
    text = moment.decode("ascii")
    if der[0] == UTC_TIME:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _inside(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the first element, which has this tag, and what follows the element."""
    if der[0] != tag:
        raise ValueError(f"found tag {der[0]}")
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    if start + length > len(der):
        raise ValueError("cut short")
    return der[start : start + length], der[start + length :]


def days_of(tls: Tls | None) -> int | None:
    """Whole days that the certificate of a client has left; None if it has none, or none that can be read."""
    if tls is None or tls.cert is None:
        return None
    try:
        return days_left(tls.cert)
    except InputError:
        return None


class OwnCertificate:
    """The certificate that a connection was made with, and whether another one stands in its place by now."""

    def __init__(self, tls: Tls | None) -> None:
        self.tls = tls
        self.number = ""  #: hexadecimal; "": there is none
        self.looks_at = inf  #: when the file is looked at again: from its last day on, s since 1970
        self.take(system.machine.wall())

    def take(self, now: float) -> None:
        """That of the file is in use from now on."""
        try:
            if self.tls is not None and self.tls.cert is not None:
                read = _read(self.tls.cert)
                self.number, self.looks_at = read.number, max(read.ends.timestamp() - DAY_S, now)
        except InputError:
            self.looks_at = now + HOUR_S  # as long as the file cannot be read, what it was counts

    def replaced(self, now: float) -> bool:
        """Whether the file has another one, which belongs to the key beside it. Raises InputError if it does not."""
        self.looks_at = now + HOUR_S
        if self.tls is None or self.tls.cert is None or number(self.tls.cert) == self.number:
            return False
        tls_context(ANYWHERE, self.tls)
        return True
