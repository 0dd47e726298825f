"""Sections of whoever trusts no broker: whose messages count, and how an end shows that its own are its own."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hushgrid.kernels.ranges import NODES, Name, Sha256
from hushgrid.node.schema.sections import Section


class Trusted(Section, frozen=True, kw_only=True):
    """Whose certificates count for the messages of a fleet: `fingerprints` or `ca`. All ends of the fleet have it."""

    #: SHA-256 of each one's certificate, DER, in lower case: of the coordinator's and of neighbours',
    #: in a coordinator's file of all members'
    fingerprints: Annotated[dict[Name, Sha256], Meta(min_length=1, max_length=NODES)] | None = None
    ca: str | None = None  #: certificates of authorities, a file: a name is whoever has one of theirs with that name
    #: beside `ca`: a file with its authorities' lists of revoked certificates, read again when it changes
    crl: str | None = None
    cert: str | None = None  #: this end's own certificate, a file; its common name is the end's [`tls.cert`]
    key: str | None = None  #: its private key, a file [`tls.key`]

    def __post_init__(self) -> None:
        if (self.fingerprints is None) == (self.ca is None):
            raise ValueError("Expected one of fingerprints and ca")
        if self.ca is None and self.crl:
            raise ValueError("Expected crl beside ca alone: of fingerprints one is left out")
        if (self.cert is None) != (self.key is None):
            raise ValueError("Expected both of cert and key, or neither")
