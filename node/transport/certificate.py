"""How long a certificate is still good: read from the file itself, by the few bytes of DER that say so."""

from __future__ import annotations

import ssl
import time
from datetime import UTC, datetime
from math import floor
from pathlib import Path

from hushgrid.kernels.errors import InputError
from hushgrid.node.schema.sections import Tls

DAY_S = 86400.0
SEQUENCE, VERSION, UTC_TIME, TIME = 0x30, 0xA0, 0x17, 0x18  #: tags of DER; VERSION is the field [0] of a certificate
BEFORE_VALIDITY = 3  #: fields of a certificate between its version and its validity: number, algorithm, issuer
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def days_left(path: str | Path, now: float | None = None) -> int:
    """Whole days until the certificate in a PEM file ends, by this machine's clock; negative if it has ended.

    Of a file with several certificates the first counts, which is the owner's. `now`: s since 1970.
    Raises InputError if it is wrong.
    """
    ends = not_after(path).timestamp()
    return floor((ends - (time.time() if now is None else now)) / DAY_S)


def not_after(path: str | Path) -> datetime:
    """The last moment of the first certificate in a PEM file. Raises InputError if there is none to be read."""
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
        begin = text.index(BEGIN)
        return _not_after(ssl.PEM_cert_to_DER_cert(text[begin : text.index(END, begin) + len(END)]))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a certificate") from None
    except (ValueError, IndexError, OverflowError):
        raise InputError(f"{path}: found no certificate that can be read, expected PEM") from None


def _not_after(der: bytes) -> datetime:
    """The end of a certificate's validity (RFC 5280, 4.1). Raises ValueError or IndexError if it is none."""
    content, _ = _inside(der, SEQUENCE)
    rest, _ = _inside(content, SEQUENCE)
    if rest[0] == VERSION:
        _, rest = _inside(rest, VERSION)
    for _ in range(BEFORE_VALIDITY):
        _, rest = _inside(rest, rest[0])
    validity, _ = _inside(rest, SEQUENCE)
    _, ends = _inside(validity, validity[0])
    if ends[0] not in (UTC_TIME, TIME):
        raise ValueError(f"found tag {ends[0]}")
    moment, _ = _inside(ends, ends[0])
    text = moment.decode("ascii")
    if ends[0] == UTC_TIME:
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
